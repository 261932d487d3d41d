from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.tools.schema.checks import ForeignSchema
from steersman.tools.schema.containers import compile_quick_test
from steersman.tools.schema.validation import InvalidArguments, compile_schema
from steersman.types.errors import ToolError
from steersman.types.frozen import FrozenDict, freeze

SCALARS = ["null", "boolean", "integer", "number", "string"]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def problem(schema: dict[str, Any] | bool, value: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        compile_schema(schema)(value)
    return str(caught.value)


@each_row(
    ("kind", "given_", "expected"),
    [
        ("integer", "42", 42),
        ("integer", " -7 ", -7),
        ("integer", 3.0, 3),
        ("integer", "3.0", 3),
        ("integer", "1e3", 1000),
        ("integer", str(2**70), 2**70),
        ("number", "42", 42),
        ("number", "-0.5", -0.5),
        ("number", "1e-3", 0.001),
        ("number", 3, 3),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("null", "null", None),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("array", '["a", 1]', ["a", 1]),
    ],
)
def test_what_loses_nothing_is_mended(kind: str, given_: Any, expected: Any) -> None:
    """loop.md D3: lossless coercion, such as "42" for an integer."""
    result = compile_schema({"type": kind})(given_)
    assert (result, type(result)) == (expected, type(expected))


@each_row(
    ("kind", "given_", "expected"),
    [
        ("integer", "x", "expected an integer, got 'x'"),
        ("integer", 1.5, "expected an integer, got 1.5"),
        ("integer", "1.5", "expected an integer, got '1.5'"),
        ("integer", True, "expected an integer, got true"),
        ("integer", None, "expected an integer, got null"),
        ("integer", "007", "expected an integer, got '007'"),
        ("integer", "+5", "expected an integer, got '+5'"),
        ("integer", "", "expected an integer, got ''"),
        ("integer", "12345678901234567890.0", "expected an integer, got '12345678901234567890.0'"),
        ("integer", [1], "expected an integer, got [1]"),
        ("number", "1e999", "expected a number, got '1e999'"),
        ("number", "nan", "expected a number, got 'nan'"),
        ("number", False, "expected a number, got false"),
        ("boolean", 1, "expected true or false, got 1"),
        ("boolean", "yes", "expected true or false, got 'yes'"),
        ("string", 42, "expected a string, got 42"),
        ("string", None, "expected a string, got null"),
        ("null", 0, "expected null, got 0"),
        ("object", [], "expected an object, got []"),
        ("object", "[]", "expected an object, got '[]'"),
        ("object", "{", "expected an object, got '{'"),
        ("array", {}, "expected a list, got {}"),
        ("array", "a,b", "expected a list, got 'a,b'"),
    ],
)
def test_what_would_lose_something_is_refused_with_the_value(kind: str, given_: Any, expected: str) -> None:
    assert problem({"type": kind}, given_) == f"arguments: {expected}"


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]", "42", "true", "null", '"quoted"'])
def test_a_string_that_looks_like_json_stays_a_string(text: str) -> None:
    """failures.md C8"""
    assert compile_schema({"properties": {"text": {"type": "string"}}})({"text": text}) == {"text": text}


def test_an_object_inside_an_object_may_come_as_text() -> None:
    """failures.md C8: the double-encoded object is opened where the schema wants one, and checked like any other."""
    check = compile_schema(
        {"type": "object", "properties": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}}}}
    )
    assert check({"point": '{"x": "3"}'}) == {"point": {"x": 3}}
    with pytest.raises(InvalidArguments, match=r"^arguments\.point\.x: expected an integer, got 'far'$"):
        check({"point": '{"x": "far"}'})


@each_row("number", [math.nan, math.inf, -math.inf])
@each_row("schema", [{"type": "number"}, {}, {"type": ["number", "null"]}])
def test_numbers_that_json_does_not_have_are_refused(schema: dict[str, Any], number: float) -> None:
    """failures.md C12: NaN rejected."""
    assert problem(schema, number).startswith("arguments: expected ")


