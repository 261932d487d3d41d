"""JSON Schemas as Gemini reads them."""

from __future__ import annotations

import copy
import json
from functools import reduce
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each_row

from steersman.provider.wires.google.schema import READ, convert_schema
from steersman.testing.servers.google.request import find_json_schema_fault
from steersman.tools.schema.from_types import build_schema
from steersman.tools.schema.validation import compile_schema

Json = dict[str, Any]

GOLDEN: list[tuple[str, Any, Any]] = [
    ("a plain one stays", {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, None),
    ("additionalProperties stay", {"type": "object", "additionalProperties": False}, None),
    ("a choice with null stays", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
    ("one type or null stays", {"type": ["string", "null"]}, None),
    ("an enumeration stays", {"type": "string", "enum": ["a", "b"]}, None),
    ("a tuple stays", {"type": "array", "prefixItems": [{"type": "string"}], "items": {}}, None),
    ("const is an enumeration of one", {"const": "x"}, {"enum": ["x"]}),
    ("const null is a type", {"const": None}, {"type": "null"}),
    ("const true is told", {"const": True}, {"description": 'JSON Schema: {"const":true}'}),
    (
        "an enumeration with null is a choice",
        {"type": ["string", "null"], "enum": ["a", None], "description": "D"},
        {"description": "D", "anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}]},
    ),
    ("an odd enumeration is told", {"enum": [1, [2]]}, {"description": 'JSON Schema: {"enum":[1,[2]]}'}),
    (
        "several types are a choice",
        {"type": ["string", "array", "null"], "items": {"type": "string"}, "minItems": 1, "title": "T"},
        {
            "title": "T",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "null"},
            ],
        },
    ),
    ("an exclusive bound of an integer", {"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
    (
        "exclusive bounds between integers",
        {"type": "integer", "exclusiveMinimum": 0.5, "exclusiveMaximum": 9.5, "minimum": 3},
        {"type": "integer", "minimum": 3, "maximum": 9},
    ),
    (
        "the older way of exclusive bounds",
        {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "exclusiveMaximum": False},
        {"type": "integer", "minimum": 2},
    ),
    (
        "an exclusive bound of a number is told",
        {"type": "number", "exclusiveMinimum": 0, "description": "Price."},
        {"type": "number", "description": 'Price.\nJSON Schema: {"exclusiveMinimum":0}'},
    ),
    (
        "patterns, lengths and defaults are told",
        {"type": "string", "pattern": "^a", "minLength": 1, "default": "a"},
        {"type": "string", "description": 'JSON Schema: {"pattern":"^a","minLength":1,"default":"a"}'},
    ),
    (
        "uniqueItems are told",
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"type": "array", "items": {"type": "string"}, "description": 'JSON Schema: {"uniqueItems":true}'},
    ),
    (
        "definitions have one home",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"p": {"$ref": "#/definitions/P"}, "q": {"$ref": "#/properties/p"}},
            "definitions": {"P": {"type": "object", "properties": {"next": {"$ref": "#/definitions/P"}}}},
        },
        {
            "type": "object",
            "properties": {"p": {"$ref": "#/$defs/P"}, "q": {"$ref": "#/$defs/p"}},
            "$defs": {
                "P": {"type": "object", "properties": {"next": {"$ref": "#/$defs/P"}}},
                "p": {"$ref": "#/$defs/P"},
            },
        },
    ),
    (
        "what stands beside a reference goes around it",
        {
            "properties": {"p": {"$ref": "#/$defs/P", "description": "D", "default": 1}},
            "$defs": {"P": {"type": "string"}},
        },
        {
            "properties": {"p": {"description": 'D\nJSON Schema: {"default":1}', "anyOf": [{"$ref": "#/$defs/P"}]}},
            "$defs": {"P": {"type": "string"}},
        },
    ),
    (
        "a root that is a reference is what it refers to",
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
        },
    ),
    (
        "a reference to nowhere is told",
        {"properties": {"p": {"$ref": "https://example.com/s.json"}}},
        {"properties": {"p": {"description": 'JSON Schema: {"$ref":"https://example.com/s.json"}'}}},
    ),
    (
        "all of several is one",
        {
            "description": "D",
            "allOf": [
                {"$ref": "#/$defs/A"},
                {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
            ],
            "$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
        },
        {
            "description": "D",
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "required": ["a", "b"],
        },
    ),
    (
        "all of what disagrees is told",
        {"allOf": [{"minimum": 1}, {"minimum": 2}]},
        {"description": 'JSON Schema: {"allOf":[{"minimum":1},{"minimum":2}]}'},
    ),
    (
        "the older way of tuples",
        {"type": "array", "items": [{"type": "string"}, True], "additionalItems": False},
        {
            "type": "array",
            "prefixItems": [{"type": "string"}, {}],
            "items": {"description": "No value is allowed here."},
        },
    ),
    (
        "oneOf stays",
        {"oneOf": [{"const": "a"}, {"type": "integer"}]},
        {"oneOf": [{"enum": ["a"]}, {"type": "integer"}]},
    ),
    (
        "conditions and negations are told",
        {"type": "object", "not": {"required": ["x"]}, "patternProperties": {"^x": {"type": "string"}}},
        {
            "type": "object",
            "description": 'JSON Schema: {"not":{"required":["x"]},"patternProperties":{"^x":{"type":"string"}}}',
        },
    ),
]


@each_row(("given_schema", "written"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN])
def test_a_schema_is_written_without_loss(given_schema: Any, written: Any) -> None:
    """failures.md C15."""
    before = copy.deepcopy(given_schema)
    assert convert_schema(given_schema) == (given_schema if written is None else written)
    assert given_schema == before


