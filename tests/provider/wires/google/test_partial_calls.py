"""Calls whose arguments come one by one, as Vertex AI sends them if `streamFunctionCallArguments` is set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.provider.wires.google.streams import chunk, events_of, message_of, stream, text
from tests.rows import each_row

from steersman.testing import check_stream
from steersman.types.content import ToolCall
from steersman.types.stream import Done

NAMES = st.text("abc_", min_size=1, max_size=3)
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text('aé🙂"\\', min_size=0, max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(NAMES, inner, min_size=1, max_size=3),
)
OBJECTS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=3)


def piece(*arguments: dict[str, Any], goes_on: bool = True, signature: str | None = None, **fields: Any) -> Any:
    """A chunk with a piece of a call."""
    inner = {**fields, **({"partialArgs": list(arguments)} if arguments else {})}
    if goes_on:
        inner["willContinue"] = True
    return chunk({"functionCall": inner, **({} if signature is None else {"thoughtSignature": signature})})


def begun(name: str = "act", **fields: Any) -> Any:
    return piece(name=name, **fields)


END = piece(goes_on=False)
STOP = chunk(finish="STOP")


def leaf(path: str, value: Any, *, goes_on: bool = False) -> dict[str, Any]:
    """One argument."""
    match value:
        case None:
            found: dict[str, Any] = {"nullValue": "NULL_VALUE"}
        case bool():
            found = {"boolValue": value}
        case str():
            found = {"stringValue": value}
        case _:
            found = {"numberValue": value}
    return {"jsonPath": path, **found, **({"willContinue": True} if goes_on else {})}


def leaves(value: Any, path: str = "$") -> Iterator[dict[str, Any]]:
    """All values of an object with their paths; a text of more than one letter in two pieces."""
    match value:
        case dict():
            for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]
                yield from leaves(item, f"{path}.{name}")
        case list():
            for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                yield from leaves(item, f"{path}[{index}]")
        case str() if len(value) > 1:
            yield leaf(path, value[:1], goes_on=True)
            yield leaf(path, value[1:])
        case _:
            yield leaf(path, value)


def calls_of(*chunks: Any) -> list[ToolCall]:
    return [block for block in message_of(*chunks).content if isinstance(block, ToolCall)]


@given(OBJECTS, st.booleans())
def test_the_arguments_are_what_the_pieces_say(value: dict[str, Any], together: bool) -> None:
    given = list(leaves(value))
    pieces = [piece(*given)] if together else [piece(item) for item in given]
    message = message_of(begun(), *pieces, END, STOP)
    assert message.stop_reason == "tool_use"
    assert [(block.name, block.arguments) for block in message.content if isinstance(block, ToolCall)] == [
        ("act", value)
    ]


def test_a_call_keeps_its_id_and_the_signature_of_its_first_piece() -> None:
    (found,) = calls_of(begun(id="c1", signature="c2ln"), piece(leaf("$.a", 1)), END, STOP)
    assert (found.id, found.signature, found.arguments) == ("c1", "c2ln", {"a": 1})


def test_the_events_are_well_formed_and_texts_around_the_call_stay() -> None:
    chunks = (chunk(text("Let me see.")), begun(), piece(leaf("$.a", "x")), END, begun("other"), END, STOP)
    events, message = events_of(stream(*chunks))
    assert check_stream([*events, Done(message)]) is message
    assert [block.type for block in message.content] == ["text", "tool_call", "tool_call"]
    assert [block.arguments for block in message.content if isinstance(block, ToolCall)] == [{"a": "x"}, {}]


@pytest.mark.parametrize("finish", ["STOP", "MAX_TOKENS"])
def test_a_call_that_was_cut_is_never_run(finish: str) -> None:
    """R5: the arguments are not complete, whatever the finish reason says."""
    message = message_of(begun(), piece(leaf("$.path", "/tmp", goes_on=True)), chunk(finish=finish))
    assert message.stop_reason == "length"
    (found,) = [block for block in message.content if isinstance(block, ToolCall)]
    assert found.is_truncated


@each_row("path", ["", "a", "$", "$[0]", "$.a.b", "$.a[0]", "$.list.b", "$.list[100001]"])
def test_a_path_that_fits_nothing_makes_the_call_malformed(path: str) -> None:
    given = (leaf("$.a", 1), leaf("$.list[0]", 1), leaf(path, 2))
    (found,) = calls_of(begun(), piece(*given), END, STOP)
    assert found.is_truncated


def test_names_with_dots_come_in_brackets() -> None:
    (found,) = calls_of(begun(), piece(leaf('$[\'a.b\']["c\\"d"]', 1)), END, STOP)
    assert found.arguments == {"a.b": {'c"d': 1}}


def test_half_an_emoji_in_each_piece_is_one_emoji() -> None:
    plain = stream(begun(), piece(leaf("$.a", "(high)", goes_on=True)), piece(leaf("$.a", "(low)")), END, STOP)
    _, message = events_of(plain.replace(b"(high)", b"\\ud83d").replace(b"(low)", b"\\ude42"))
    (found,) = [block for block in message.content if isinstance(block, ToolCall)]
    assert found.arguments == {"a": "🙂"}