def test_a_number_of_many_digits_is_refused_not_fatal() -> None:
    """failures.md C12"""
    assert problem({"type": "integer"}, "9" * 5000).startswith("arguments: expected an integer, got '999")
    assert problem({"type": "string"}, 10**5000) == "arguments: expected a string, got a int too large to show"


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"$ref": "#/$defs/n", "$defs": {"n": {"items": {}}}}])
def test_deep_nesting_is_refused_not_fatal(schema: dict[str, Any]) -> None:
    """failures.md C12"""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert problem(schema, deep) == "arguments: nested too deeply; send a flatter value"
    assert problem({"type": "array"}, "[" * 100_000).startswith("arguments: expected a list, got '[[[")
    while deep:  # Taken apart by hand: the collector's recursion is not what is tested.
        deep = deep[0]


@pytest.mark.parametrize("schema", [{}, {"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}])
def test_lone_surrogates_are_replaced_and_halves_joined(schema: dict[str, Any]) -> None:
    """failures.md C12"""
    check = compile_schema(schema)
    assert [check("a\ud83d"), check("\ud83d\ude42"), check("é")] == ["a\ufffd", "🙂", "é"]


def test_every_problem_is_listed_with_its_place() -> None:
    """loop.md D3: an error the model can act on."""
    schema = {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "path": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"odd key": {"type": "boolean"}}}},
        },
        "required": ["path", "count"],
        "additionalProperties": False,
    }
    text = problem(schema, {"count": "x", "pth": "a", "lines": [{}, {"odd key": 7}]})
    assert text.splitlines() == [
        "arguments.count: expected an integer, got 'x'",
        "arguments.pth: there is no such parameter; did you mean 'path'?",
        "arguments.lines[1]['odd key']: expected true or false, got 7",
        "arguments.path: missing, a string is required",
    ]


def test_a_long_list_of_problems_is_cut() -> None:
    lines = problem({"type": "array", "items": {"type": "integer"}}, ["x"] * 25).splitlines()
    assert (len(lines), lines[-1]) == (11, "and 15 more")


def test_a_long_value_is_shown_short() -> None:
    assert len(problem({"type": "integer"}, "x" * 1_000_000)) < 150


CONSTRAINTS: list[tuple[Any, ...]] = [
    ({"type": "integer", "minimum": 1}, [1, "2"], 0, "expected at least 1, got 0"),
    ({"type": "integer", "maximum": 9}, [9], 10, "expected at most 9, got 10"),
    ({"type": "number", "exclusiveMinimum": 0}, [0.1], 0, "expected more than 0, got 0"),
    ({"type": "number", "exclusiveMaximum": 1}, [0.9], 1, "expected less than 1, got 1"),
    ({"type": "number", "multipleOf": 0.1}, [0.3, 2], 0.25, "expected a multiple of 0.1, got 0.25"),
    ({"type": "integer", "multipleOf": 5}, [10, 0], 7, "expected a multiple of 5, got 7"),
    ({"type": "string", "minLength": 2}, ["ab"], "a", "expected at least 2 characters, got 'a'"),
    ({"type": "string", "maxLength": 2}, ["", "ab"], "abc", "expected at most 2 characters, got 'abc'"),
    ({"type": "string", "pattern": "^a"}, ["ab"], "b", "expected text matching '^a', got 'b'"),
    ({"type": "array", "minItems": 1}, [[1]], [], "expected at least 1 items, got []"),
    ({"type": "array", "maxItems": 1}, [[], [1]], [1, 2], "expected at most 1 items, got [1, 2]"),
    ({"type": "array", "uniqueItems": True}, [[1, True], [{}]], [1, 1.0], "expected different items, got [1, 1.0]"),
    ({"type": "array", "uniqueItems": True}, [[[1], [2]]], [[1], [1]], "expected different items, got [[1], [1]]"),
    ({"type": "object", "minProperties": 1}, [{"a": 1}], {}, "expected at least 1 properties, got {}"),
    ({"type": "object", "maxProperties": 0}, [{}], {"a": 1}, "expected at most 0 properties, got {'a': 1}"),
    ({"enum": ["a", 1, None]}, ["a", 1, None, 1.0], True, "expected one of 'a', 1, null, got true"),
    ({"enum": [[1], {"a": 1}]}, [[1], {"a": 1}], [2], "expected one of [1], {'a': 1}, got [2]"),
    ({"type": "integer", "enum": [1, 2]}, ["2"], 3, "expected one of 1, 2, got 3"),
    ({"const": "fixed"}, ["fixed"], "other", "expected 'fixed', got 'other'"),
    ({"not": {"type": "string"}}, [1, None], "a", "this value is not allowed here, got 'a'"),
    (False, [], 1, "no value is allowed here, got 1"),
    ({"type": ["integer", "null"]}, [1, None, "3", "null"], "x", "expected an integer or null, got 'x'"),
    ({"allOf": [{"type": "integer"}, {"minimum": 3, "type": "integer"}]}, ["4"], 2, "expected at least 3, got 2"),
    (
        {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        [1, False, "true"],
        "x",
        "expected an integer or true or false, got 'x'",
    ),
]


@each_row(("schema", "good", "bad", "expected"), CONSTRAINTS)
def test_constraints_hold(schema: dict[str, Any] | bool, good: list[Any], bad: Any, expected: str) -> None:
    for value in good:
        compile_schema(schema)(value)
    assert problem(schema, bad) == f"arguments: {expected}"


def test_a_union_takes_a_value_as_it_is_before_it_mends_one() -> None:
    check = compile_schema({"anyOf": [{"type": "integer"}, {"type": "string"}]})
    assert [check("42"), check(42)] == ["42", 42]


def test_a_union_reports_what_is_wrong_inside_the_branch_that_was_meant() -> None:
    schema = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]}
    assert problem(schema, {"n": "x"}) == "arguments.n: expected an integer, got 'x'"


