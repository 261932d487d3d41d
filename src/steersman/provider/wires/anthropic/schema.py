"""Converts JSON Schemas to what the Anthropic API accepts, without losing meaning.

The API refuses `anyOf`, `oneOf` and `allOf` at the top of a tool's schema. The schema of an answer is limited further:
unsupported keywords go into the descriptions, and a schema that cannot be converted is left to the system prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec

from steersman.provider.streaming.output_tool import OutputMode
from steersman.types.model import Model, Request, StreamOptions

_VERSION = re.compile(r"claude-(?:[a-z]+-)*(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_PREVIEW = re.compile(r"claude-[a-z]+(?:-[a-z]+)*$")
_STRUCTURED = (4, 5)
_COMBINED = ("allOf", "anyOf", "oneOf")
_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"))
_KEPT = frozenset(
    ("$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "description", "enum", "format", "items",
     "oneOf", "properties", "required", "title", "type")
)  # fmt: skip
_DROPPED = frozenset(("$schema", "$id", "$comment", "default", "examples"))


class _Unsupported(Exception):
    """The API has no way to express this schema."""


@lru_cache(maxsize=64)
def parse_version(model_id: str) -> tuple[int, int] | None:
    """Return the version in a model id, such as (4, 5); `None` if the id is not that of a Claude model."""
    found = _VERSION.search(model_id)
    if found:
        return int(found[1]), int(found[2] or 0)
    return (4, 6) if _PREVIEW.search(model_id) else None


def takes_output_schema(model: Model) -> bool:
    """Whether the API takes a schema for the answer of this model."""
    version = parse_version(model.id)
    wanted = model.settings.get("structured_output")
    return version is not None and version >= _STRUCTURED if wanted is None else bool(wanted)


def choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """Choose how to ask for structured output: with a schema if the model and the API take it, else with a tool.

    A model that thinks cannot be forced to call a tool, so the tool is only offered.
    """
    del request
    schema = options.output_schema
    if schema is not None and takes_output_schema(model) and convert_output_schema(schema) is not None:
        return "schema"
    own = model.settings.get("thinking")
    thinks = cast(Mapping[str, Any], own).get("type") != "disabled" if isinstance(own, Mapping) else None
    return "offered" if thinks or (thinks is None and options.thinking_level != "off") else "tool"


def convert_parameters(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a tool's schema, and text to append to its description."""
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
    """Return the output format, or `None` if the schema has to go into the system prompt."""
    try:
        _check_references(schema)
        converted = _convert(schema)
    except _Unsupported:
        return None
    return {"type": "json_schema", "schema": converted}


def _convert(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or not schema:
        raise _Unsupported  # any value is allowed
    given = cast(Mapping[str, Any], schema)
    converted: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    for key, value in given.items():
        if key in _DROPPED:
            continue
        if key not in _KEPT or (key == "format" and value not in _FORMATS):
            notes[key] = value
        elif key in ("$defs", "properties"):
            converted[key] = {name: _convert(item) for name, item in cast(Mapping[str, Any], value).items()}
        elif key == "items":
            converted[key] = _convert(value)
        elif key in _COMBINED:
            converted["anyOf" if key == "oneOf" else key] = [_convert(item) for item in cast(list[Any], value)]
        elif key == "additionalProperties":
            if value is not False:
                raise _Unsupported  # free keys
        else:
            converted[key] = value
    return _close_object(converted, given, notes)


def _close_object(converted: dict[str, Any], given: Mapping[str, Any], notes: dict[str, Any]) -> dict[str, Any]:
    """Forbid additional properties, and put unsupported keywords into the description."""
    kind = given.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        if not given.get("properties") and given.get("additionalProperties") is not False:
            raise _Unsupported
        converted["additionalProperties"] = False
    if kind == "array" and "items" not in given:
        raise _Unsupported
    if "$ref" in converted:
        if notes:
            raise _Unsupported
        # The API takes nothing beside `$ref`.
        return {key: value for key, value in converted.items() if key in ("$ref", "$defs")}
    if notes:
        words = msgspec.json.encode(notes).decode()
        converted["description"] = f"{converted['description']}\n\n{words}" if converted.get("description") else words
    return converted


def _check_references(schema: Mapping[str, Any]) -> None:
    """Refuse recursive and unresolved references: the API expands all definitions."""
    defs = cast(Mapping[str, Any], schema.get("$defs") or {})
    targets = {f"#/$defs/{name}": _find_references(item) for name, item in defs.items()}
    for name in targets:
        seen: set[str] = set()
        pending = list(targets[name])
        while pending:
            target = pending.pop()
            if target == name:
                raise _Unsupported
            if target not in seen:
                seen.add(target)
                pending.extend(targets.get(target, ()))
    if any(target not in targets for target in _find_references(schema)):
        raise _Unsupported


def _find_references(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        given = cast(Mapping[str, Any], schema)
        own = {given["$ref"]} if isinstance(given.get("$ref"), str) else set[str]()
        return own.union(*map(_find_references, given.values()))
    if isinstance(schema, list | tuple):
        return set[str]().union(*map(_find_references, cast(list[Any], schema)))
    return set()
