"""What the bytes of an answer are read as, in every protocol: whole, cut, noisy or damaged; no sockets."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import READINGS
from tests.provider.wires.reading import REQUEST, chunks
from tests.provider.wires.speech import HIGH, LOW, Text, Thought, spoken
from tests.rows import each_row

from steersman.provider.http.sse import SseDecoder
from steersman.provider.streaming.partial import build_content
from steersman.testing.servers.exchange import sse
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.errors import IncompleteStreamError, ProtocolError, ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.stream import (
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import Usage

FIXTURES = Path(__file__).parents[2] / "fixtures"
# The binary frames of Bedrock have tests of their own, in tests/provider/wires/bedrock.
# An answer with everything in it, in many scripts: thinking, words, a call in pieces, one without arguments, and usage.
RICH = {
    "anthropic": anthropic.begun(input_tokens=10, cache_read_input_tokens=7, output_tokens=1)
    + anthropic.event("ping")
    + anthropic.start(0, "thinking", thinking="", signature="")
    + anthropic.delta(0, "thinking_delta", thinking="Let me 想")
    + anthropic.delta(0, "thinking_delta", thinking="一想 🤔.")
    + anthropic.delta(0, "signature_delta", signature="c2ln")
    + anthropic.stop(0)
    + anthropic.said(1, "Größe: ", "日本語 🙂\u2028", " ok")
    + anthropic.called(2, "c1", "add", "", '{"a": ', '2, "s": "é🙂"}')
    + anthropic.called(3, "c2", "now")
    + anthropic.ended("tool_use", output=42, usage={"input_tokens": 12}),
    "google": google.stream(
        google.chunk(google.thought("Let me 想"), usage={"promptTokenCount": 7}),
        google.chunk(google.thought("一想 🤔."), google.text("Größe: "), responseId="r1"),
        google.chunk(google.text("日本語 🙂\u2028")),
        google.chunk(google.text(" ok")),
        google.chunk(google.call("add", {"a": 2, "s": "é🙂"}, "c1", "QUJD")),
        google.chunk(google.call("now", None, "c2")),
        google.chunk(
            google.text(""),
            finish="STOP",
            usage={"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 2},
        ),
    ),
    "openai": chat.said("Let me 想", "一想 🤔.", field="reasoning_content")
    + chat.said("Größe: ", "日本語 🙂\u2028", " ok")
    + chat.calls(chat.piece(0, "c1", "add", ""))
    + chat.calls(chat.piece(0, args='{"a": '))
    + chat.calls(chat.piece(0, args='2, "s": "é🙂"}'))
    + chat.calls(chat.piece(1, "c2", "now", ""))
    + chat.chunk(None, "tool_calls", usage={"prompt_tokens": 9, "completion_tokens": 5}, model="other")
    + chat.DONE,
    "responses": responses.begun()
    + responses.thought(0, "Let me 想", "一想 🤔.")
    + responses.said(1, "Größe: ", "日本語 🙂\u2028", " ok", phase="commentary")
    + responses.called(2, "c1", "add", '{"a": ', '2, "s": "é🙂"}')
    + responses.called(3, "c2", "now")
    + responses.ended(
        model="other",
        usage={
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 120,
        },
    ),
}
REASONED = (
    '{"type":"reasoning","id":"rs_0","summary":[{"type":"summary_text","text":"Let me 想一想 🤔."}],'
    '"encrypted_content":"gAAAA"}'
)
# Of each answer: where the thinking is kept, the stop reason, the usage and the id of the response.
READ: dict[str, tuple[ThinkingContent, str, Usage, str]] = {
    "anthropic": (ThinkingContent("", "c2ln"), "tool_use", Usage(input=12, output=42, cache_read=7), "msg_1"),
    "google": (ThinkingContent(""), "STOP", Usage(input=9, output=7, reasoning=2), "r1"),
    "openai": (ThinkingContent("", field="reasoning_content"), "tool_calls", Usage(9, 5), "chatcmpl-1"),
    "responses": (
        ThinkingContent("", REASONED),
        "completed",
        Usage(input=10, output=20, cache_read=60, cache_write=30, reasoning=7),
        "resp_1",
    ),
}
# How many bytes before the end an answer is complete already: its last event needs no blank line.
SPARE = {"anthropic": 2, "google": 4, "openai": 2, "responses": 2}


def rich_message(name: str) -> AssistantMessage:
    """What the answer with everything in it is."""
    thinking, raw, usage, id = READ[name]
    model = READINGS[name].model
    return AssistantMessage(
        [
            msgspec.structs.replace(thinking, thinking="Let me 想一想 🤔."),
            TextContent("Größe: 日本語 🙂\u2028 ok", "commentary" if name == "responses" else None),
            ToolCall("c1", "add", {"a": 2, "s": "é🙂"}, signature="QUJD" if name == "google" else None),
            ToolCall("c2", "now"),
        ],
        stop_reason="tool_use",
        raw_stop_reason=raw,
        usage=usage,
        model=model.id,
        provider=model.provider,
        response_id=id,
    )


def events_in(stream: bytes) -> list[bytes]:
    """The events of a stream, each with its blank line."""
    return [event for event in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", stream) if event]


@pytest.mark.parametrize("name", RICH)
def test_an_answer_with_everything_in_it_is_read_whole(name: str) -> None:
    """failures.md I7: usage is in one normal form."""
    assert READINGS[name].message_of(RICH[name]) == rich_message(name)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("name", RICH)
def test_an_answer_is_read_the_same_however_it_is_cut_and_whatever_ends_its_lines(name: str, end: bytes) -> None:
    """failures.md B1, B2."""
    read, whole = READINGS[name].read, READINGS[name].read(RICH[name])
    stream = RICH[name].replace(b"\r\n", b"\n").replace(b"\n", end)
    assert read(chunks(stream, 1)) == read(chunks(stream, 7)) == whole
    for at in range(len(stream) + 1):
        assert read((stream[:at], stream[at:])) == whole, at


@pytest.mark.parametrize("name", RICH)
def test_an_answer_cut_at_any_byte_is_never_a_success(name: str) -> None:
    """failures.md B9, B17: only with its last event, whole but for the blank line, is there an answer.

    An answer of Chat Completions is complete with its finish reason.
    """
    stream = RICH[name].removesuffix(chat.DONE)
    for at in range(len(stream)):
        if at >= len(stream) - SPARE[name]:
            assert READINGS[name].read(stream[:at])[1] == rich_message(name), at
        else:
            with pytest.raises((IncompleteStreamError, ProtocolError)):
                READINGS[name].read(stream[:at])


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "B6 a mark in front": lambda stream: b"\xef\xbb\xbf" + stream,
    "B6 no space": lambda stream: stream.replace(b"data: ", b"data:"),
    "B21 no names": lambda stream: re.sub(rb"(?m)^event: .*\n", b"", stream),
}


@each_row("form", FORMS)
@each_row("name", RICH)
def test_an_answer_is_read_in_every_form_of_its_events(name: str, form: str) -> None:
    """failures.md B6, B21."""
    assert READINGS[name].message_of(FORMS[form](RICH[name])) == rich_message(name)


# What servers, gateways and later versions of a protocol send beside an answer.
NOISE = [
    b": keep-alive\n\n",
    b"data: : OPENROUTER PROCESSING\n\n",
    b"data:\n\n",
    b"id: 4\nretry: 10\n\n",
    b"event: ping\n\n",
    b"event: ping\ndata:\n\n",
    b"event: ping\ndata: {}\n\n",
]
DONE = b"data: [DONE]\n\n"
ASIDE: dict[str, list[bytes]] = {
    "anthropic": [
        DONE,
        anthropic.event("ping"),
        anthropic.event("new_event", surprise={"deep": [1, 2]}),
        anthropic.delta(1, "new_delta", text="not for us"),
        anthropic.delta(1, "citations_delta"),
    ],
    "google": [
        DONE,
        sse({}),
        sse({"candidates": []}),
        sse({"candidates": None}),
        sse({"candidates": [{}]}),
        sse({"newField": {"x": 1}}),
        sse({"candidates": [{"content": {}}]}),
        sse({"candidates": [{"content": {"role": "model", "parts": None}}]}),
        sse({"candidates": [{"content": {"parts": [{}, {"thought": True}]}}]}),
    ],
    "openai": [
        sse({}),
        sse([]),
        sse("7"),
        sse({"id": "x"}),
        sse({"choices": None}),
        sse({"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
        sse({"choices": [{"index": 0}]}),
        sse({"choices": [{"index": 0, "delta": None}]}),
        sse({"choices": [{"index": 0, "delta": {"new_thing": {"a": [1]}}, "logprobs": {"content": []}}]}),
    ],
    "responses": [
        DONE,
        responses.event("response.new_thing", delta={"not": "text"}, item=7),
        responses.event("response.compaction.compacting", item_id="x"),
        responses.event("response.output_text.annotation.added", annotation={}, output_index=0, content_index=0),
        responses.event("response.queued", response={"id": "resp_1", "status": "queued"}),
        responses.event("keepalive", sequence_number=4),
        responses.event("response.audio.delta", delta="AAAA"),
    ],
}


@each_row(
    ("name", "noise"),
    [(name, noise) for name in RICH for noise in NOISE + ASIDE[name]],
    ids=lambda value: value[:60].decode() if isinstance(value, bytes) else value,
)
def test_what_is_beside_an_answer_is_passed_over(name: str, noise: bytes) -> None:
    """failures.md B3, B6, B19, D16: before, between and behind its events."""
    events = events_in(RICH[name])
    message, told = READINGS[name].message_of(noise + noise.join(events) + noise), rich_message(name)
    assert (message.content, message.stop_reason, message.usage) == (told.content, told.stop_reason, told.usage)


@pytest.mark.parametrize("name", RICH)
def test_deltas_are_shown_as_they_come(name: str) -> None:
    """Gemini sends arguments at once, and they are shown as JSON."""
    _, _, first, second = rich_message(name).content
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    pieces = ['{"a":2,"s":"é🙂"}'] if name == "google" else ['{"a": ', '2, "s": "é🙂"}']
    assert READINGS[name].read(RICH[name])[0] == [
        StreamStart(),
        ThinkingStart(0),
        ThinkingDelta("Let me 想", 0),
        ThinkingDelta("一想 🤔.", 0),
        ThinkingEnd(0),
        TextStart(1),
        TextDelta("Größe: ", 1),
        TextDelta("日本語 🙂\u2028", 1),
        TextDelta(" ok", 1),
        TextEnd(1),
        ToolCallStart(2, "c1", "add"),
        *(ToolCallDelta(piece, 2) for piece in pieces),
        ToolCallEnd(2, first),
        ToolCallStart(3, "c2", "now"),
        ToolCallEnd(3, second),
    ]


@pytest.mark.parametrize("name", RICH)
def test_what_had_arrived_of_a_broken_answer_can_be_shown(name: str) -> None:
    """failures.md B17: it is what its deltas said."""
    reader, decoder = SseDecoder(), READINGS[name].wire.decoder(READINGS[name].model, REQUEST)
    stream = RICH[name][: RICH[name].index(b" ok")]
    events = [shown for event, data in reader.feed(stream) for shown in decoder.feed(event, data)]
    thinking, words = build_content(events)
    assert isinstance(thinking, ThinkingContent)
    assert (thinking.thinking, words) == ("Let me 想一想 🤔.", TextContent("Größe: 日本語 🙂\u2028"))
    assert not decoder.done


UNICODE = "héllo 世界 🙂 done"
# Answers that real servers gave: text, stop reason, usage, and the id of the response.
RECORDED: list[tuple[str, str, str, str, Usage, str]] = [
    ("anthropic", "anthropic_text", "Hello!", "end_turn", Usage(1, 3, 25), "bEfn4Gd1Mn3dz8y3tMoAXKMUUqnV617o"),
    ("openai", "openai_chat_unicode", UNICODE, "stop", Usage(15, 8, 14), "G5HfGFxvpYFReGEfPUEtpyZ97FZnmXKp"),
    ("openai", "openai_chat_text_nousage", "Hello!", "stop", Usage(), "6gCrpebyv0PxY1ETJQjDiNmLRQksJ6x0"),
    ("responses", "responses_text", "Hello!", "completed", Usage(12, 3, 14), "YDTQx0VQvkbq2M7d6lAFYDqxQkWrUvB8"),
]


@pytest.mark.parametrize(("name", "file", "text", "raw", "usage", "id"), RECORDED)
def test_a_recorded_answer_is_read_whole(name: str, file: str, text: str, raw: str, usage: Usage, id: str) -> None:
    """failures.md I8."""
    model = READINGS[name].model
    stream = (FIXTURES / "llamacpp-qwen0.5b" / f"{file}.sse").read_bytes()
    assert READINGS[name].message_of(stream) == AssistantMessage(
        [TextContent(text)],
        stop_reason="stop",
        raw_stop_reason=raw,
        usage=usage,
        model=model.id,
        provider=model.provider,
        response_id=("resp_" if name == "responses" else "chatcmpl-") + id,
    )


@each_row(
    ("pieces", "deltas"),
    [
        ((f"a{HIGH}", f"{LOW}b"), ["a", "🙂b"]),
        ((HIGH, LOW), ["🙂"]),
        ((f"Hi {HIGH}", f"{LOW}!"), ["Hi ", "🙂!"]),
        (("a\u2028b\u0085c\x0bd\x0ce\x1cf",), ["a\u2028b\u0085c\x0bd\x0ce\x1cf"]),
    ],
)
@each_row("name", RICH)
def test_a_character_split_between_two_deltas_is_joined_and_a_separator_cuts_nothing(
    name: str, pieces: tuple[str, ...], deltas: list[str]
) -> None:
    """failures.md C18."""
    events, message = READINGS[name].read(spoken(name, Text(*pieces), end="stop"))
    assert [event.delta for event in events if isinstance(event, TextDelta)] == deltas
    assert message.content == [TextContent("".join(deltas))]


@each_row("half", [HIGH, LOW])
@each_row("after", ["", "ok"])
@each_row("kind", ["text", "thinking"])
@each_row("name", RICH)
def test_a_lone_half_of_a_character_is_replaced(name: str, kind: str, after: str, half: str) -> None:
    """failures.md C18: and the message can be written down."""
    blocks = (Text(f"Hi {half}", after),) if kind == "text" else (Thought(f"Hi {half}{after}"), Text("!"))
    message = READINGS[name].message_of(spoken(name, *blocks, end="stop"))
    assert getattr(message.content[0], kind) == f"Hi \ufffd{after}"
    assert msgspec.json.decode(msgspec.json.encode(message), type=AssistantMessage) == message


@pytest.mark.parametrize("name", RICH)
def test_a_byte_that_is_no_text_is_replaced_and_the_stream_goes_on(name: str) -> None:
    """failures.md B22."""
    stream = spoken(name, Text("a?b", "c"), end="stop").replace(b"a?b", b"a\xffb")
    assert READINGS[name].message_of(stream).text == "a\ufffdbc"


DEEP = b"[" * 100_000
# What is no event of the protocol, and the words of the error; what is no JSON is none anywhere.
GARBAGE: dict[str, tuple[str, list[bytes]]] = {
    "anthropic": ("does not match its protocol", [b"7", b'{"type": 7}']),
    "google": ("does not match its protocol", [b"7", b'{"a": NaN}', b'{"candidates": 7}']),
    "openai": ("not a chunk", [b'{"choices": 7}', b"{'choices': []}"]),
    "responses": (
        "does not match its protocol",
        [
            b'{"type": "response.output_text.delta", "delta": 7}',
            b'{"type": "response.completed", "response": "x"}',
            b'{"type": "response.output_item.done", "item": {"type": "message", "content": "x"}}',
            b'{"a": NaN}',
            b"[1]",
            b'"x"',
        ],
    ),
}
NAMED = {"anthropic": b"content_block_delta", "responses": b"response.output_text.delta"}
ANYWHERE = [b"{oops", b"{", b"<html>", b"not json", DEEP]


@each_row(
    ("name", "garbage"),
    [(name, garbage) for name in RICH for garbage in ANYWHERE + GARBAGE[name][1]],
    ids=lambda value: value[:40].decode() if isinstance(value, bytes) else value,
)
def test_garbage_in_the_midst_of_a_stream_is_a_protocol_error_that_shows_some_of_it(name: str, garbage: bytes) -> None:
    """failures.md B13."""
    events = events_in(RICH[name])
    # What is no JSON is none under the name of an event that is known either.
    named = [b"event: " + NAMED[name] + b"\ndata: "] if name in NAMED and garbage in ANYWHERE else []
    for head in (b"data: ", *named):
        with pytest.raises(ProtocolError, match=GARBAGE[name][0]) as caught:
            READINGS[name].read(b"".join((*events[:2], head + garbage + b"\n\n", *events[2:])))
        info = caught.value.info
        assert info.provider == READINGS[name].model.provider
        assert garbage[:5].decode() in f"{info.message}{info.body}"
        assert len(info.message) < 1_000


def outcome(name: str, stream: bytes) -> Any:
    """The answer, which can be written down, or why there is none."""
    try:
        return msgspec.json.decode(msgspec.json.encode(READINGS[name].read(stream)[1]), type=AssistantMessage)
    except ProviderError as error:
        return error.info


@pytest.mark.parametrize("name", RICH)
@given(data=st.data())
def test_no_damage_to_a_stream_breaks_the_reading(name: str, data: st.DataObject) -> None:
    """failures.md B13: what a server sends is read, passed over, or a `ProviderError`, and nothing else."""
    damaged = bytearray(RICH[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    assert outcome(name, bytes(damaged)).provider == READINGS[name].model.provider


@pytest.mark.parametrize("name", RICH)
@given(noise=st.binary(max_size=400), at=st.integers(0, 4))
def test_no_bytes_between_two_events_break_the_reading(name: str, noise: bytes, at: int) -> None:
    """failures.md B13."""
    events = events_in(RICH[name])
    stream = b"".join((*events[:at], noise, b"\n\n", *events[at:]))
    assert outcome(name, stream).provider == READINGS[name].model.provider