def test_one_of_takes_exactly_one() -> None:
    check = compile_schema({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 10}]})
    assert [check(3), check(10.5)] == [3, 10.5]
    with pytest.raises(InvalidArguments, match="fits more than one of the alternatives"):
        check(11)


def test_lists_with_positions_check_each_position() -> None:
    schema = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}
    assert compile_schema(schema)(["a", "2"]) == ["a", 2]
    assert problem(schema, ["a", 2, 3]) == "arguments[2]: no value is allowed here, got 3"
    older = {"items": [{"type": "string"}], "additionalItems": {"type": "boolean"}}
    assert problem(older, ["a", 2]) == "arguments[1]: expected true or false, got 2"


def test_other_properties_follow_their_schema() -> None:
    schema = {
        "type": "object",
        "patternProperties": {"^n_": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    }
    assert compile_schema(schema)({"n_a": "1", "b": "true"}) == {"n_a": 1, "b": True}
    assert problem(schema, {"n_a": 1, "b": 2}) == "arguments.b: expected true or false, got 2"


def test_regular_expressions_of_others_are_not_run() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^(a+)+$", "maxLength": 3}},
        "patternProperties": {"^n_": {"type": "integer"}},
        "additionalProperties": False,
    }
    check = compile_schema(ForeignSchema(schema))
    assert check({"a": "aa!", "n_a": "x"}) == {"a": "aa!", "n_a": "x"}
    assert "at most 3 characters" in problem(ForeignSchema(schema), {"a": "aaa!"})
    assert "text matching" in problem(schema, {"a": "aa!"})


def test_null_for_something_optional_counts_as_left_out() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}, "c": {"type": "integer"}},
        "required": ["c"],
    }
    assert compile_schema(schema)({"a": None, "b": None, "c": 1}) == {"b": None, "c": 1}
    assert problem(schema, {"c": None}) == "arguments.c: expected an integer, got null"


def test_a_schema_may_contain_itself() -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value"],
            }
        },
    }
    check = compile_schema(schema)
    assert check({"value": 1, "next": {"value": "2", "next": None}}) == {"value": 1, "next": {"value": 2, "next": None}}
    assert problem(schema, {"value": 1, "next": {"value": 2, "next": {"value": "x"}}}) == (
        "arguments.next.next.value: expected an integer, got 'x'"
    )
    assert problem(schema, {"value": 1, "next": 3}) == "arguments.next: expected an object or null, got 3"


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"anyOf": [{"type": "object", "properties": {"a": schema}, "required": ["a"]}, {"type": "null"}]}
    return schema


def test_alternatives_inside_each_other_are_compiled_once() -> None:
    """failures.md F15, L20: with every level the work would double."""
    check = compile_schema(nested(40))
    value: Any = "7"
    expected: Any = 7
    for _ in range(40):
        value, expected = {"a": value}, {"a": expected}
    assert check(value) == expected
    shared: dict[str, Any] = {"type": ["integer", "null"]}
    for _ in range(60):
        shared = {"anyOf": [shared, shared]}
    with pytest.raises(InvalidArguments, match="there are too many ways to read it"):
        compile_schema(shared)("x")


