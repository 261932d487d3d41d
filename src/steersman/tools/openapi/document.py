"""OpenAPI 3 descriptions: loading them from JSON or YAML, following their references, converting their schemas."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import msgspec

from steersman.tools.text import format_value
from steersman.types.errors import MissingExtra

Spec: TypeAlias = Mapping[str, Any] | str | bytes | os.PathLike[str]

_MAX_REFERENCE_CHAIN = 50
_MAX_NAME_LENGTH = 64
# The YAML scalars that are not text, in the order in which they are tried.
_PLAIN_VALUES = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "-?(?:0|[1-9][0-9]*)",
    "float": r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?",
    "merge": "<<",
}

# YAML aliases can make a small description huge once it is expanded.
_MAX_PARTS = 50_000
_MAX_DEPTH = 60
# All operations together: a small description may have hundreds that share one large schema, and each tool has its own.
_MAX_ALL_PARTS = 200_000
_PLAIN = (
    *("type", "format", "title", "description", "enum", "const", "default", "pattern", "uniqueItems", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties"),
)
_ONE = ("items", "additionalProperties", "not")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_BY_NAME = ("properties", "patternProperties")


class Document:
    """A description, whose references are resolved inside it."""

    __slots__ = ("_parts", "nullable_keyword", "root")

    def __init__(self, root: Mapping[str, Any]) -> None:
        version = root.get("openapi")
        if not isinstance(version, str) or not version.startswith("3."):
            given = f"swagger {format_value(root['swagger'])}" if "swagger" in root else format_value(version)
            raise ValueError(f"An OpenAPI description of version 3 is needed ('openapi': '3.1.0'), got {given}.")
        self.root = root
        self._parts = 0
        # Version 3.0 has its own dialect of JSON Schema.
        self.nullable_keyword = version.startswith("3.0")

    def count_parts(self, count: int) -> None:
        """Count parts of schemas that are converted; raise `ValueError` if there are too many."""
        self._parts += count
        if self._parts > _MAX_ALL_PARTS:
            raise ValueError(
                f"The schemas of all operations together have more than {_MAX_ALL_PARTS:,} parts; choose some with "
                "'operations'."
            )

    def resolve(self, pointer: Any) -> Any:
        """Return the target of a reference."""
        if not isinstance(pointer, str) or not pointer.startswith("#/"):
            raise ValueError(
                "Only references inside the description are followed ('#/components/...'), "
                f"got {format_value(pointer)}."
            )
        self.count_parts(len(pointer) // _MAX_NAME_LENGTH)
        found: Any = self.root
        for step in unquote(pointer[2:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                found = cast(Any, found[name] if isinstance(found, Mapping) else _as_list(found)[int(name)])
            except (LookupError, ValueError):
                raise ValueError(f"The description refers to {pointer!r}, which it does not hold.") from None
        return found

    def follow(self, value: Any, what: str) -> Mapping[str, Any]:
        """Return an object, or the object that its reference leads to."""
        for _ in range(_MAX_REFERENCE_CHAIN):
            if not isinstance(value, Mapping):
                raise ValueError(f"{what} is an object, got {format_value(value)}.")
            if "$ref" not in value:
                return cast(Mapping[str, Any], value)
            value = self.resolve(cast(Any, value["$ref"]))
        raise ValueError(f"{what} is a reference that leads to itself.")


class UniqueNames:
    """Names of bounded length, each given once: another one of the same name gets a number."""

    __slots__ = ("_longest", "_numbers", "_taken")

    def __init__(self, longest: int, *taken: str) -> None:
        self._longest = longest
        self._taken = set(taken)
        # By the beginning that all numbered forms of a name have: a description may have thousands of one name.
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def add(self, wanted: str) -> str:
        """Take a name, or one with a number where it is taken; return it."""
        name, begun = wanted[: self._longest], wanted[: self._longest - 8]
        number = self._numbers.get(begun, 1)
        while name in self._taken:
            number += 1
            ending = f"_{number}"
            name = wanted[: self._longest - len(ending)] + ending
        self._numbers[begun] = number
        self._taken.add(name)
        return name


def load_document(spec: Spec) -> Document:
    """Load a description from a mapping, from JSON or YAML text, or from a file."""
    if isinstance(spec, Mapping):
        return Document(spec)
    if isinstance(spec, bytes):
        text = spec.decode("utf-8-sig")
    elif isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith("{")):
        text = spec.removeprefix("\ufeff")
    else:
        text = _read_file(spec)
    root = _parse(text)
    if not isinstance(root, Mapping):
        raise ValueError(f"An OpenAPI description is an object, got {format_value(root)}.")
    return Document(cast(Mapping[str, Any], root))


def _read_file(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"An OpenAPI description is a mapping, JSON or YAML text, or a path, got {format_value(path)}.")
    if isinstance(path, str) and path.startswith(("http://", "https://")):
        raise ValueError(
            f"A description is not downloaded here; get {format_value(path)} first and give its text or its path."
        )
    return Path(cast(str, path)).read_text(encoding="utf-8-sig")


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if text.lstrip().startswith("{"):
            raise ValueError(f"The OpenAPI description is not JSON: {error}.") from error
    return _parse_yaml(text)


def _parse_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(
            "The OpenAPI description is not JSON, and reading YAML needs PyYAML: pip install 'steersman[yaml]'."
        ) from error

    class Loader(yaml.SafeLoader):
        """Reads scalars as JSON does: `no` is text and not false, a date is text, and every key is text."""

        # A dict of its own, so that SafeLoader's stays unchanged.
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # the name and the form are PyYAML's

        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            # Each level of keys `<<` can hold several times all of the level below.
            for other in _list_merged(node):
                self.flatten_mapping(other)
                self.merged += len(other.value)
                if self.merged > _MAX_ALL_PARTS:
                    raise ValueError(f"its keys '<<' merge more than {_MAX_ALL_PARTS:,} values")
            super().flatten_mapping(node)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            made = super().construct_mapping(node, deep=deep)
            return {key if isinstance(key, str) else msgspec.json.encode(key).decode(): made[key] for key in made}

    add = cast(Callable[[str, re.Pattern[str], None], None], Loader.add_implicit_resolver)
    for tag, pattern in _PLAIN_VALUES.items():
        add(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), None)
    try:
        return yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"The OpenAPI description is neither JSON nor YAML: {error}.") from error


def _list_merged(node: Any) -> list[Any]:
    """List the objects that a YAML object merges into itself."""
    given = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
    listed = [other for value in given for other in (value.value if value.id == "sequence" else [value])]
    return [other for other in listed if other.id == "mapping"]


def _as_list(value: Any) -> Sequence[Any]:
    return cast(Sequence[Any], value) if isinstance(value, list | tuple) else ()


class SchemaConverter:
    """Converts the schemas of one operation to JSON Schema; `build_definitions()` returns what they refer to."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._unique = UniqueNames(_MAX_NAME_LENGTH)
        self._waiting: list[tuple[str, Any]] = []
        self._parts = 0

    def convert(self, schema: Any, depth: int = 0) -> Any:
        """Convert a schema of the description to JSON Schema."""
        self._parts += 1
        self._document.count_parts(1 + _count_items(schema))
        if self._parts > _MAX_PARTS or depth > _MAX_DEPTH:
            raise ValueError("A schema of the description is too large, or contains itself without a reference.")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise ValueError(f"A schema is an object or a boolean, got {format_value(schema)}.")
        given = cast(Mapping[str, Any], schema)
        result = self._convert_reference(given) if "$ref" in given else self._convert_keywords(given, depth)
        return _make_nullable(result) if given.get("nullable") is True else result

    def build_definitions(self) -> dict[str, Any]:
        """Return the definitions that the converted schemas refer to, each once."""
        definitions: dict[str, Any] = {}
        while self._waiting:
            name, schema = self._waiting.pop()
            definitions[name] = self.convert(schema)
        return dict(sorted(definitions.items()))

    def _convert_reference(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        pointer = schema["$ref"]
        name = self._names.get(pointer) if isinstance(pointer, str) else None
        if name is None:
            target = self._resolve_target(pointer)
            name = self._choose_name(pointer)
            self._waiting.append((name, target))
        result: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
        return result | {"description": schema["description"]} if isinstance(schema.get("description"), str) else result

    def _resolve_target(self, pointer: Any) -> Any:
        target = self._document.resolve(pointer)
        # An alias is followed here, which also finds one that leads to itself.
        alias = isinstance(target, Mapping) and set(cast(Mapping[str, Any], target)) == {"$ref"}
        return self._document.follow(target, f"The schema {pointer!r}") if alias else cast(Any, target)

    def _choose_name(self, pointer: str) -> str:
        last = pointer.rpartition("/")[2].replace("~1", "_").replace("~0", "_")
        name = self._unique.add(re.sub(r"[^A-Za-z0-9_.-]", "_", last)[:60] or "schema")
        self._names[pointer] = name
        return name

    def _convert_keywords(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        result = {word: schema[word] for word in _PLAIN if word in schema}
        for word in _ONE:
            if word in schema:
                result[word] = self.convert(schema[word], depth + 1)
        for word in _SEVERAL:
            if isinstance(branches := schema.get(word), Sequence) and branches:
                # Alternatives often overlap against the author's intention, and the server checks them anyway.
                name = "anyOf" if word == "oneOf" and "anyOf" not in schema else word
                result[name] = [self.convert(branch, depth + 1) for branch in cast(Sequence[Any], branches)]
        self._convert_properties(schema, result, depth)
        if self._document.nullable_keyword:
            _convert_exclusive_bounds(result)
        return result

    def _convert_properties(self, schema: Mapping[str, Any], result: dict[str, Any], depth: int) -> None:
        hidden: set[str] = set()
        for word in _BY_NAME:
            if isinstance(schema.get(word), Mapping):
                parts = cast(Mapping[str, Any], schema[word])
                hidden.update(name for name, part in parts.items() if _is_read_only(part))
                result[word] = {
                    name: self.convert(part, depth + 1) for name, part in parts.items() if name not in hidden
                }
        if isinstance(needed := schema.get("required"), Sequence) and not isinstance(needed, str):
            result["required"] = [name for name in cast(Sequence[Any], needed) if name not in hidden]


def _count_items(schema: Any) -> int:
    """Count the items of the lists and objects that are copied from a schema, up to a limit: YAML may have circles."""
    given: Mapping[str, Any] = cast(Any, schema) if isinstance(schema, Mapping) else {}
    waiting, count = [given[word] for word in (*_PLAIN, "required") if word in given], 0
    while waiting and count <= _MAX_ALL_PARTS:
        value = waiting.pop()
        if isinstance(value, Mapping | list | tuple):
            items = cast(Mapping[str, Any], value).values() if isinstance(value, Mapping) else cast(list[Any], value)
            count += len(items)
            waiting += items
    return count


def _is_read_only(schema: Any) -> bool:
    """Whether only the server sends a property."""
    return isinstance(schema, Mapping) and cast(Mapping[str, Any], schema).get("readOnly") is True


def _make_nullable(schema: Any) -> Any:
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


def _convert_exclusive_bounds(schema: dict[str, Any]) -> None:
    """Convert exclusive bounds: booleans in version 3.0, numbers in JSON Schema."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(is_exclusive := schema.get(exclusive), bool):
            del schema[exclusive]
            if is_exclusive and bound in schema:
                schema[exclusive] = schema.pop(bound)
