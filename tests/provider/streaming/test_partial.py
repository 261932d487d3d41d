from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steersman.provider.streaming.partial import build_content, partial_message
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage
from steersman.types.stream import (
    Reset,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import Usage

CALL = ToolCall("1", "read", {"path": "a"})


def test_the_deltas_of_each_block_are_joined_in_the_order_in_which_the_blocks_began() -> None:
    deltas: list[StreamEvent] = [
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta("let ", 0),
        ThinkingDelta("me", 0),
        TextStart(1),
        TextDelta("I'll ", 1),
        ToolCallStart(2, "1", "read"),
        ToolCallDelta('{"path":', 2),
        TextDelta("look", 1),
        ToolCallEnd(2, CALL),
    ]

    assert build_content(deltas) == [ThinkingContent("let me"), TextContent("I'll look"), CALL]


def test_a_tool_call_without_its_end_is_left_out() -> None:
    """failures.md B18"""
    deltas = [TextDelta("so "), ToolCallStart(1, "1", "bash"), ToolCallDelta('{"command": "rm -rf /tmp', 1)]

    assert build_content(deltas) == [TextContent("so ")]


def test_an_end_that_does_not_carry_the_call_closes_what_was_streamed() -> None:
    deltas = [ToolCallStart(0, "1", "read"), ToolCallDelta('{"path":'), ToolCallDelta('"a"}'), ToolCallEnd()]

    assert build_content(deltas) == [CALL]
    assert build_content([ToolCallEnd()]) == []


def test_what_came_before_a_reset_is_void() -> None:
    """failures.md B18"""
    assert build_content([TextDelta("wro"), ToolCallEnd(1, CALL), Reset(), TextDelta("right")]) == [
        TextContent("right")
    ]


def test_blocks_are_told_apart_where_every_index_is_left_at_zero() -> None:
    deltas = [
        ThinkingStart(),
        ThinkingDelta("hm"),
        TextStart(),
        TextDelta("one"),
        TextEnd(),
        TextStart(),
        TextDelta("two"),
    ]

    assert build_content(deltas) == [ThinkingContent("hm"), TextContent("one"), TextContent("two")]


def test_empty_blocks_are_left_out() -> None:
    assert build_content([TextStart(), TextDelta(""), TextEnd(), ThinkingStart(1)]) == []


def test_the_message_says_what_it_is_told_to_say() -> None:
    usage = Usage(input=1, output=2)

    assert partial_message(
        [TextDelta("hel")],
        stop_reason="error",
        error_message="cut",
        error_kind="network",
        usage=usage,
        model="rat",
        provider="lab",
        timestamp=5.0,
    ) == AssistantMessage(
        [TextContent("hel")],
        timestamp=5.0,
        stop_reason="error",
        error_message="cut",
        error_kind="network",
        usage=usage,
        model="rat",
        provider="lab",
    )


@given(st.lists(st.text(max_size=3), max_size=20))
def test_no_character_is_lost_or_doubled_however_the_text_is_cut(pieces: list[str]) -> None:
    assert "".join(
        block.text for block in build_content([TextDelta(piece) for piece in pieces]) if isinstance(block, TextContent)
    ) == "".join(pieces)
