"""What the model may write when it decides: one object for each tool, with that tool's own parameters, and no other.

Schemas are made closed and simple, since each becomes a grammar: what a grammar cannot say is left to validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

RESPOND = "respond"
"""The entry beside the tools: nothing is called, the user is answered."""

_DEPTH = 6
_KEPT = ("type", "enum", "const")
_TYPES = frozenset(("string", "integer", "number", "boolean", "object", "array", "null"))


def decision_schema(parameters: Mapping[str, Mapping[str, Any]], *, respond: bool) -> dict[str, Any]:
    """Any of the tools, given as the parameters by name, with its arguments; or `respond`."""
    choices = [_choice(name, arguments_schema(schema)) for name, schema in parameters.items()]
    if respond:
        choices.append(_choice(RESPOND, None))
    return {"anyOf": choices}


def arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters a small model is asked for: the required ones; where none is, the first."""
    properties = _mapping(parameters.get("properties"))
    wanted = wanted_parameters(parameters)
    defs = _mapping(parameters.get("$defs") or parameters.get("definitions"))
    kept = {name: _simple(_mapping(properties.get(name)), defs, _DEPTH) for name in wanted}
    return {"type": "object", "properties": kept, "required": list(kept), "additionalProperties": False}


def wanted_parameters(parameters: Mapping[str, Any]) -> list[str]:
    """The names of the parameters a small model is asked for, in their order."""
    properties = _mapping(parameters.get("properties"))
    required = [name for name in properties if name in (parameters.get("required") or ())]
    return required or list(properties)[:1]


def _choice(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"tool": {"const": name}}
    if arguments is not None:
        fields["arguments"] = arguments
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _simple(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The part of a schema that a grammar holds to; anything at all where it is too deep or too strange."""
    schema = _followed(schema, defs)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list) and depth > 0:
        return _either([_mapping(option) for option in cast(list[Any], options)], defs, depth)
    kept = {name: schema[name] for name in _KEPT if name in schema}
    kind = kept.get("type")
    if isinstance(kind, list):
        named = [{"type": name} for name in cast(list[Any], kind)]
        return _either(named, defs, depth)
    if "enum" in kept or "const" in kept:
        return {name: value for name, value in kept.items() if name != "type"}
    if kind == "object" and schema.get("properties") and depth > 0:
        return _object(schema, defs, depth)
    if kind == "array" and depth > 0:
        items = _simple(_mapping(schema.get("items")), defs, depth - 1)
        return {"type": "array", "items": items, "minItems": 1 if schema.get("minItems") else 0}
    return kept if kind in _TYPES else {}


def _object(schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = _mapping(schema.get("properties"))
    names = wanted_parameters(schema)
    kept = {name: _simple(_mapping(properties.get(name)), defs, depth - 1) for name in names}
    return {"type": "object", "properties": kept, "required": names, "additionalProperties": False}


def _either(options: Sequence[Mapping[str, Any]], defs: Mapping[str, Any], depth: int) -> dict[str, Any]:
    real = [_simple(option, defs, depth - 1) for option in options if option.get("type") != "null"]
    return real[0] if len(real) == 1 else {"anyOf": real} if real else {"type": "null"}


def _followed(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference stands for; a chain of them is followed a few steps."""
    for _ in range(_DEPTH):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = _mapping(defs.get(reference.rpartition("/")[2]))
    return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}
