"""What later versions of a protocol may bring comes over a real socket, and is passed over or kept for the way back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.provider.wires.anthropic import kit as anthropic
from tests.provider.wires.bedrock import kit as bedrock
from tests.provider.wires.google import streams as google
from tests.provider.wires.openai_chat import chat
from tests.provider.wires.openai_responses import kit as responses
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import Call, Text, items_in, split_events, spoken, talk

from steersman.testing.servers.exchange import sse

pytestmark = pytest.mark.real_time

NEW: dict[str, Any] = {"type": "new_thing", "x": [1, {"y": None}]}
# Events, and deltas, of unknown kinds: for any place between the events of an answer.
STRANGE = {
    "bedrock": [
        bedrock.framed("newThing", NEW),
        bedrock.delta(0, newDelta={"x": 1}),
        bedrock.delta(7, citation={"title": "x"}),
        bedrock.start(8, newBlock={"x": 1}),
        bedrock.stop(9),
    ],
    "anthropic": [
        sse(NEW, "new_thing"),
        sse(NEW),
        anthropic.delta(0, "new_delta", x=1),
        anthropic.delta(7, "new_delta", x=1),
        anthropic.event("content_block_stop", index=9),
    ],
    "google": [
        sse({"newThing": {"x": 1}}),
        sse({"candidates": [{"index": 0, "newThing": 1}]}),
        sse({"candidates": [{"index": 0, "content": {"parts": [{"thought": True}], "newThing": 1}}]}),
    ],
    "openai": [
        sse({"object": "new.thing", "x": 1}),
        sse(NEW, "new_thing"),
        chat.chunk({"new_thing": NEW}),
        chat.chunk({"content": None}, None, new_thing=NEW),
    ],
    "responses": [
        sse({"type": "response.new_thing", "x": 1}, "response.new_thing"),
        sse({"type": "response.new_thing", "delta": {"x": 1}, "output_index": "last"}, "response.new_thing"),
        sse(NEW, "new_thing"),
        responses.event("response.new_thing.delta", output_index=0, delta="x"),
    ],
}


@pytest.mark.parametrize("name", SERVERS)
async def test_unknown_events_and_deltas_are_passed_over(name: str) -> None:
    """failures.md D16: before, between and behind what is known."""
    events = split_events(name, spoken(name, Text("So", "."), Call('{"path":"a"}')))
    for strange in STRANGE[name]:
        got = await talk(name, strange + strange.join(events))
        assert (got.result.end_reason, got.result.detail, got.answer.text) == ("done", "", "So."), strange
        assert (got.ran, got.told) == ([{"path": "a"}], [("act", "acted", False)]), strange


PART = {"executableCode": {"language": "PYTHON", "code": "1"}}
ITEM = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
# Blocks of unknown types go back unchanged. Chat Completions has no blocks.
OPAQUE: dict[str, tuple[bytes, Any]] = {
    "anthropic": (anthropic.event("content_block_start", index=0, content_block=NEW) + anthropic.stop(0), NEW),
    "bedrock": (
        bedrock.start(0, toolResult={"toolUseId": "s1", "status": "success"})
        + bedrock.delta(0, toolResult=[{"text": "found"}])
        + bedrock.stop(0),
        {"toolResult": {"toolUseId": "s1", "status": "success", "content": [{"text": "found"}]}},
    ),
    "google": (google.stream(google.chunk(PART)), PART),
    "responses": (responses.event("response.output_item.done", output_index=0, item=ITEM), ITEM),
}


@pytest.mark.parametrize("name", OPAQUE)
async def test_a_block_of_an_unknown_type_goes_back_as_it_came(name: str) -> None:
    """failures.md D16."""
    block, sent = OPAQUE[name]
    match name:
        case "anthropic":
            stream = anthropic.begun() + block + anthropic.called(1, "c1", "act", "{}") + anthropic.ended("tool_use")
        case "bedrock":
            stream = bedrock.begun() + block + bedrock.called(1, "c1", "act", "{}") + bedrock.ended("tool_use")
        case "google":
            stream = block + spoken(name, Call())
        case _:
            stream = responses.begun() + block + responses.called(1, "c1", "act", "{}") + responses.ended()
    got = await talk(name, stream)
    assert (got.result.end_reason, got.result.detail, got.ran) == ("done", "", [{}])
    for request in got.server.requests[1:]:
        assert list(items_in(name, request))[1] == sent