def an_object(properties: Any, required: Any) -> Json:
    return {"type": "object", "properties": properties, "required": required}


def merge_twice(definition: str) -> Json:
    """An object with two properties that are both a definition and something else."""
    return an_object({name: {"allOf": [{"$ref": f"#/$defs/{definition}"}, {"title": "T"}]} for name in "ab"}, [])


def choose(choice: Any, _: int) -> Json:
    return {"$ref": "#/$defs/A", "anyOf": [choice, {"type": "string"}]}


LONG = {"enum": ["x" * 20_000]}
# Each is small, and was written in more than a million bytes.
GROWING: dict[str, Json] = {
    "definitions of definitions": {
        **merge_twice("D0"),
        "$defs": {**{f"D{at}": merge_twice(f"D{at + 1}") for at in range(14)}, "D14": an_object({}, [])},
    },
    "one definition in many places": {
        **an_object({f"p{at}": {"allOf": [{"$ref": "#/$defs/A"}, {"title": "T"}]} for at in range(100)}, []),
        "$defs": {"A": LONG},
    },
    "words in words": {**an_object({"p": reduce(choose, range(16), {})}, []), "$defs": {"A": LONG}},
}


@each_row("name", GROWING)
def test_a_small_schema_does_not_become_a_huge_one(name: str) -> None:
    """It may come from a server that is not trusted."""
    schema = GROWING[name]
    assert len(json.dumps(schema)) < 50_000
    assert len(json.dumps(convert_schema(schema))) < 600_000


def test_names_of_properties_are_changed_wherever_they_stand() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"a-b": {"type": "array", "items": {"properties": {"c-d": {}}, "required": ["c-d"]}}},
        "required": ["a-b"],
        "propertyOrdering": ["a-b"],
    }
    assert convert_schema(schema, lambda name: name.replace("-", "_")) == {
        "type": "object",
        "properties": {"a_b": {"type": "array", "items": {"properties": {"c_d": {}}, "required": ["c_d"]}}},
        "required": ["a_b"],
        "propertyOrdering": ["a_b"],
    }


def test_what_python_types_give_is_taken() -> None:
    """failures.md C15: the schemas of optional fields, literals, unions and dataclasses."""
    from dataclasses import dataclass
    from enum import Enum
    from typing import Literal

    class Colour(Enum):
        RED = "red"

    @dataclass
    class Point:
        x: int | None = None
        kind: Literal["a", "b", 3] = "a"
        colour: Colour | str = Colour.RED
        pair: tuple[int, str] = (1, "a")
        table: dict[str, list[float]] | None = None

    schema = convert_schema(build_schema(Point))
    assert find_json_schema_fault("x", {"type": "object", **schema}) is None


def an_array(items: Any) -> Json:
    return {"type": "array", "items": items}


def any_of(choices: Any) -> Json:
    return {"anyOf": choices}


def all_of(parts: Any) -> Json:
    return {"allOf": parts}


def a_root(properties: Any, definition: Any) -> Json:
    return {"type": "object", "properties": properties, "$defs": {"D": definition}}


names = st.sampled_from(["a", "b"])
nodes: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(
        [
            {},
            True,
            {"type": "string"},
            {"type": "integer", "exclusiveMinimum": 0},
            {"type": ["string", "null"]},
            {"type": ["integer", "string"]},
            {"const": "x"},
            {"const": None},
            {"enum": ["a", 1, None]},
            {"$ref": "#/$defs/D"},
            {"$ref": "#/$defs/D", "description": "beside"},
            {"$ref": "#/nowhere"},
            {"$ref": "#"},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(an_object, st.dictionaries(names, inner, max_size=2), st.lists(names, max_size=2, unique=True)),
        st.builds(an_array, inner),
        st.builds(any_of, st.lists(inner, min_size=1, max_size=2)),
        st.builds(all_of, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=6,
)
roots = st.builds(
    a_root,
    st.dictionaries(names, nodes, max_size=2),
    nodes,
)


@given(roots)
@settings(max_examples=300)
def test_any_schema_comes_out_as_one_that_gemini_reads(schema: Any) -> None:
    written = convert_schema(schema)
    assert find_json_schema_fault("x", written) is None
    assert _keywords(written) <= READ
    assert convert_schema(written) == written


def _keywords(schema: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(schema, list):
        for item in cast(list[Any], schema):
            found |= _keywords(item)
    elif isinstance(schema, dict):
        for name, value in cast(Json, schema).items():
            found.add(name)
            if name in ("properties", "$defs"):
                found |= _keywords(list(value.values()))
            elif name != "enum":
                found |= _keywords(value)
    return found


VALUES = [None, True, 0, 1, 2, 9, 10, 0.5, "", "a", "b", "x", [], ["a"], [1], {}, {"a": "x"}, {"b": 1}]
LOSSLESS = [
    schema for name, schema, _ in GOLDEN if not any(word in name for word in ("told", "stay", "beside", "older"))
]


@each_row("schema", LOSSLESS)
def test_what_is_rewritten_takes_what_it_took_before(schema: Any) -> None:
    """Nothing is told in words that could have been written in keywords."""
    before, after = compile_schema(schema), compile_schema(convert_schema(schema))
    assert [_takes(before, value) for value in VALUES] == [_takes(after, value) for value in VALUES]


def _takes(check: Any, value: Any) -> bool:
    try:
        return bool(check(value) == value)
    except ValueError:
        return False
