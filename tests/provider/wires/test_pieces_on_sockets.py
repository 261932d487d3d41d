"""Calls and characters that come in odd pieces over real sockets are put together as they were meant."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_chat.chat import calls, piece
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import (
    HIGH,
    LOW,
    MODELS,
    ONCE,
    Call,
    Text,
    Thought,
    calls_in,
    ids_in,
    replace_bytes,
    spoken,
    talk,
)
from tests.rows import each_row

from steersman import Agent
from steersman.testing.servers.anthropic.request import sign
from steersman.types import wire
from steersman.types.content import ThinkingContent
from steersman.types.events import MessageUpdate
from steersman.types.stream import StreamEvent, TextDelta, ToolCallDelta

pytestmark = pytest.mark.real_time

A, B = {"q": "a"}, {"q": "b"}
WHOLE_A, WHOLE_B = '{"q":"a"}', '{"q":"b"}'
CUT_A, CUT_B = ('{"q"', ':"a"}'), ('{"q"', ':"b"}')
ALONE = (b'"output_index":0,', b'"output_index":1,')


def chatted(*events: bytes) -> bytes:
    return b"".join((*events, chat.chunk(None, "tool_calls"), chat.DONE))


def messaged(*events: bytes) -> bytes:
    return b"".join((anthropic.begun(), *events, anthropic.ended("tool_use")))


def responded(*events: bytes) -> bytes:
    return b"".join((responses.begun(), *events, responses.ended()))


def woven() -> list[bytes]:
    """Two calls of the Responses API whose pieces take turns."""
    items = [{"id": f"fc_{at}", "call_id": f"c{at + 1}", "name": "act"} for at in range(2)]
    return [
        *(responses.added(at, "function_call", **item, arguments="") for at, item in enumerate(items)),
        *(responses.arguments(at, cut[half]) for half in range(2) for at, cut in enumerate((CUT_A, CUT_B))),
        *(
            responses.done(at, "function_call", **item, arguments="".join(cut))
            for (at, item), cut in zip(enumerate(items), (CUT_A, CUT_B), strict=True)
        ),
    ]


def unnumbered(stream: bytes) -> bytes:
    """The same without the places of items."""
    for index in ALONE:
        stream = stream.replace(index, b"")
    return stream


def opened(at: int) -> bytes:
    return anthropic.start(at, "tool_use", id=f"c{at + 1}", name="act", input={})


def grown(at: int, words: str) -> bytes:
    return anthropic.delta(at, "input_json_delta", partial_json=words)


def named(number: int | None, args: str, *, id: str | None = None) -> dict[str, Any]:
    return piece(number, id, "act", args)


# Gemini sends every call whole, one part each: there is nothing to put together.
TWO_CALLS = {
    "C1 anthropic": messaged(
        opened(0),
        opened(1),
        *(grown(at, cut[half]) for half in range(2) for at, cut in enumerate((CUT_A, CUT_B))),
        anthropic.stop(0),
        anthropic.stop(1),
    ),
    "C1 openai": chatted(
        calls(named(0, "", id="c1")),
        calls(named(1, "", id="c2")),
        *(calls(piece(at, args=cut[half])) for half in range(2) for at, cut in enumerate((CUT_A, CUT_B))),
    ),
    "C1 responses": responded(*woven()),
    "C1 google, in chunks of their own": spoken("google", Call(WHOLE_A), Call(WHOLE_B, id="c2")),
    "C1 google, in one chunk": google.stream(
        google.chunk(google.call("act", A, "c1"), google.call("act", B, "c2"), finish="STOP")
    ),
    # Without an index: by id, by place, or one after the other.
    "C2 openai, by id": chatted(
        calls(named(None, CUT_A[0], id="c1")),
        calls(named(None, CUT_B[0], id="c2")),
        calls(piece(id="c1", args=CUT_A[1])),
        calls(piece(id="c2", args=CUT_B[1])),
    ),
    "C2 openai, by place": chatted(
        calls(named(None, CUT_A[0]), named(None, CUT_B[0])), calls(piece(args=CUT_A[1]), piece(args=CUT_B[1]))
    ),
    "C2 openai, one after the other": chatted(
        calls(named(None, CUT_A[0], id="c1")),
        calls(piece(args=CUT_A[1])),
        calls(named(None, CUT_B[0], id="c2")),
        calls(piece(args=CUT_B[1])),
    ),
    "C2 openai, all called 0": chatted(calls(named(0, WHOLE_A, id="c1")), calls(named(0, WHOLE_B, id="c2"))),
    "C2 responses, by id": unnumbered(responded(*woven())),
    "C2 responses, one after the other": unnumbered(
        responded(responses.called(0, "c1", "act", *CUT_A), responses.called(1, "c2", "act", *CUT_B))
    ).replace(b'"item_id":', b'"was":'),
    "C2 anthropic": messaged(anthropic.called(0, "c1", "act", *CUT_A), anthropic.called(1, "c2", "act", *CUT_B))
    .replace(b'"index":0,', b"")
    .replace(b'"index":1,', b""),
    # Two entries for one index in one chunk.
    "C4 openai": chatted(
        calls(piece(0, "c1", "act"), piece(0, args=WHOLE_A)), calls(piece(1, "c2", "act"), piece(1, args=WHOLE_B))
    ),
    "C5 openai, named in every piece": chatted(
        calls(named(0, "", id="c1")),
        *(calls(named(0, half)) for half in CUT_A),
        calls(named(1, "", id="c2")),
        *(calls(named(1, half)) for half in CUT_B),
    ),
    "C5 openai, a name in two pieces": chatted(
        calls(piece(0, "c1", "ac", "")),
        calls(piece(0, None, "t", "")),
        calls(piece(0, args=WHOLE_A)),
        calls(named(1, WHOLE_B, id="c2")),
    ),
    "C5 openai, an empty end": chatted(
        calls(named(0, WHOLE_A, id="c1")),
        calls(named(1, WHOLE_B, id="c2")),
        calls({"index": 2, "id": "", "function": {"arguments": ""}}),
        calls({"index": 3, "function": {"name": "", "arguments": ""}}),
        calls({"id": "", "function": {"arguments": ""}}),
        calls({"index": 1, "id": "", "function": {"name": "", "arguments": ""}}),
    ),
    "C5 anthropic, an empty end": messaged(
        anthropic.called(0, "c1", "act", *CUT_A, ""), anthropic.called(1, "c2", "act", *CUT_B, ""), grown(1, "")
    ),
    "C5 responses, an empty end": responded(
        responses.called(0, "c1", "act", *CUT_A, ""),
        responses.called(1, "c2", "act", *CUT_B, ""),
        responses.arguments(1, ""),
        responses.added(2, "function_call", id="", call_id="", name="", arguments=""),
        responses.done(2, "function_call", id="", call_id="", name="", arguments=""),
    ),
    "C5 google, calls without a name": google.stream(
        google.chunk(google.call("act", A, "c1"), google.call("act", B, "c2")),
        google.chunk({"functionCall": {}}, {"functionCall": {"name": "", "args": {}}}, finish="STOP"),
    ),
    # A server that leaves out the ids of items gives calls apart by the ids of calls alone.
    "A12 responses": responded(
        *(
            responses.done(at, "function_call", call_id=f"c{at + 1}", name="act", arguments=whole)
            for at, whole in enumerate((WHOLE_A, WHOLE_B))
        )
    ),
    "A12 responses, with deltas": responded(
        *(
            event.replace(f'"id":"fc_{at}",'.encode(), b"").replace(f'"item_id":"fc_{at}",'.encode(), b"")
            for at, cut in enumerate((CUT_A, CUT_B))
            for event in (responses.called(at, f"c{at + 1}", "act", *cut),)
        )
    ),
}


@each_row("form", TWO_CALLS)
async def test_two_calls_are_two_calls_in_whatever_pieces_they_come(form: str) -> None:
    """failures.md C1, C2, C4, C5, A12."""
    name = form.split()[1].rstrip(",")
    got = await talk(name, TWO_CALLS[form])
    assert (got.result.end_reason, got.result.detail, got.result.text) == ("done", "", "Fine.")
    assert (got.ran, got.answer.stop_reason) == ([A, B], "tool_use")
    sent = got.server.requests[1]
    assert calls_in(name, sent) == [("act", A), ("act", B)]
    first, second = ids_in(name, sent)
    assert first != second
    assert "place" in form or (first, second) == ("c1", "c2")


@pytest.mark.parametrize("name", SERVERS)
async def test_a_character_that_comes_in_two_deltas_is_whole_again(name: str) -> None:
    """failures.md C18: in words, in thinking and in arguments; half a one alone is replaced."""
    words = Text(f"a {HIGH}", f"{LOW} b", f" lone {HIGH}", f" {LOW}.")
    arguments = f'{{"q":"{HIGH}{LOW}"}}'
    blocks = (Thought(f"Hm {HIGH}{LOW}", 0), words, Call(arguments, cuts=(arguments.index(LOW),)))
    stream = spoken(name, *blocks)
    # Signed as it is meant.
    stream = replace_bytes(name, stream, sign(f"Hm {HIGH}{LOW}").encode(), sign("Hm 🙂").encode())
    got = await talk(name, stream)
    assert (got.result.end_reason, got.result.detail, got.ran) == ("done", "", [{"q": "🙂"}])
    assert got.answer.text == "a 🙂 b lone \ufffd \ufffd."
    assert [block.thinking for block in got.answer.content if isinstance(block, ThinkingContent)] == ["Hm 🙂"]
    assert calls_in(name, got.server.requests[1]) == [("act", {"q": "🙂"})]
    for message in got.result.messages:
        assert wire.decode(wire.encode(message)) == message


@pytest.mark.parametrize("name", SERVERS)
async def test_every_event_of_such_an_answer_can_be_written_down(name: str) -> None:
    """failures.md C18: in the first delta of a block and in a later one; what was shown is what was meant."""
    arguments = f'{{"q":"{HIGH}{LOW}"}}'
    said = (f"a {HIGH}", f"{LOW} b"), ("plain", f" lone {HIGH}", " and", f" {HIGH}", f"{LOW}", f" {LOW}.")
    blocks = (Text(*said[0]), Call(arguments, cuts=(arguments.index(LOW),)), Text(*said[1]))
    shown: list[StreamEvent] = []
    async with SERVERS[name](spoken(name, *blocks, end="stop")) as server:
        agent = Agent(server.model(MODELS.get(name, "test-model")), retry=ONCE)
        stream = agent.prompt("Go.")
        async for event in stream:
            assert msgspec.json.encode(event)
            if isinstance(event, MessageUpdate):
                shown.append(event.delta)
    words = "".join(event.delta for event in shown if isinstance(event, TextDelta))
    assert words == "a 🙂 bplain lone \ufffd and 🙂 \ufffd."
    written = "".join(event.delta for event in shown if isinstance(event, ToolCallDelta))
    assert json.loads(written) == {"q": "🙂"}


@each_row("name", SERVERS)
@each_row("second", [",", ":", '"', "\\", "{", "}", "[]", "null", "text", "delta", "content", "index", "\n"])
async def test_a_delta_may_be_what_stands_around_every_delta(name: str, second: str) -> None:
    """failures.md C18: whatever is recognised instead of parsed, the words are those that were sent."""
    got = await talk(name, spoken(name, Text("Yes", second, second, " sir", second), end="stop"))
    assert (got.result.end_reason, got.result.detail) == ("done", "")
    assert got.answer.text == f"Yes{second}{second} sir{second}"