def test_a_value_that_could_be_read_in_too_many_ways_is_refused() -> None:
    """failures.md L20"""
    steps = {f"s{number}": {"anyOf": [{"$ref": f"#/$defs/s{number + 1}"}] * 2} for number in range(60)}
    check = compile_schema({"$ref": "#/$defs/s0", "$defs": {**steps, "s60": {"type": "integer"}}})
    assert check(5) == 5
    with pytest.raises(InvalidArguments, match="arguments: there are too many ways to read it; send a smaller value"):
        check("x")
    # What was refused is forgotten.
    assert check(5) == 5


def test_chains_that_multiply_are_refused() -> None:
    steps = {f"s{number}": {"allOf": [{"$ref": f"#/$defs/s{number + 1}"}] * 2} for number in range(21)}
    check = compile_schema({"$ref": "#/$defs/s1", "$defs": {**steps, "s21": {"type": "integer"}}})
    with pytest.raises(InvalidArguments, match="there are too many ways to read it"):
        check(5)


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [True] * 600},
        {"allOf": [{"type": "array"} for _ in range(600)]},
        {"anyOf": [{"type": "array", "minItems": 9_999} for _ in range(300)]},
        {"allOf": [{"not": {"type": "array", "minItems": 9_999}} for _ in range(300)]},
        {"oneOf": [{"type": "object"}] * 100},
    ],
)
def test_a_large_value_is_not_looked_at_by_hundreds_of_parts(schema: dict[str, Any]) -> None:
    value: Any = list(range(4_000)) if "oneOf" not in schema else '{"a":"' + "x" * 400_000 + '"}'
    check = compile_schema(schema)
    with pytest.raises(InvalidArguments, match="there are too many ways to read it"):
        check(value)


