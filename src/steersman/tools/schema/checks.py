"""Checks for JSON values, as functions that `validation` combines.

A check (`Node`) gets a value, its path and the list of problems. It returns the value, coerced if that loses nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from steersman.tools.text import format_value
from steersman.types.content import replace_lone_surrogates

ValuePath: TypeAlias = "tuple[ValuePath, str | int] | None"
"""The path of a value: the path of its container, and its key there. A linked list: most paths are never shown."""

Problems: TypeAlias = list[tuple[ValuePath, str | Callable[[], str]]]
"""What is wrong, and where. A text that takes a while to make is a function: most problems are never shown."""

MAX_PROBLEMS = 30
"""With so many problems, the rest of a value is not looked at: it may have any number of them."""

MAX_NAMED = 200
"""The most values, names or alternatives that a text names: a schema of others may have any number of them."""

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
    known = {freeze(value): value for value in allowed}

    def describe(value: Any) -> str:
        label = join_some(list(map(format_value, allowed[:MAX_NAMED])), len(allowed))
        return f"expected {label if len(allowed) == 1 else f'one of {label}'}, got {format_value(value)}"

    def check(value: Any, at: ValuePath, problems: Problems) -> Any:
        if (key := freeze(value)) in known:
            return accept_anything(known[key], at, problems)
        problems.append((at, partial(describe, value)))
        return value

    return check


def join_some(words: Sequence[str], count: int) -> str:
    """Join the first words of a list of `count`, and say how many more there are."""
    more = [f"and {count - MAX_NAMED:,} more"] if count > MAX_NAMED else []
    return ", ".join([*words[:MAX_NAMED], *more])


def freeze(value: Any) -> Hashable:
    """Return what is equal for equal JSON values, and can be looked up; true and 1 are different, 1 and 1.0 are not."""
    if isinstance(value, Mapping):
        return frozenset([(key, freeze(item)) for key, item in cast(Mapping[Any, Any], value).items()])
    if isinstance(value, list | tuple):
        return tuple(map(freeze, cast(Sequence[Any], value)))
    return (bool, value) if type(value) is bool else value


class ForeignSchema(dict[str, Any]):
    """A JSON Schema that a client or a third party wrote: its regular expressions are not run (ReDoS).

    One of a few bytes can take for ever on a text that its author also has a say in.
    """


def compile_string(schema: Mapping[str, Any], *, is_foreign: bool = False) -> Node:
    """Compile the check for a string; no other type is coerced to one."""
    tests = make_length_tests(schema, "Length", "characters")
    if not is_foreign and (pattern := compile_pattern(schema.get("pattern"))) is not None:
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
