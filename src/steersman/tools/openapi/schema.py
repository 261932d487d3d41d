"""Schemas of an OpenAPI description as JSON Schema for a request: references lead to `$defs`, so cycles stay cycles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from steersman.tools.openapi.document import Document
from steersman.tools.text import show

# Shared parts of a YAML text can make a small description huge once it is walked.
_MOST_PARTS = 50_000
_DEEPEST = 60
_PLAIN = (
    *("type", "format", "title", "description", "enum", "const", "default", "pattern", "uniqueItems", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties"),
)
_ONE = ("items", "additionalProperties", "not")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_BY_NAME = ("properties", "patternProperties")


class Schemas:
    """The schemas of one operation; `finished()` gives what they refer to."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._parts = 0

    def converted(self, schema: Any, depth: int = 0) -> Any:
        """A schema of the description as JSON Schema."""
        self._parts += 1
        if self._parts > _MOST_PARTS or depth > _DEEPEST:
            raise ValueError("A schema of the description is too large, or holds itself without a reference.")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise ValueError(f"A schema is an object or a boolean, got {show(schema)}.")
        given = cast(Mapping[str, Any], schema)
        result = self._reference(given) if "$ref" in given else self._words(given, depth)
        return _nullable(result) if given.get("nullable") is True else result

    def finished(self) -> dict[str, Any]:
        """The definitions that the converted schemas refer to, each once."""
        made: dict[str, Any] = {}
        while self._waiting:
            name, schema = self._waiting.pop()
            made[name] = self.converted(schema)
        return dict(sorted(made.items()))

    def _reference(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        pointer = schema["$ref"]
        name = self._names.get(pointer) if isinstance(pointer, str) else None
        if name is None:
            target = self._target(pointer)
            name = self._named(pointer)
            self._waiting.append((name, target))
        result: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
        return result | {"description": schema["description"]} if isinstance(schema.get("description"), str) else result

    def _target(self, pointer: Any) -> Any:
        target = self._document.at(pointer)
        # A mere alias is followed here, which also finds one that leads to itself.
        alias = isinstance(target, Mapping) and set(cast(Mapping[str, Any], target)) == {"$ref"}
        return self._document.followed(target, f"The schema {pointer!r}") if alias else cast(Any, target)

    def _named(self, pointer: str) -> str:
        last = pointer.rpartition("/")[2].replace("~1", "_").replace("~0", "_")
        wanted = re.sub(r"[^A-Za-z0-9_.-]", "_", last)[:60] or "schema"
        taken, name, number = set(self._names.values()), wanted, 2
        while name in taken:
            name, number = f"{wanted}_{number}", number + 1
        self._names[pointer] = name
        return name

    def _words(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        result = {word: schema[word] for word in _PLAIN if word in schema}
        for word in _ONE:
            if word in schema:
                result[word] = self.converted(schema[word], depth + 1)
        for word in _SEVERAL:
            if isinstance(branches := schema.get(word), Sequence) and branches:
                # Alternatives overlap more often than their authors think, and the server decides anyway.
                name = "anyOf" if word == "oneOf" and "anyOf" not in schema else word
                result[name] = [self.converted(branch, depth + 1) for branch in cast(Sequence[Any], branches)]
        self._named_parts(schema, result, depth)
        if self._document.nullable_keyword:
            _numeric_bounds(result)
        return result

    def _named_parts(self, schema: Mapping[str, Any], result: dict[str, Any], depth: int) -> None:
        hidden: set[str] = set()
        for word in _BY_NAME:
            if isinstance(schema.get(word), Mapping):
                parts = cast(Mapping[str, Any], schema[word])
                hidden.update(name for name, part in parts.items() if _read_only(part))
                result[word] = {
                    name: self.converted(part, depth + 1) for name, part in parts.items() if name not in hidden
                }
        if isinstance(needed := schema.get("required"), Sequence) and not isinstance(needed, str):
            result["required"] = [name for name in cast(Sequence[Any], needed) if name not in hidden]


def _read_only(schema: Any) -> bool:
    """Whether a property is only ever sent by the server."""
    return isinstance(schema, Mapping) and cast(Mapping[str, Any], schema).get("readOnly") is True


def _nullable(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    result = cast(dict[str, Any], schema)
    kind = result.get("type")
    if kind is None:
        return {"anyOf": [result, {"type": "null"}]} if result else result
    kinds = [kind] if isinstance(kind, str) else list(kind)
    result["type"] = kinds if "null" in kinds else [*kinds, "null"]
    if "enum" in result and None not in result["enum"]:
        result["enum"] = [*result["enum"], None]
    return result


def _numeric_bounds(schema: dict[str, Any]) -> None:
    """Version 3.0 says whether a bound is exclusive; JSON Schema says which one is."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(said := schema.get(exclusive), bool):
            del schema[exclusive]
            if said and bound in schema:
                schema[exclusive] = schema.pop(bound)
