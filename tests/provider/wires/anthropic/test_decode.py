"""Answers of the Anthropic Messages API, read from every kind of stream that servers were seen to send."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
from tests.provider.wires.anthropic.kit import (
    begun,
    called,
    delta,
    ended,
    event,
    message_of,
    read,
    said,
    start,
    stop,
)
from tests.rows import each_row

from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ProtocolError, ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Request
from steersman.types.stream import TextEnd, TextStart
from steersman.types.usage import Usage


def test_a_server_that_counts_every_block_as_the_first_is_understood() -> None:
    stream = begun() + said(0, "One.") + called(0, "t", "now") + ended("tool_use")
    assert message_of(stream).content == [TextContent("One."), ToolCall("t", "now")]


def test_open_blocks_end_with_the_message() -> None:
    stream = begun() + start(0, "text", text="") + delta(0, "text_delta", text="Hi") + ended()
    assert message_of(stream).content == [TextContent("Hi")]


def test_words_of_a_block_that_never_began_are_not_lost() -> None:
    stream = begun() + delta(0, "text_delta", text="Hi") + delta(1, "thinking_delta", thinking="Hm") + ended()
    assert message_of(stream).content == [TextContent("Hi"), ThinkingContent("Hm")]


def test_the_input_of_a_call_that_never_began_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="block 0, which it never started"):
        read(begun() + delta(0, "input_json_delta", partial_json="{}") + ended("tool_use"))


def test_text_and_thinking_may_come_with_the_start_of_their_block() -> None:
    stream = (
        begun()
        + start(0, "thinking", thinking="Hm.", signature="sig")
        + stop(0)
        + start(1, "text", text="Hel")
        + delta(1, "text_delta", text="lo")
        + stop(1)
        + ended()
    )
    assert message_of(stream).content == [ThinkingContent("Hm.", "sig"), TextContent("Hello")]


def test_unknown_deltas_and_those_of_another_kind_are_passed_over() -> None:
    """failures.md D16."""
    stream = (
        begun()
        + start(0, "text", text="", citations=None)
        + delta(0, "text_delta", text="Hi")
        + delta(0, "citations_delta")
        + delta(0, "new_delta", text="not for us")
        + delta(0, "thinking_delta", thinking="not here")
        + delta(0, "input_json_delta", partial_json="{}")
        + delta(0, "signature_delta", signature="s")
        + stop(0)
        + ended()
    )
    assert message_of(stream).content == [TextContent("Hi")]


def test_an_unknown_block_is_kept_for_the_next_request() -> None:
    """failures.md D16: opaque, byte for byte."""
    block = b'{"type": "new_thing",  "payload": {"b": 1, "a": [2]}}'
    opening = b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":' + block
    message = message_of(begun() + opening + b"}\n\n" + stop(0) + said(1, "Hi") + ended())
    assert message.content == [
        ThinkingContent("", block.decode(), redacted=True, field=OPAQUE),
        TextContent("Hi"),
    ]


def test_a_call_of_the_servers_own_tool_is_kept_with_its_input() -> None:
    stream = (
        begun()
        + start(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={})
        + delta(0, "input_json_delta", partial_json='{"query": ')
        + delta(0, "input_json_delta", partial_json='"x"}')
        + stop(0)
        + said(1, "Hi")
        + ended()
    )
    block = message_of(stream).content[0]
    assert isinstance(block, ThinkingContent)
    assert msgspec.json.decode(block.signature or "") == {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }


def test_signatures_are_replaced_not_added_and_every_thinking_has_its_own() -> None:
    """failures.md D5."""
    stream = begun()
    for index, name in enumerate(("one", "two")):
        stream += start(index, "thinking", thinking="", signature="")
        stream += delta(index, "thinking_delta", thinking=name)
        stream += delta(index, "signature_delta", signature="first")
        stream += delta(index, "signature_delta", signature=f"sig-{name}") + stop(index)
    assert message_of(stream + said(2, "Hi") + ended()).content == [
        ThinkingContent("one", "sig-one"),
        ThinkingContent("two", "sig-two"),
        TextContent("Hi"),
    ]


def test_hidden_thinking_is_kept() -> None:
    """Thinking that is redacted, and thinking whose text is left out, go back as they came."""
    stream = (
        begun()
        + start(0, "redacted_thinking", data="ZW5j")
        + stop(0)
        + start(1, "thinking", thinking="", signature="")
        + delta(1, "signature_delta", signature="c2ln")
        + stop(1)
        + said(2, "Hi")
        + ended()
    )
    assert message_of(stream).content == [
        ThinkingContent("", "ZW5j", redacted=True),
        ThinkingContent("", "c2ln"),
        TextContent("Hi"),
    ]


def test_a_full_window_is_told_apart_from_a_reached_limit() -> None:
    """failures.md D4; its usage is kept, for it was paid for."""
    message = message_of(begun() + said(0, "Hi") + ended("model_context_window_exceeded"))
    assert (message.stop_reason, message.error_kind, message.usage.total) == ("error", "context_overflow", 15)


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("text", {"text": "a(half)"}, TextContent("a\ufffd")),
        ("thinking", {"thinking": "a(half)"}, ThinkingContent("a\ufffd")),
        ("tool_use", {"id": "t(half)", "name": "n(half)", "input": {}}, ToolCall("t\ufffd", "n\ufffd")),
    ],
)
def test_half_a_character_where_a_block_begins_is_replaced(kind: str, fields: Any, expected: Content) -> None:
    """failures.md C18."""
    stream = (begun() + start(0, kind, **fields)).replace(b"(half)", b"\\ud83d")
    assert message_of(stream + stop(0) + ended()).content == [expected]


@pytest.mark.parametrize(
    ("reason", "details", "shown"),
    [
        ("new(half)", None, ("new\ufffd", "The server stopped with an unknown stop_reason: 'new\ufffd'.")),
        ("refusal", "a(half)", ("refusal", "The model refused to answer (a\ufffd).")),
    ],
)
def test_half_a_character_in_how_an_answer_ended_is_replaced(reason: str, details: str | None, shown: Any) -> None:
    """failures.md C18."""
    how = {"stop_reason": reason, "stop_details": {"category": details}}
    stream = begun() + said(0, "Hi") + event("message_delta", delta=how) + event("message_stop")
    message = read(stream.replace(b"(half)", b"\\ud83d"))[1]
    assert (message.raw_stop_reason, message.error_message) == shown


def outcome_of(stream: bytes) -> AssistantMessage | ProviderError:
    try:
        return read(stream)[1]
    except ProviderError as error:
        return error


def test_a_second_end_for_the_usage_alone_does_not_take_the_reason_back() -> None:
    stream = begun() + said(0, "Hi") + ended().removesuffix(event("message_stop"))
    message = message_of(stream + event("message_delta", delta={}, usage={"output_tokens": 9}) + event("message_stop"))
    assert (message.stop_reason, message.raw_stop_reason, message.usage.output) == ("stop", "end_turn", 9)


def test_an_answer_goes_on_where_the_server_paused() -> None:
    """failures.md D3: to the reader it is one answer; the tokens of both requests are added up where both are known."""
    first = message_of(begun() + start(0, "new_thing") + stop(0) + said(1, "Wait.") + ended("pause_turn"))
    assert (first.stop_reason, first.raw_stop_reason) == ("stop", "pause_turn")
    events, message = read(begun() + said(0, "Done.") + ended(), request=Request("", [first]))
    assert message.content == [*first.content, TextContent("Done.")]
    assert [event for event in events if isinstance(event, TextStart | TextEnd)] == [TextStart(2), TextEnd(2)]
    assert message.usage == Usage(input=10, output=5)
    assert (message.stop_reason, message.raw_stop_reason) == ("stop", "end_turn")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from(["text", "tool_use"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "index", "text"]), inner),
    max_leaves=5,
)


@hypothesis.given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
            ),
            st.dictionaries(
                st.sampled_from(["index", "content_block", "delta", "message", "usage", "error"]), json_values
            ),
        ),
        max_size=6,
    )
)
def test_no_json_makes_the_decoder_crash(events: list[tuple[str, dict[str, Any]]]) -> None:
    outcome = outcome_of(b"".join(event(name, **fields) for name, fields in events) + ended())
    assert isinstance(outcome, AssistantMessage) or outcome.info.message


def test_a_block_that_never_stopped_ends_where_another_one_takes_its_index() -> None:
    """A server that sends the start of a block twice: each block that begins ends."""
    twice = start(0, "text", text="") + start(0, "text", text="") + delta(0, "text_delta", text="Hi") + stop(0)
    end = event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop")
    assert message_of(begun() + twice + end).text == "Hi"


def test_whole_input_with_half_of_a_character_is_kept_as_it_was_written() -> None:
    """Like input in pieces: the call must not run with another character."""
    call = start(0, "tool_use", id="c", name="f", input={"a": "HALF"}).replace(b"HALF", b"\\ud83d") + stop(0)
    (read_call,) = message_of(begun() + call + ended("tool_use")).tool_calls
    assert (read_call.arguments, read_call.raw_arguments) == ({}, '{"a": "\\ud83d"}')


@each_row(
    "begins", [b'"thinking","signature":"c2ln\\ud83d"', b'"redacted_thinking","data":"c2ln\\ud83d"', b'"thinking"']
)
def test_half_of_a_character_in_a_signature_is_replaced(begins: bytes) -> None:
    """What holds one cannot be saved."""
    began = b'data: {"type":"content_block_start","index":0,"content_block":{"type":' + begins + b"}}\n\n"
    signed = b'"delta":{"type":"signature_delta","signature":"c2ln\\ud83d"}'
    more = b"" if b"," in begins else b'data: {"type":"content_block_delta","index":0,' + signed + b"}\n\n"
    message = message_of(begun() + began + more + stop(0) + said(1, "Hi") + ended())
    assert isinstance(message.content[0], ThinkingContent)
    assert message.content[0].signature == "c2ln\ufffd"
    assert msgspec.json.encode(message)
