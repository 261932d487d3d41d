"""JSON Schemas as the Anthropic API takes them, with nothing of their meaning lost.

A tool's schema may not choose between alternatives at its top. The schema of an answer may say even less; what it
cannot say in keywords goes into the descriptions, and one that cannot be said at all is left to the system prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

_COMBINED = ("allOf", "anyOf", "oneOf")
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"))
_KEPT = frozenset(
    ("$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "description", "enum", "format", "items",
     "oneOf", "properties", "required", "title", "type")
)  # fmt: skip
_DROPPED = frozenset(("$schema", "$id", "$comment", "default", "examples"))


class _Unsupported(Exception):
    """The schema has a meaning that the API has no words for."""


def convert_parameters(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """A tool's schema, and what its description has to add."""
    schema: dict[str, Any] = {"type": "object", **parameters}
    combined = {key: schema.pop(key) for key in _COMBINED if key in schema}
    if not combined:
        return schema, ""
    properties = dict(cast(Mapping[str, Any], schema.get("properties") or {}))
    for branches in combined.values():
        for branch in cast(list[Any], branches):
            if isinstance(branch, Mapping):
                for name, value in cast(
                    Mapping[str, Any], cast(Mapping[str, Any], branch).get("properties") or {}
                ).items():
                    properties.setdefault(name, value)
    schema["properties"] = properties
    return schema, f"The arguments must also fit this JSON Schema: {msgspec.json.encode(combined).decode()}"


def convert_output_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The form of the answer, or `None` where only the system prompt can tell it."""
    try:
        _check_references(schema)
        said = _convert(schema)
    except _Unsupported:
        return None
    return {"type": "json_schema", "schema": said}


def _convert(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not schema:
        raise _Unsupported  # anything at all
    given = cast(Mapping[str, Any], schema)
    said: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    for key, value in given.items():
        if key in _DROPPED:
            continue
        if key not in _KEPT or (key == "format" and value not in _FORMATS):
            notes[key] = value
        elif key in ("$defs", "properties"):
            said[key] = {name: _convert(item) for name, item in cast(Mapping[str, Any], value).items()}
        elif key == "items":
            said[key] = _convert(value)
        elif key in _COMBINED:
            said["anyOf" if key == "oneOf" else key] = [_convert(item) for item in cast(list[Any], value)]
        elif key == "additionalProperties":
            if value is not False:
                raise _Unsupported  # keys that are not known beforehand
        else:
            said[key] = value
    return _close_object(said, given, notes)


def _close_object(said: dict[str, Any], given: Mapping[str, Any], notes: dict[str, Any]) -> dict[str, Any]:
    """With no properties beyond the named ones, and with what has no keyword in words."""
    kind = given.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        if not given.get("properties") and given.get("additionalProperties") is not False:
            raise _Unsupported
        said["additionalProperties"] = False
    if kind == "array" and "items" not in given:
        raise _Unsupported
    if "$ref" in said:
        if notes:
            raise _Unsupported
        return {key: value for key, value in said.items() if key in ("$ref", "$defs")}  # a reference stands alone
    if notes:
        words = msgspec.json.encode(notes).decode()
        said["description"] = f"{said['description']}\n\n{words}" if said.get("description") else words
    return said


def _check_references(schema: Mapping[str, Any]) -> None:
    """No definition may lead to itself, for the API unfolds them all."""
    defs = cast(Mapping[str, Any], schema.get("$defs") or {})
    leads = {f"#/$defs/{name}": _find_references(item) for name, item in defs.items()}
    for name in leads:
        seen: set[str] = set()
        waiting = list(leads[name])
        while waiting:
            target = waiting.pop()
            if target == name:
                raise _Unsupported
            if target not in seen:
                seen.add(target)
                waiting.extend(leads.get(target, ()))
    if any(target not in leads for target in _find_references(schema)):
        raise _Unsupported


def _find_references(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        given = cast(Mapping[str, Any], schema)
        own = {given["$ref"]} if isinstance(given.get("$ref"), str) else set[str]()
        return own.union(*map(_find_references, given.values()))
    if isinstance(schema, list | tuple):
        return set[str]().union(*map(_find_references, cast(list[Any], schema)))
    return set()
