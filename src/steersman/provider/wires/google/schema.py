"""Converts JSON Schemas to the keywords that Gemini supports, without losing meaning.

Keywords with an equivalent are rewritten (`const` becomes `enum`, an exclusive bound of integers an inclusive one). All
other unsupported keywords go into the description, where the model reads them. References point to `$defs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor
from typing import Any, TypeAlias, cast

import msgspec

from steersman.provider.wires.protocol import encode_json

Schema: TypeAlias = dict[str, Any]

READ = frozenset(
    (
        "$anchor",
        "$defs",
        "$id",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "oneOf",
        "prefixItems",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    )
)
"""The JSON Schema keywords that Gemini documents; it ignores others."""

_SILENT = frozenset(("$comment", "$defs", "$schema", "$vocabulary", "definitions"))
_OF_TYPE = {
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "additionalProperties", "required", "propertyOrdering"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "string": ("format",),
}
# The most bytes of definitions that are written into `allOf`: one may hold two of another, and so on.
_MOST_MERGED = 200_000
_BOUNDS = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))


def convert_schema(schema: Mapping[str, Any], rename: Callable[[str], str] = str) -> Schema:
    """Convert a schema; `rename` maps property names to legal ones."""
    return _Conversion(schema, rename).convert_root()


class _Conversion:
    """The conversion of one schema; definitions are converted when something refers to them."""

    def __init__(self, root: Mapping[str, Any], rename: Callable[[str], str]) -> None:
        self._root = root
        self._rename = rename
        self._names: dict[str, str] = {}
        self._defs: dict[str, Schema] = {}
        self._inlined: list[str] = []
        self._room = _MOST_MERGED

    def convert_root(self) -> Schema:
        root = self._root
        target = self._resolve(root["$ref"]) if isinstance(root.get("$ref"), str) else None
        if isinstance(target, Mapping):
            root = {**cast(Schema, target), **{key: value for key, value in root.items() if key != "$ref"}}
        converted = self.convert(root)
        if self._defs:
            converted["$defs"] = self._defs
        return converted

    def convert(self, schema: Any) -> Schema:
        """Convert one node; `true`, and any value that is not a schema, becomes `{}`."""
        if schema is False:
            return {"description": "No value is allowed here."}
        if not isinstance(schema, Mapping):
            return {}
        node = dict(cast(Mapping[str, Any], schema))
        before = len(self._inlined)
        self._merge_all_of(node)
        if isinstance(node.get("$ref"), str):
            return self._convert_reference(node)
        converted = self._convert_node(node)
        del self._inlined[before:]
        return converted

    def _convert_node(self, node: Schema) -> Schema:
        unsupported: Schema = {}
        _convert_tuple_items(node)
        _convert_constant(node)
        _convert_enumeration(node, unsupported)
        _convert_bounds(node)
        self._convert_children(node)
        out: Schema = {}
        for key, value in node.items():
            if key in READ:
                out[key] = value
            elif key not in _SILENT:
                unsupported[key] = value
        out.pop("$defs", None)
        return _add_description(_split_types(out), unsupported)

    def _convert_reference(self, node: Schema) -> Schema:
        """Convert a reference: Gemini takes nothing beside `$ref`, so the rest of the node wraps it with `anyOf`."""
        reference = node.pop("$ref")
        name = self._add_definition(reference)
        given = dict(node)
        beside = self.convert(node)
        if name is None:
            return _add_description(beside, {"$ref": reference})
        pointer = {"$ref": f"#/$defs/{name}"}
        if not beside:
            return pointer
        if "anyOf" in beside:
            # In words, as it was given: words about what was converted would hold more words, each twice as long.
            words = {key: given.pop(key) for key in ("title", "description") if key in given}
            return _add_description({**words, "anyOf": [pointer]}, given)
        return {**beside, "anyOf": [pointer]}

    def _add_definition(self, reference: str) -> str | None:
        if reference in self._names:
            return self._names[reference]
        target = self._resolve(reference)
        if target is None:
            return None
        last = reference.rpartition("/")[2]
        wanted = "".join(char if char.isalnum() and char.isascii() else "_" for char in last) or "root"
        name = wanted
        number = 1
        while name in self._defs:
            number += 1
            name = f"{wanted}_{number}"
        self._names[reference] = name
        self._defs[name] = {}
        self._defs[name].update(self.convert(target))
        return name

    def _resolve(self, reference: str) -> Any:
        """Return the target of a reference inside this schema, or `None`."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        found: Any = self._root
        for part in reference[2:].split("/") if reference != "#" else ():
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = cast(Mapping[str, Any], found)[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(cast(list[Any], found)):
                found = cast(list[Any], found)[int(key)]
            else:
                return None
        return found

    def _convert_children(self, node: Schema) -> None:
        for key in ("anyOf", "oneOf", "prefixItems"):
            if isinstance(node.get(key), Sequence):
                node[key] = [self.convert(item) for item in node[key]]
        if isinstance(node.get("properties"), Mapping):
            node["properties"] = {self._rename(name): self.convert(item) for name, item in node["properties"].items()}
        for key in ("required", "propertyOrdering"):
            if isinstance(node.get(key), Sequence):
                node[key] = [self._rename(name) for name in node[key]]
        if "items" in node:
            node["items"] = self.convert(node["items"])
        if isinstance(node.get("additionalProperties"), Mapping):
            node["additionalProperties"] = self.convert(node["additionalProperties"])

    def _merge_all_of(self, node: Schema) -> None:
        """Merge `allOf` into the node, unless its schemas disagree."""
        parts: Any = node.get("allOf")
        if not isinstance(parts, list) or "$ref" in node:
            return
        several = cast(list[Any], parts)
        merged = {key: value for key, value in node.items() if key != "allOf"}
        alone = len(several) == 1 and isinstance(several[0], Mapping)
        inlined: list[str] = []
        for part in several:
            found = dict(cast(Mapping[str, Any], part)) if alone else self._flatten(part, inlined)
            if found is None or not _merge(merged, found):
                return
        self._inlined += inlined
        node.clear()
        node.update(merged)

    def _flatten(self, part: Any, inlined: list[str]) -> Schema | None:
        """Return a part of `allOf` with its reference resolved; `None` if it is recursive, or there is no more room."""
        if not isinstance(part, Mapping):
            return None
        given = cast(Mapping[str, Any], part)
        reference = given.get("$ref")
        if not isinstance(reference, str):
            return dict(given)
        if reference in inlined or reference in self._inlined:
            return None
        found = self._resolve(reference)
        self._room -= len(encode_json(found)) if self._room > 0 else 0
        if self._room <= 0:
            return None
        inlined.append(reference)
        target = self._flatten(found, inlined)
        beside = {key: value for key, value in given.items() if key != "$ref"}
        return target if target is not None and _merge(target, beside) else None


def _merge(into: Schema, more: Mapping[str, Any]) -> bool:
    """Merge one schema into another; returns `False` if they disagree."""
    for key, value in more.items():
        if key not in into or into[key] == value or key in ("description", "title", *_SILENT):
            into.setdefault(key, value)
        elif key == "properties":
            known = into[key]
            if any(name in known and known[name] != item for name, item in value.items()):
                return False
            into[key] = {**known, **value}
        elif key == "required":
            into[key] = [*into[key], *(name for name in value if name not in into[key])]
        else:
            return False
    return True


def _convert_tuple_items(node: Schema) -> None:
    """Rewrite a list of `items`, the older form of a tuple, to `prefixItems`."""
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")


def _convert_constant(node: Schema) -> None:
    if "const" not in node or "enum" in node:
        return
    if node["const"] is None:
        node["type"] = "null"
        del node["const"]
    elif _is_plain(node["const"]):
        node["enum"] = [node.pop("const")]


def _convert_enumeration(node: Schema, unsupported: Schema) -> None:
    """Keep an enum of strings and numbers; one with `null` becomes `anyOf`, any other goes into the description."""
    values = node.get("enum")
    if not isinstance(values, Sequence):
        return
    plain = [value for value in cast(Sequence[Any], values) if _is_plain(value)]
    rest = [value for value in cast(Sequence[Any], values) if not _is_plain(value)]
    if not rest:
        return
    if rest == [None] and plain and "anyOf" not in node:
        choice: Schema = {"enum": plain}
        kind = node.pop("type", None)
        kinds = [
            name for name in (cast(list[str], kind) if isinstance(kind, list) else [kind]) if name not in (None, "null")
        ]
        if kinds:
            choice["type"] = kinds[0] if len(kinds) == 1 else kinds
        node["anyOf"] = [choice, {"type": "null"}]
    else:
        unsupported["enum"] = list(cast(Sequence[Any], values))
    del node["enum"]


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _convert_bounds(node: Schema) -> None:
    """Rewrite an exclusive bound of an integer to an inclusive one."""
    if node.get("type") != "integer":
        return
    for exclusive, inclusive, step in _BOUNDS:
        bound: Any = node.get(exclusive)
        if bound is True and _is_plain(node.get(inclusive)):  # the older form: a flag beside the bound
            node[inclusive] += step
        elif _is_plain(bound):
            nearest = floor(bound) + 1 if step > 0 else ceil(bound) - 1
            other: Any = node.get(inclusive, nearest)
            node[inclusive] = max(nearest, other) if step > 0 else min(nearest, other)
        elif bound is not False:
            continue
        del node[exclusive]


def _split_types(node: Schema) -> Schema:
    """Split several types into `anyOf`; one type and `null` stay as they are."""
    kinds = node.get("type")
    if not isinstance(kinds, list):
        return node
    names = cast(list[str], kinds)
    solid = [name for name in names if name != "null"]
    if len(solid) <= 1 or "anyOf" in node:
        return node
    out = {key: value for key, value in node.items() if key != "type"}
    choices: list[Schema] = []
    for name in names:
        own = {key: node[key] for key in _OF_TYPE.get(name, ()) if key in node}
        choices.append({"type": name, **own})
        for key in own:
            out.pop(key, None)
    return {**out, "anyOf": choices}


def _add_description(node: Schema, unsupported: Mapping[str, Any]) -> Schema:
    """Add the unsupported keywords to the description of the node."""
    if not unsupported:
        return node
    words = f"JSON Schema: {msgspec.json.encode(unsupported).decode()}"
    said = node.get("description")
    return {**node, "description": f"{said}\n{words}" if isinstance(said, str) and said else words}
