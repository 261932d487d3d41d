"""Streams that break, and callers that leave, at every place."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pytest
from tests.provider.wires.openai_responses.kit import begun, ended, said

from steersman import Agent, Retry
from steersman.provider.http.client import aclose_http, http_stream
from steersman.provider.streaming.normalize import stream_events
from steersman.provider.wires.openai_responses.wire import WIRE
from steersman.testing import answer, call, stall, thinking
from steersman.testing.servers import Delivery, OpenAIResponsesServer
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent

pytestmark = pytest.mark.real_time

T = TypeVar("T")
REQUEST = Request("", [user_message("Hi")])
STREAM_FN = http_stream(WIRE)
STREAM = begun() + said(0, "Hel", "lo") + ended()


async def answered(model: Model) -> list[StreamEvent]:
    return [event async for event in stream_events(STREAM_FN, model, REQUEST, StreamOptions())]


async def test_without_retries_the_partial_text_stays() -> None:
    partial = Delivery(STREAM, at=STREAM.index(b'"lo"') + 8, ending="close")
    async with OpenAIResponsesServer(partial, partial) as server:
        result = await Agent(server.model(), retry=Retry(max_attempts=2, base_delay=0)).run("Hi")
        last = result.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert (result.end_reason, last.stop_reason, last.text) == ("error", "error", "Hello")
        assert len(server.requests) == 2
        await aclose_http()


@pytest.mark.parametrize("chunk", [1, 7, 100])
async def test_a_stream_in_small_pieces_is_the_same(chunk: int) -> None:
    """failures.md B1."""
    said = answer(thinking("想一想 🤔"), "Größe 🙂", call("add", a=1, text="日本"))
    async with OpenAIResponsesServer(said, Delivery(said, chunk=chunk)) as server:
        model = server.model()
        whole, pieces = (await answered(model))[-1], (await answered(model))[-1]
        assert isinstance(whole, Done)
        assert isinstance(pieces, Done)
        assert pieces.message.text == whole.message.text == "Größe 🙂"
        assert pieces.message.tool_calls[0].arguments == {"a": 1, "text": "日本"}
        await aclose_http()


async def test_after_a_cancel_at_any_event_the_next_prompt_is_taken() -> None:
    """failures.md A1, I3, I12."""
    first = answer(thinking("Hm."), "Let me see.", call("look"), call("look"), deltas=2)
    total = 40
    for stop in range(total):
        async with OpenAIResponsesServer(first, "Seen.", "Hello.", "Hello.") as server:
            agent = Agent(server.model(), tools=[look])
            seen = 0

            def count(_: Any, agent: Agent = agent, stop: int = stop) -> None:
                nonlocal seen
                seen += 1
                if seen == stop:
                    agent.abort()

            number = agent.subscribe(count)
            await agent.run("Hi")
            agent.unsubscribe(number)
            result = await agent.run("And now?")
            assert (result.end_reason, result.text) in (("done", "Hello."), ("done", "Seen.")), stop
            assert agent.context.messages[-1] is result.messages[-1]
            await aclose_http()


def look() -> str:
    """Look around."""
    return "nothing"


async def test_a_stall_is_an_error_when_there_is_a_limit_to_patience() -> None:
    """failures.md B14."""
    async with OpenAIResponsesServer(stall("Hello", after=2)) as server:
        last = (await answered(server.model(settings={"idle_timeout": 0.05})))[-1]
        assert isinstance(last, Failed)
        assert last.error is not None
        assert last.error.kind == "stalled"
        assert await server.raw[0].wait_for_outcome() == "left"
        await aclose_http()


async def test_the_answer_is_there_with_its_terminal_event_though_the_connection_stays_open() -> None:
    """failures.md B8."""
    async with OpenAIResponsesServer(Delivery(STREAM, ending="stall")) as server:
        last = (await asyncio.wait_for(answered(server.model()), 5))[-1]
        assert isinstance(last, Done)
        assert last.message.text == "Hello"
        await aclose_http()
