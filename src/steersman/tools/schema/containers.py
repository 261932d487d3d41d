"""Checks for lists and objects, made from the checks of what is in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol, cast

import msgspec

from steersman.tools.schema.checks import (
    MAX_NAMED,
    MAX_PROBLEMS,
    Node,
    Problems,
    ValuePath,
    check_key,
    compile_pattern,
    freeze,
    join_some,
    make_length_tests,
    run_tests,
)
from steersman.tools.text import find_similar, format_value


class NodeCompiler(Protocol):
    """What the checks of lists and objects need from the compiler in `validation`."""

    is_foreign: bool

    def compile(self, schema: Any, *, coerce: bool) -> Node: ...
    def describe(self, schema: Any) -> str: ...


def compile_array(compiler: NodeCompiler, schema: Mapping[str, Any], *, coerce: bool) -> Node:
    """Compile the check for a list; JSON text of a list is coerced."""
    items = schema.get("items", True)
    positional: Any = schema.get("prefixItems", ())
    if isinstance(items, Sequence) and not isinstance(items, str):
        # Older drafts spell fixed positions this way.
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
                problems.append((at, f"expected a list, got {format_value(given)}"))
                return given
        result: list[Any] = []
        for index, item in enumerate(cast(Sequence[Any], value)):
            node = first[index] if index < len(first) else rest
            result.append(node(item, (at, index), problems))
            if len(problems) >= MAX_PROBLEMS:
                return result
        return run_tests(result, tests, at, problems) if tests else result

    return check


def compile_object(compiler: NodeCompiler, schema: Mapping[str, Any], *, coerce: bool) -> Node:
    """Compile the check for an object; JSON text of an object is coerced."""
    declared = schema.get("properties", {})
    if not isinstance(declared, Mapping):
        raise ValueError(f"'properties' is an object of schemas, got {format_value(declared)}.")
    declared = cast(Mapping[str, Any], declared)
    properties = {name: compiler.compile(item, coerce=coerce) for name, item in declared.items()}
    required = _read_required(schema)
    lenient = frozenset(properties).difference(required) if coerce else frozenset[str]()
    needed = frozenset(required)
    other = _compile_other_properties(compiler, schema, coerce, list(properties))
    tests = make_length_tests(schema, "Properties", "properties")
    plain = {name: kind for name, item in declared.items() if (kind := _find_plain_type(item)) is not None}

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        # It does not call itself with the parsed text: a function that refers to itself leaves a reference cycle.
        given: object = value
        items: dict[str, Any] | None = (  # pyright: ignore[reportUnknownVariableType]  # a cast would be a call
            given if isinstance(given, dict) else _parse_text_of_object(given, at, problems, coerce=coerce)
        )
        if items is None:
            return value
        result: dict[str, Any] = {}
        for key, item in items.items():
            # Nearly every argument is of a plain type, and needs no call to be checked.
            if type(item) is plain.get(key) and (type(item) is not str or item.isascii()):
                result[key] = item
                continue
            node = properties.get(key)
            if node is None:
                result[check_key(key, at, problems)] = other(key, item, at, problems)
            elif item is not None or key not in lenient or _accepts_null(node):
                result[key] = node(item, (at, key), problems)
            if len(problems) >= MAX_PROBLEMS:
                break
        if not items.keys() >= needed:
            missing = islice((name for name in required if name not in items), MAX_PROBLEMS)
            problems += [((at, name), partial(_describe_missing, compiler, declared.get(name))) for name in missing]
        return run_tests(result, tests, at, problems) if tests else result

    return check


def _describe_missing(compiler: NodeCompiler, schema: Any) -> str:
    return f"missing, {compiler.describe(schema)} is required"


def _parse_text_of_object(value: Any, at: ValuePath, problems: Problems, *, coerce: bool) -> dict[str, Any] | None:
    """Parse what is no object: JSON text of one if it may be coerced; anything else is a problem."""
    parsed = _parse_json(value, dict) if coerce else None
    if parsed is None:
        problems.append((at, f"expected an object, got {format_value(value)}"))
    return parsed


_PLAIN_TYPES = {"string": str, "integer": int, "boolean": bool}
_NOTES = frozenset(("type", "title", "description", "default", "examples"))


def _find_plain_type(schema: Any) -> type | None:
    """Return the Python type of the values of a schema that asks for nothing but a type."""
    if not isinstance(schema, Mapping) or not _NOTES.issuperset(cast(Mapping[str, Any], schema)):
        return None
    declared: object = cast(Mapping[str, Any], schema).get("type")
    return _PLAIN_TYPES.get(declared) if isinstance(declared, str) else None


_SAYING_NO_MORE = _NOTES | {"properties", "required", "additionalProperties", "$schema"}


def compile_quick_test(schema: Mapping[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """Return a test whether the whole check of an object would return an equal one: nothing is wrong or to coerce.

    It says so only of plain values, and of none where a schema asks for more than their types.
    """
    declared, required = schema.get("properties", {}), _read_required(schema)
    if schema.get("type") != "object" or not _SAYING_NO_MORE.issuperset(schema):
        return _refuse
    plain = {name: kind for name, item in declared.items() if (kind := _find_plain_type(item)) is not None}
    if not plain.keys() >= frozenset(required):
        return _refuse
    names = list(dict.fromkeys(required))
    kinds = [plain[name] for name in names]
    texts = [name for name in names if plain[name] is str]

    def fits(items: dict[str, Any]) -> bool:
        if [*map(type, map(items.get, names))] != kinds:
            return False
        for name in texts:
            if not items[name].isascii():
                return False
        return len(items) == len(names) or _are_plain(items, plain)

    return fits


def _refuse(_: dict[str, Any]) -> bool:
    return False


def _are_plain(items: dict[str, Any], plain: Mapping[str, type]) -> bool:
    return all(
        type(item) is plain.get(name) and (type(item) is not str or item.isascii()) for name, item in items.items()
    )


def _compile_other_properties(
    compiler: NodeCompiler, schema: Mapping[str, Any], coerce: bool, names: Sequence[str]
) -> Callable[[Any, Any, ValuePath, Problems], Any]:
    by_pattern: Mapping[str, Any] = schema.get("patternProperties", {})
    additional = schema.get("additionalProperties", True)
    if by_pattern and compiler.is_foreign:
        by_pattern, additional = dict[str, Any](), True  # which names they allow is not known
    rest = compiler.compile(additional, coerce=coerce)
    patterns = [
        (pattern, compiler.compile(item, coerce=coerce))
        for text, item in by_pattern.items()
        if (pattern := compile_pattern(text)) is not None
    ]

    def check(key: Any, item: Any, at: ValuePath, problems: Problems) -> Any:
        for pattern, node in patterns:
            if isinstance(key, str) and pattern.search(key):
                return node(item, (at, key), problems)
        if additional is False:
            problems.append(((at, key), partial(_suggest_name, key, names)))
            return item
        return rest(item, (at, key), problems)

    return check


def _suggest_name(key: Any, names: Sequence[str]) -> str:
    near = find_similar(key, names[:MAX_NAMED]) if isinstance(key, str) else []
    known = f"there are {join_some(names, len(names))}" if names else "none are taken"
    return f"there is no such parameter; {f'did you mean {near[0]!r}?' if near else known}"


def _read_required(schema: Mapping[str, Any]) -> Sequence[str]:
    required = schema.get("required", ())
    if isinstance(required, bool):
        return ()  # In the oldest drafts a property says itself whether it is required.
    if not isinstance(required, Sequence) or isinstance(required, str):
        raise ValueError(f"'required' is a list of names, got {format_value(required)}.")
    return cast(Sequence[str], required)


def _accepts_null(node: Node) -> bool:
    found: Problems = []
    node(None, None, found)
    return not found


def _parse_json(text: Any, kind: type[Any]) -> Any:
    """Parse JSON text of a list or an object; `None` for anything else."""
    if not isinstance(text, str):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return value if isinstance(value, kind) else None


def _are_all_different(items: Sequence[Any]) -> bool:
    return len(set(map(freeze, items))) == len(items)
