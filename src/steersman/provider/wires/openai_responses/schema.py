"""JSON Schemas as OpenAI takes them: what its servers reject is said in another way, never left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from steersman.provider.streaming.output_tool import OutputMode
from steersman.types.model import Model, Request, StreamOptions

# Not allowed beside the outermost `type: object` of a function's parameters.
_COMBINED = ("anyOf", "oneOf", "allOf", "not", "enum")

# What a strict response format may say; anything else makes the server refuse the request.
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
    """A function's parameters, and the words to add to its description for what parameters may not say."""
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
    """The properties that the branches of a combination know, so that the model is told about every one."""
    found: dict[str, Any] = {}
    for branch in cast(list[Any], branches) if isinstance(branches, list) else []:
        known: object = cast(Mapping[str, Any], branch).get("properties") if isinstance(branch, Mapping) else None
        if isinstance(known, Mapping):
            found = {**cast(Mapping[str, Any], known), **found}
    return found


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether the schema is of an object, the only kind of answer that can be asked for."""
    return schema.get("type") == "object" and not any(word in schema for word in _COMBINED)


def choose_output_mode(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    """How the form of an answer is told: as a schema, which must be one of named properties, else as a tool."""
    del model, request
    schema = options.output_schema or {}
    return "schema" if is_object(schema) and "properties" in schema else "tool"


def is_strict(schema: object) -> bool:
    """Whether the server can hold the model to the schema exactly: all objects closed, everything in them required."""
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
