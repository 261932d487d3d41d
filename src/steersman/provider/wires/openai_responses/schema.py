"""Converts JSON Schemas to what OpenAI accepts; a refused keyword is expressed in another way, never dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from steersman.provider.streaming.output_tool import OutputMode
from steersman.types.model import Model, Request, StreamOptions

# Not allowed beside the outermost `type: object` of a function's parameters.
_COMBINED = ("anyOf", "oneOf", "allOf", "not", "enum")

# The keywords of a strict output schema; the server refuses a request with any other.
_STRICT_WORDS = frozenset(
    (
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "definitions",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    )
)


def convert_parameters(schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a function's parameters, and text to append to its description."""
    plain = dict(schema)
    plain["type"] = "object"
    plain.setdefault("properties", {})
    combined = {word: plain.pop(word) for word in _COMBINED if word in plain}
    if not combined:
        return plain, ""
    for word in ("anyOf", "oneOf", "allOf"):
        plain["properties"] = {**_merge_properties(combined.get(word)), **plain["properties"]}
    rule = msgspec.json.encode(combined).decode()
    return plain, f"The arguments must also satisfy this JSON Schema: {rule}"


def _merge_properties(branches: object) -> dict[str, Any]:
    """Merge the properties of all branches, so that the model sees every one."""
    found: dict[str, Any] = {}
    for branch in cast(list[Any], branches) if isinstance(branches, list) else []:
        known: object = cast(Mapping[str, Any], branch).get("properties") if isinstance(branch, Mapping) else None
        if isinstance(known, Mapping):
            found = {**cast(Mapping[str, Any], known), **found}
    return found


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether the schema is of an object, the only kind of structured output."""
    return schema.get("type") == "object" and not any(word in schema for word in _COMBINED)


def choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """Choose how to ask for structured output: with a schema if it is an object with properties, else with a tool."""
    del model, request
    schema = options.output_schema or {}
    return "schema" if is_object(schema) and "properties" in schema else "tool"


def is_strict(schema: object) -> bool:
    """Whether the server can enforce the schema: closed objects with every property required."""
    if isinstance(schema, list):
        return all(map(is_strict, cast(list[Any], schema)))
    if not isinstance(schema, Mapping):
        return True
    known = cast(Mapping[str, Any], schema)
    if not _STRICT_WORDS.issuperset(known) or not _is_closed(known):
        return False
    named = (known.get(word) for word in ("properties", "$defs", "definitions"))
    inner = [part for group in named if isinstance(group, Mapping) for part in cast(Mapping[str, Any], group).values()]
    return is_strict([*inner, known.get("items"), known.get("anyOf")])


def _is_closed(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") != "object" and "properties" not in schema:
        return True
    properties = cast(Mapping[str, Any], schema.get("properties") or {})
    return schema.get("additionalProperties") is False and set(properties) == set(schema.get("required") or ())
