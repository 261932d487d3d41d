"""The checks for JSON objects and lists: their parts are checked by functions the compiler gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from steersman.tools.schema.checks import (
    Node,
    Problems,
    ValuePath,
    check_key,
    compile_pattern,
    make_length_tests,
    run_tests,
)
from steersman.tools.text import show


class NodeCompiler(Protocol):
    """What the checks of containers need from the compiler."""

    def compile(self, schema: Any, *, coerce: bool) -> Node: ...
    def describe(self, schema: Any) -> str: ...


def compile_array(compiler: NodeCompiler, schema: Mapping[str, Any], *, coerce: bool) -> Node:
    """A list, or text that spells one."""
    items = schema.get("items", True)
    positional: Any = schema.get("prefixItems", ())
    if isinstance(items, Sequence) and not isinstance(items, str):
        # The older spelling of fixed positions.
        positional, items = cast(Sequence[Any], items), schema.get("additionalItems", True)
    first = [compiler.compile(item, coerce=coerce) for item in positional]
    rest = compiler.compile(items, coerce=coerce)
    tests = make_length_tests(schema, "Items", "items")
    if schema.get("uniqueItems"):
        tests.append((_are_all_different, "different items"))

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if not isinstance(value, list | tuple):
            given, value = value, _parse_json(value, list) if coerce else None
            if value is None:
                problems.append((at, f"expected a list, got {show(given)}"))
                return given
        result: list[Any] = []
        for index, item in enumerate(cast(Sequence[Any], value)):
            node = first[index] if index < len(first) else rest
            result.append(node(item, (at, index), problems))
        return run_tests(result, tests, at, problems) if tests else result

    return check


def compile_object(compiler: NodeCompiler, schema: Mapping[str, Any], *, coerce: bool) -> Node:
    """An object, or text that spells one."""
    declared = schema.get("properties", {})
    if not isinstance(declared, Mapping):
        raise ValueError(f"'properties' is an object of schemas, got {show(declared)}.")
    declared = cast(Mapping[str, Any], declared)
    properties = {name: compiler.compile(item, coerce=coerce) for name, item in declared.items()}
    required = _read_required(schema)
    lenient = frozenset(properties).difference(required) if coerce else frozenset[str]()
    missing = [(name, f"missing, {compiler.describe(declared.get(name))} is required") for name in required]
    other = _compile_other_properties(compiler, schema, coerce, list(properties))
    tests = make_length_tests(schema, "Properties", "properties")

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if not isinstance(value, dict):
            given, value = value, _parse_json(value, dict) if coerce else None
            if value is None:
                problems.append((at, f"expected an object, got {show(given)}"))
                return given
        result: dict[str, Any] = {}
        items: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]  # a cast would be a call
        for key, item in items.items():
            node = properties.get(key)
            if node is None:
                result[check_key(key, at, problems)] = other(key, item, at, problems)
            elif item is not None or key not in lenient or _accepts_null(node):
                result[key] = node(item, (at, key), problems)
        for name, text in missing:
            if name not in value:
                problems.append(((at, name), text))
        return run_tests(result, tests, at, problems) if tests else result

    return check


def _compile_other_properties(
    compiler: NodeCompiler, schema: Mapping[str, Any], coerce: bool, names: Sequence[str]
) -> Callable[[Any, Any, ValuePath, Problems], Any]:
    additional = schema.get("additionalProperties", True)
    rest = compiler.compile(additional, coerce=coerce)
    patterns = [
        (pattern, compiler.compile(item, coerce=coerce))
        for text, item in schema.get("patternProperties", {}).items()
        if (pattern := compile_pattern(text)) is not None
    ]

    def check(key: Any, item: Any, at: ValuePath, problems: Problems) -> Any:
        for pattern, node in patterns:
            if isinstance(key, str) and pattern.search(key):
                return node(item, (at, key), problems)
        if additional is False:
            problems.append(((at, key), f"there is no such parameter; {_suggest_name(key, names)}"))
            return item
        return rest(item, (at, key), problems)

    return check


def _suggest_name(key: Any, names: Sequence[str]) -> str:
    if not names:
        return "none are taken"
    # Only a mistake pays for this import.
    from difflib import get_close_matches

    near = get_close_matches(key, names, 1) if isinstance(key, str) else []
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


def _read_required(schema: Mapping[str, Any]) -> Sequence[str]:
    required = schema.get("required", ())
    if isinstance(required, bool):
        return ()  # The oldest drafts marked the property itself.
    if not isinstance(required, Sequence) or isinstance(required, str):
        raise ValueError(f"'required' is a list of names, got {show(required)}.")
    return cast(Sequence[str], required)


def _accepts_null(node: Node) -> bool:
    found: Problems = []
    node(None, None, found)
    return not found


def _parse_json(text: Any, kind: type[Any]) -> Any:
    """The list or object that a text spells, or `None`."""
    if not isinstance(text, str):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return value if isinstance(value, kind) else None


def _are_all_different(items: Sequence[Any]) -> bool:
    try:
        return len({(type(item) is bool, item) for item in items}) == len(items)
    except TypeError:
        return all(item not in items[:index] for index, item in enumerate(items))
