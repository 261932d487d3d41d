"""What a server says about its tools is a stranger's data: bounded, made plain, and never let run away with us."""

from __future__ import annotations

import time
from contextlib import nullcontext
from itertools import pairwise
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row

from steersman import ToolContext, ToolOutput
from steersman.tools.mcp import McpError
from steersman.tools.mcp.content import define, make_tool
from steersman.tools.mcp.process import LineBuffer, LineTooLong
from steersman.tools.schema.validation import InvalidArguments
from steersman.tools.text import strip_invisible
from steersman.tools.tool import Tool


async def nothing(arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
    return ToolOutput(repr(arguments))


def made(schema: dict[str, Any], description: str | None = "A tool.") -> Tool:
    return make_tool("mcp:s:t", define("t", description, schema), nothing, "full")


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def choices(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [schema, {"type": "integer"}]}
    return schema


def chain(length: int) -> dict[str, Any]:
    """Every definition refers to the next one twice: 2 ** length parts in a few lines."""
    links = {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(length)}
    return {**obj(a={"$ref": "#/$defs/d0"}), "$defs": {**links, f"d{length}": {"type": "string"}}}


def many_names(count: int, parts: list[Any]) -> dict[str, Any]:
    """The same parts by many names: where a reference begins is of no consequence."""
    return {**obj(), "$defs": parts, "allOf": [{"$ref": f"{name:x}/$defs"} for name in range(count)]}


def lists(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


def chain_of_lists(length: int) -> dict[str, Any]:
    """A reference in a hundred lists to the next one: few bytes, and neither is deep for a parser of JSON."""
    links = {f"x{at}": lists(100, {"$ref": f"#/x{at + 1}"}) for at in range(length)}
    return {**obj(), **links}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@each_row(
    ("schema", "words"),
    [
        (obj(a={"description": "x" * 70_000}), "its schema has 70,055 bytes, more than 65,536"),
        (obj(a=nested(60)), "its schema is nested more than 48 deep"),
        (obj(a=choices(14)), "its schema is too complicated"),
        # A property that is called like a word of JSON Schema is a property all the same.
        (obj(enum=choices(14), default=choices(14)), "its schema is too complicated"),
        (chain(12), "its schema is too complicated"),
        (many_names(1_600, [[]] * 9_000), "its schema is too complicated"),
        (many_names(1_600, [{}] * 9_000), "its schema is too complicated"),
        (chain(60), "its schema is nested more than 48 deep, references followed"),
        (chain_of_lists(20), "its schema is nested more than 48 deep, references followed"),
        (obj(**{"a\x1b[2J": {}}), "its schema has a property with an unreadable name"),
        (obj(**{"a" * 129: {}}), "its schema has a property with an unreadable name"),
        (obj(a={"type": "strnig"}), "its schema is wrong .*Unknown type 'strnig'"),
        (obj(a={"$ref": "https://example.com/x"}), "its schema is wrong .*Only references inside the schema"),
        (obj(a={"enum": 5}), "its schema is wrong .*'enum' is a list"),
    ],
)
def test_a_schema_without_measure_or_sense_is_refused_in_no_time(schema: dict[str, Any], words: str) -> None:
    """failures.md L20."""
    began = time.process_time()
    with pytest.raises(McpError, match=words):
        made(schema)
    assert time.process_time() - began < 1.0


@each_row(
    ("schema", "arguments"),
    [
        (
            {**obj(**{f"prop{n}": {} for n in range(900)}), "additionalProperties": False},
            {f"propx{n}": 1 for n in range(3_000)},
        ),
        (obj(a={"items": {"required": [f"x{n}" for n in range(5_000)]}}), {"a": [{"b": 1}] * 2_000}),
        (obj(a={"items": {"anyOf": [{"const": n} for n in range(400)]}}), {"a": ["z"] * 8_000}),
        (obj(a={"anyOf": [{"type": "string", "maxLength": n} for n in range(300)]}), {"a": [[1]] * 50_000}),
        (obj(a={"items": {"allOf": [{"type": "integer"}] * 900}}), {"a": [1] * 100_000}),
    ],
)
def test_arguments_that_fit_a_schema_nowhere_are_refused_in_no_time(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The arguments and the schema are both large, and neither is ours: everything else would wait meanwhile."""
    tool = made(schema)
    began = time.process_time()
    with pytest.raises(InvalidArguments):
        tool.check(arguments)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(("last", "fits"), [({"n": [1]}, False), ({"n": [True]}, True)])
def test_many_objects_are_compared_with_each_other_in_no_time(last: dict[str, Any], fits: bool) -> None:
    tool = made(obj(a={"type": "array", "uniqueItems": True}))
    items = [*({"n": [n]} for n in range(20_000)), last]
    began = time.process_time()
    with nullcontext() if fits else pytest.raises(InvalidArguments, match="different items"):
        tool.check({"a": items})
    assert time.process_time() - began < 1.0


def test_a_pattern_of_a_stranger_is_never_run() -> None:
    """failures.md F16: `(a+)+$` on forty letters takes years; the server checks its own patterns."""
    schema = obj(
        text={"type": "string", "pattern": "(a+)+$"},
        pattern={"type": "string"},
        more={"propertyNames": {"pattern": "(a+)+$"}},
    )
    schema["patternProperties"] = {"^(a+)+$": {"type": "string"}}
    schema["additionalProperties"] = False
    tool = made(schema)
    arguments = {"text": "a" * 40 + "!", "pattern": "a property", "a" * 40 + "!": "x"}
    assert tool.check(arguments) == arguments
    assert tool.parameters["properties"]["text"] == {"type": "string", "pattern": "(a+)+$"}


def test_arguments_are_checked_and_mended_where_the_schema_is_simple() -> None:
    tool = made({**obj(a={"type": "integer"}), "required": ["a"]})
    assert tool.check({"a": "5"}) == {"a": 5}
    with pytest.raises(InvalidArguments, match=r"arguments\.a: expected an integer"):
        tool.check({"a": "five"})


def test_a_schema_that_refers_to_itself_is_left_to_the_server() -> None:
    tree = {**obj(root={"$ref": "#/$defs/node"}), "$defs": {"node": obj(children={"items": {"$ref": "#/$defs/node"}})}}
    assert made(tree).check({"root": {"children": "no list"}}) == {"root": {"children": "no list"}}
    with pytest.raises(InvalidArguments):
        made(tree).check("no object")  # pyright: ignore[reportArgumentType]  # what a model may send


@pytest.mark.parametrize("name", ["arguments", "ctx", "self", "_arguments_of_a_remote_tool_", "class"])
async def test_properties_may_be_called_anything(name: str) -> None:
    from steersman import CancelToken

    tool = made(obj(**{name: {"type": "string"}, "other": {"type": "integer"}}))
    output = await tool.call(tool.check({name: "x", "other": 1}), ToolContext("1", "t", CancelToken()))
    assert output.content == repr({name: "x", "other": 1})


def test_texts_inside_a_schema_are_made_plain_and_values_are_left_alone() -> None:
    schema = obj(
        a={
            "description": "see\x1b[2J \u202ehere\U000e0041",
            "enum": ["\u202e"],
            "title": 5,
            "default": {"title": "\x07"},
        }
    )
    assert made(schema).parameters["properties"]["a"] == {
        "description": "see[2J here",
        "enum": ["\u202e"],
        "default": {"title": "\x07"},
    }


def test_a_description_without_end_is_cut() -> None:
    assert len(made(obj(), "x" * 5_000_000).description) == 4_096
    assert made(obj(), None).description == ""


def test_the_digest_changes_with_whatever_the_model_is_told_and_with_nothing_else() -> None:
    same = define("t", "d", {"type": "object", "properties": {"a": {}, "b": {}}})
    assert define("t", "d", {"properties": {"b": {}, "a": {}}, "type": "object"}).digest == same.digest
    others = [
        define("u", "d", same.parameters),
        define("t", "e", same.parameters),
        # Shown alike, and yet not the same words.
        define("t", "d\u200b", same.parameters),
        define("t", None, same.parameters),
        define("t", "d", obj(a={}, b={"type": "string"})),
    ]
    assert len({same.digest, *[other.digest for other in others]}) == 6


@each_row("name", ["", "a b", "a:b", "a*", "a[b]", "a?", "ä", "a\n", "a" * 129, "\u200b", "a\\b"])
def test_names_that_could_be_taken_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(McpError, match="its name has other characters"):
        define(name, "", {"type": "object"})


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(data: bytes, cuts: list[int]) -> None:
    """failures.md I15."""
    whole = data.split(b"\n")
    splitter = LineBuffer(1_000)
    found: list[bytes] = []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        found += splitter.feed(data[start:end])
    assert found == whole[:-1]
    assert splitter.feed(b"\n") == whole[-1:]


def test_a_line_may_have_its_limit_and_no_more() -> None:
    assert LineBuffer(4).feed(b"1234\n56\n") == [b"1234", b"56"]
    for *before, last in ([b"12345"], [b"123", b"45"], [b"12345\n"], [b"1\n", b"1234", b"5\n"]):
        splitter = LineBuffer(4)
        for piece in before:
            splitter.feed(piece)
        with pytest.raises(LineTooLong):
            splitter.feed(last)


@given(st.text())
def test_plain_text_shows_nothing_unseen(text: str) -> None:
    shown = strip_invisible(text, 20, lines=False)
    assert len(shown) <= 20
    assert {category(letter) for letter in shown}.isdisjoint({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