class Counted(dict[str, Any]):
    """An object that counts how often it is asked for a name."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_of_many_missing_values_only_the_first_are_looked_for() -> None:
    given = Counted(b=1)
    names = [f"n{number}" for number in range(5_000)]
    found = problem({"type": "object", "required": names}, given)
    assert "arguments.n0: missing" in found
    assert "and more" in found
    assert given.asked < 100


def test_the_words_for_a_schema_are_not_longer_than_people_read() -> None:
    values = [f"value {number}" for number in range(5_000)]
    choice = {"type": "string", "enum": values}
    schema = {
        "type": "object",
        "properties": {"a": choice, "b": {"anyOf": [choice, {"type": "null"}]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert "'value 199', and 4,800 more is required" in problem(schema, {})
    assert "'value 199', and 4,800 more, got 'x'" in problem(schema, {"a": "x"})
    assert "and 4,800 more or null, got [" in problem(schema, {"a": "value 0", "b": []})
    many = {"type": "object", "properties": dict.fromkeys(values, True), "additionalProperties": False}
    assert problem(many, {"x": 1}).endswith("value 199, and 4,800 more")
    assert problem({"type": ["string"] * 3}, 1) == "arguments: expected a string, got 1"


def test_a_long_list_of_alternatives_is_no_trouble() -> None:
    check = compile_schema({"type": "array", "items": {"type": ["integer", "null"]}})
    assert check([1, None] * 10_000) == [1, None] * 10_000


def test_a_schema_without_end_is_the_programmers_mistake() -> None:
    endless: dict[str, Any] = {"type": "object"}
    endless["properties"] = {"a": endless}
    with pytest.raises(ValueError, match="nested too deeply, or contains itself without a reference"):
        compile_schema(endless)


def test_a_schema_that_is_only_itself_refuses_and_does_not_hang() -> None:
    assert problem({"$ref": "#"}, 1) == "arguments: nested too deeply; send a flatter value"


@each_row(
    ("schema", "expected"),
    [
        ({"type": "int"}, "Unknown type 'int'"),
        ({"properties": {"a": 3}}, "A JSON Schema is an object or a boolean, got 3"),
        ({"properties": []}, "'properties' is an object"),
        ({"type": "object", "required": "a"}, "'required' is a list"),
        ({"$ref": "#/$defs/missing"}, "refers to '#/\\$defs/missing'"),
        ({"$ref": "https://example.org/s.json"}, "Only references inside"),
        ({"anyOf": {}}, "'anyOf' is a list"),
        ({"enum": "abc"}, "'enum' is a list"),
        ({"type": "integer", "minimum": "1"}, "'minimum' is a number"),
    ],
)
def test_a_wrong_schema_is_the_programmers_mistake(schema: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        compile_schema(schema)
    assert not isinstance(caught.value, ToolError)


def test_a_pattern_of_another_dialect_is_left_to_the_tool() -> None:
    assert compile_schema({"type": "string", "pattern": r"\p{L}+"})("abc") == "abc"


def test_the_result_is_fresh_and_may_be_changed() -> None:
    given_ = freeze({"list": [1, {"a": 2}], "free": {"x": [1]}})
    result = compile_schema({"type": "object", "properties": {"list": {"type": "array"}}})(given_)
    result["list"][1]["a"] = 3
    result["free"]["x"].append(2)
    assert (type(given_), given_) == (FrozenDict, {"list": [1, {"a": 2}], "free": {"x": [1]}})
    assert result == {"list": [1, {"a": 3}], "free": {"x": [1, 2]}}


def test_what_is_not_json_is_refused() -> None:
    assert problem({}, {"a": object}) == "arguments.a: expected a JSON value, got <class 'object'>"
    assert problem({}, {1: "a"}) == "arguments: expected names that are strings, got 1"


def test_without_mending_a_value_must_fit_as_it_is() -> None:
    check = compile_schema({"type": "object", "properties": {"a": {"type": "integer"}}}, coerce=False, name="output")
    assert check({"a": 1}) == {"a": 1}
    with pytest.raises(InvalidArguments, match=r"^output\.a: expected an integer, got '1'$"):
        check({"a": "1"})


@given(JSON)
def test_any_json_value_passes_an_empty_schema_unchanged(value: Any) -> None:
    assert compile_schema({})(value) == value


@given(JSON, st.lists(st.sampled_from([*SCALARS, "object", "array"]), min_size=1, unique=True))
def test_a_check_gives_a_value_that_passes_again_unchanged_or_refuses(value: Any, types: list[str]) -> None:
    check = compile_schema({"type": types})
    try:
        once = check(value)
    except InvalidArguments:
        return
    assert (check(once), type(check(once))) == (once, type(once))


@given(st.integers())
def test_an_integer_survives_its_own_text(value: int) -> None:
    check = compile_schema({"type": "integer"})
    assert [check(str(value)), check(value)] == [value, value]


PLAIN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "A text."},
        "count": {"type": "integer"},
        "flag": {"type": "boolean", "default": False},
        "rate": {"type": "number"},
    },
    "required": ["text", "count"],
    "additionalProperties": False,
}
"""The schema of a usual tool."""


@given(st.dictionaries(st.sampled_from(["text", "count", "flag", "rate", "more"]), JSON | st.just("\ud800")))
def test_arguments_that_pass_the_quick_test_are_those_that_the_whole_check_leaves_alone(arguments: Any) -> None:
    if compile_quick_test(PLAIN)(arguments):
        checked = compile_schema(PLAIN)(arguments)
        assert list(map(repr, checked.items())) == list(map(repr, arguments.items()))


def test_the_arguments_of_a_usual_call_pass_the_quick_test() -> None:
    fits = compile_quick_test(PLAIN)
    assert fits({"text": "a", "count": 1})
    assert fits({"flag": True, "count": 1, "text": "a"})
    assert not fits({"text": "a"})
    assert not fits({"text": "a", "count": True})
    assert not fits({"text": "a", "count": 1.0})
    assert not fits({"text": "\u00e9", "count": 1}), "only the whole check looks for lone surrogates"


def test_a_name_that_is_required_twice_does_not_stand_for_another_argument() -> None:
    """A description from elsewhere, such as that of an MCP server, may name a parameter twice."""
    fits = compile_quick_test({**PLAIN, "required": ["text", "text"]})
    assert not fits({"text": "a", "unknown": []})
    assert fits({"text": "a", "count": 1})


@each_row(
    "more",
    [{"minProperties": 9}, {"allOf": [False]}, {"not": {}}, {"$ref": "#/$defs/a"}, {"type": ["object"]}, {"enum": []}],
)
def test_a_schema_that_asks_for_more_than_types_has_no_quick_test(more: dict[str, Any]) -> None:
    assert not compile_quick_test({**PLAIN, **more})({"text": "a", "count": 1})
    for kind in ({"type": "integer", "minimum": 5}, {"type": "integer", "enum": [5]}, {"anyOf": [{"type": "string"}]}):
        schema = {**PLAIN, "properties": {**PLAIN["properties"], "count": kind}}
        assert not compile_quick_test(schema)({"text": "a", "count": 1})
