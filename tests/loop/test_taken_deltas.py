"""Deltas that the run takes as they arrive, and not in a step of its task: when it does, and when it leaves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from time import process_time
from typing import Any, Self

import pytest

from steersman import Agent, AssistantMessage, TextContent
from steersman.events import AgentEvent
from steersman.loop.run import witness
from steersman.provider.streaming.batches import Batch, BatchedStreamFn, GeneratedBatches, TakeDeltas
from steersman.types.stream import Done, StreamStart, TextDelta, TextEnd, TextStart

COUNT = 1000


class Arriving:
    """An answer whose deltas arrive one by one while its next batch is waited for."""

    def __init__(self, before: Callable[[int], object] = str) -> None:
        self.refused: list[int] = []
        self._before = before
        self._arrived = -1
        self._take: TakeDeltas | None = None

    @property
    def stream_fn(self) -> BatchedStreamFn:
        return BatchedStreamFn(lambda model, request, options: self)

    def deliver_to(self, take: TakeDeltas) -> None:
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        self._arrived += 1
        if self._arrived == 0:
            return StreamStart(), TextStart(), TextDelta("0 ")
        assert self._take is not None
        while self._arrived < COUNT:
            self._before(self._arrived)
            delta = TextDelta(f"{self._arrived} ")
            if self._take((delta,)) == 0:
                self.refused.append(self._arrived)
                return (delta,)
            self._arrived += 1
        if self._arrived > COUNT:
            raise StopAsyncIteration
        return TextEnd(), Done(AssistantMessage([TextContent(WHOLE)]))

    async def aclose(self) -> None:
        pass


WHOLE = "".join(f"{number} " for number in range(COUNT))


def read_delta(event: AgentEvent) -> str:
    return event.delta.delta if event.type == "message_update" and event.delta.type == "text_delta" else ""


async def test_all_are_taken_where_nobody_reads() -> None:
    arriving = Arriving()
    assert (await Agent("mine:m", stream_fn=arriving.stream_fn).run("Go.")).text == WHOLE
    assert arriving.refused == []


async def test_a_reader_that_is_behind_is_waited_for() -> None:
    """The stream holds 256 events, however they come."""
    most: list[int] = []
    arriving = Arriving(lambda _: most.append(len(run.channel.buffer)))
    run = Agent("mine:m", stream_fn=arriving.stream_fn).prompt("Go.")
    assert "".join([read_delta(event) async for event in run]) == WHOLE
    assert (await run).text == WHOLE
    assert max(most) == 256
    assert 0 < len(arriving.refused) < COUNT / 50


async def test_none_is_taken_after_an_abort() -> None:
    arriving = Arriving(lambda number: agent.abort() if number == 100 else None)
    agent = Agent("mine:m", stream_fn=arriving.stream_fn)
    result = await agent.run("Go.")
    assert (result.end_reason, arriving.refused) == ("aborted", [100])


async def test_none_is_taken_while_somebody_subscribes_to_them() -> None:
    """A subscriber is called in the task of the run, whose context variables are those of the prompt."""
    arriving = Arriving()
    agent = Agent("mine:m", stream_fn=arriving.stream_fn)
    heard: list[str] = []
    subscription = agent.subscribe(lambda event: heard.append(read_delta(event)))
    assert (await agent.run("Go.")).text == "".join(heard) == WHOLE
    assert len(arriving.refused) == COUNT - 1
    agent.unsubscribe(subscription)


async def test_a_clock_that_raises_ends_the_run_and_is_no_failure_of_the_model() -> None:
    broken = [False, False]

    def read_clock() -> float:
        if any(broken):
            broken.remove(True)
            raise ValueError("The clock has stopped.")
        return 0.0

    arriving = Arriving(lambda number: broken.extend((True, True)) if number == 100 else None)
    result = await Agent("mine:m", stream_fn=arriving.stream_fn, clock=read_clock).run("Go.")
    assert (result.end_reason, result.detail) == ("error", "ValueError: The clock has stopped.")
    assert arriving.refused == [100]


MANY = 100_000


async def answer_at_once() -> GeneratedBatches:
    yield StreamStart(), TextStart()
    yield [TextDelta("1 ")] * MANY
    yield TextEnd(), Done(AssistantMessage([TextContent("1 " * MANY)]))


AT_ONCE = BatchedStreamFn(lambda model, request, options: answer_at_once())


async def iterate(agent: Agent) -> None:
    run = agent.prompt("Go.")
    assert sum([bool(read_delta(event)) async for event in run]) == MANY


async def await_stream(agent: Agent) -> None:
    assert (await agent.prompt("Go.")).text == "1 " * MANY


async def subscribe(agent: Agent) -> None:
    heard: list[str] = []
    agent.subscribe(lambda event: heard.append(read_delta(event)))
    assert (await agent.prompt("Go.")).text == "".join(heard) == "1 " * MANY


@pytest.mark.parametrize("consume", [iterate, await_stream, subscribe])
async def test_a_batch_of_very_many_deltas_takes_little_time(
    consume: Callable[[Agent], Coroutine[Any, Any, None]],
) -> None:
    """An event of 1 MB may hold so many, and the event loop must not stand still for them."""
    agent = Agent("mine:m", stream_fn=AT_ONCE)
    context = copy_context()
    context.run(witness.set, None)
    began = process_time()
    await asyncio.create_task(consume(agent), context=context)
    assert process_time() - began < 2
