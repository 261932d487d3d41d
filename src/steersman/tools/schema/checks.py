"""Checks for JSON values, as functions that `validation` combines.

A check (`Node`) gets a value, its path and the list of problems. It returns the value, coerced if that loses nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from steersman.tools.text import format_value
from steersman.types.content import replace_lone_surrogates

ValuePath: TypeAlias = "tuple[ValuePath, str | int] | None"
"""The path of a value: the path of its container, and its key there. A linked list: most paths are never shown."""

Problems: TypeAlias = list[tuple[ValuePath, str]]
Node: TypeAlias = Callable[[Any, ValuePath, Problems], Any]
Test: TypeAlias = tuple[Callable[[Any], bool], str]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MAX_EXACT_FLOAT = 2**53
_MAX_NUMBER_LENGTH = 1_000
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


def accept_anything(value: Any, at: ValuePath, problems: Problems) -> Any:
    """Accept any JSON value; return a new copy that the tool may change."""
    if type(value) is str:
        return replace_lone_surrogates(value)
    if type(value) is int or type(value) is bool or value is None:
        return value
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {check_key(key, at, problems): accept_anything(item, (at, key), problems) for key, item in items}
    if isinstance(value, list | tuple):
        return [accept_anything(item, (at, index), problems) for index, item in enumerate(cast(Sequence[Any], value))]
    if not isinstance(value, float):
        problems.append((at, f"expected a JSON value, got {format_value(value)}"))
    elif not math.isfinite(value):
        problems.append((at, f"expected a finite number, got {value!r}"))
    return value


def refuse_anything(value: Any, at: ValuePath, problems: Problems) -> Any:
    """Refuse every value."""
    problems.append((at, f"no value is allowed here, got {format_value(value)}"))
    return value


def compile_enum(allowed: Sequence[Any]) -> Node:
    """Compile the check for one of some values; true and 1 are different, 1 and 1.0 are equal."""
    try:
        known = {(type(value) is bool, value): value for value in allowed}
    except TypeError:
        known = None
    label = (
        format_value(allowed[0])
        if len(allowed) == 1
        else "one of " + ", ".join(format_value(value) for value in allowed)
    )

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        same_kind = type(value) is bool
        if known is None or not isinstance(value, Hashable):
            for candidate in allowed:
                if candidate == value and (type(candidate) is bool) == same_kind:
                    return accept_anything(value, at, problems)
        elif (same_kind, value) in known:
            return known[same_kind, value]
        problems.append((at, f"expected {label}, got {format_value(value)}"))
        return value

    return check


def compile_string(schema: Mapping[str, Any]) -> Node:
    """Compile the check for a string; no other type is coerced to one."""
    tests = make_length_tests(schema, "Length", "characters")
    if (pattern := compile_pattern(schema.get("pattern"))) is not None:
        tests.append((lambda value: pattern.search(value) is not None, f"text matching {schema['pattern']!r}"))

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if not isinstance(value, str):
            problems.append((at, f"expected a string, got {format_value(value)}"))
            return value
        if not value.isascii():
            value = replace_lone_surrogates(value)
        return run_tests(value, tests, at, problems) if tests else value

    return check


def compile_integer(schema: Mapping[str, Any], *, coerce: bool) -> Node:
    """Compile the check for an integer."""
    tests = _make_bound_tests(schema)

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if type(value) is not int:
            number = _parse_number(value) if coerce and isinstance(value, str) else value
            if type(number) is float and number.is_integer():
                # Text is exact and a float is not: beyond 2**53 the float may be another number than the text.
                number = int(number) if number is value or abs(number) < _MAX_EXACT_FLOAT else None
            if type(number) is not int:
                problems.append((at, f"expected an integer, got {format_value(value)}"))
                return value
            value = number
        return run_tests(value, tests, at, problems) if tests else value

    return check


def compile_number(schema: Mapping[str, Any], *, coerce: bool) -> Node:
    """Compile the check for a finite number."""
    tests = _make_bound_tests(schema)

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if type(value) is not float and type(value) is not int:
            number = _parse_number(value) if coerce and isinstance(value, str) else None
            if number is None:
                problems.append((at, f"expected a number, got {format_value(value)}"))
                return value
            value = number
        if type(value) is float and not math.isfinite(value):
            problems.append((at, f"expected a finite number, got {value!r}"))
            return value
        return run_tests(value, tests, at, problems) if tests else value

    return check


def compile_boolean(*, coerce: bool) -> Node:
    """Compile the check for a boolean."""

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if type(value) is bool:
            return value
        if coerce and isinstance(value, str) and value in _BOOLEANS:
            return _BOOLEANS[value]
        problems.append((at, f"expected true or false, got {format_value(value)}"))
        return value

    return check


def compile_null(*, coerce: bool) -> Node:
    """Compile the check for null."""

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if value is None or (coerce and value == "null"):
            return None
        problems.append((at, f"expected null, got {format_value(value)}"))
        return value

    return check


def check_key(key: Any, at: ValuePath, problems: Problems) -> str:
    """Check the name of a property, which has to be a string."""
    if not isinstance(key, str):
        problems.append((at, f"expected names that are strings, got {format_value(key)}"))
        return str(key)
    return key if key.isascii() else replace_lone_surrogates(key)


def _parse_number(text: str) -> int | float | None:
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= _MAX_NUMBER_LENGTH else None
    if match is None:
        return None
    if match.group(1) is None and match.group(2) is None:
        return int(match.group())
    number = float(match.group())
    return number if math.isfinite(number) else None


def compile_pattern(text: Any) -> re.Pattern[str] | None:
    """Compile a regular expression; `None` for one that Python cannot compile."""
    try:
        return None if text is None else re.compile(text)
    except re.error:
        # JSON Schema uses another regex dialect than Python; the tool has to check such a pattern itself.
        return None


def run_tests(value: Any, tests: Sequence[Test], at: ValuePath, problems: Problems) -> Any:
    """Return the value, and add a problem for each test it fails."""
    for fits, label in tests:
        if not fits(value):
            problems.append((at, f"expected {label}, got {format_value(value)}"))
    return value


def _make_bound_tests(schema: Mapping[str, Any]) -> list[Test]:
    tests: list[Test] = []
    if (low := _read_limit(schema, "minimum")) is not None:
        tests.append((lambda value: value >= low, f"at least {low}"))
    if (high := _read_limit(schema, "maximum")) is not None:
        tests.append((lambda value: value <= high, f"at most {high}"))
    if (floor := _read_limit(schema, "exclusiveMinimum")) is not None:
        tests.append((lambda value: value > floor, f"more than {floor}"))
    if (ceiling := _read_limit(schema, "exclusiveMaximum")) is not None:
        tests.append((lambda value: value < ceiling, f"less than {ceiling}"))
    if step := _read_limit(schema, "multipleOf"):
        tests.append((lambda value: _is_multiple(value, step), f"a multiple of {step}"))
    return tests


def make_length_tests(schema: Mapping[str, Any], kind: str, unit: str) -> list[Test]:
    """Make the tests for the minimum and maximum length of a value."""
    tests: list[Test] = []
    if low := _read_limit(schema, f"min{kind}"):
        tests.append((lambda value: len(value) >= low, f"at least {low} {unit}"))
    if (high := _read_limit(schema, f"max{kind}")) is not None:
        tests.append((lambda value: len(value) <= high, f"at most {high} {unit}"))
    return tests


def _read_limit(schema: Mapping[str, Any], word: str) -> int | float | None:
    value = schema.get(word)
    if value is None or isinstance(value, bool):
        return None  # In the oldest drafts a boolean says that a bound is exclusive.
    if not isinstance(value, int | float):
        raise ValueError(f"{word!r} is a number, got {format_value(value)}.")
    return value


def _is_multiple(value: int | float, step: int | float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return math.isclose(value / step, round(value / step), rel_tol=1e-9, abs_tol=1e-9)
    except OverflowError:
        return False


class NodeCompiler(Protocol):
    """What the checks of lists and objects need from the compiler in `validation`."""

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
    missing = [(name, f"missing, {compiler.describe(declared.get(name))} is required") for name in required]
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
        for name, text in missing:
            if name not in items:
                problems.append(((at, name), text))
        return run_tests(result, tests, at, problems) if tests else result

    return check


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
    from difflib import get_close_matches  # a millisecond at import, and only errors need it

    if not names:
        return "none are taken"
    near = get_close_matches(key, names, 1) if isinstance(key, str) else []
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


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
    try:
        return len({(type(item) is bool, item) for item in items}) == len(items)
    except TypeError:
        return all(item not in items[:index] for index, item in enumerate(items))
