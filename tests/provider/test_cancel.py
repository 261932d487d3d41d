"""Whatever a provider call waits for, a cancel there closes its connection and spoils nothing that comes after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, TypeVar, cast

import pytest
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, tool
from steersman.provider.http.client import aclose_http
from steersman.provider.models.registry import find_stream_fn
from steersman.provider.streaming.normalize import stream_events
from steersman.testing import answer, call, thinking
from steersman.testing.servers import Delivery, Received, StrictServer
from steersman.types.messages import user_message
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, StreamEvent

pytestmark = pytest.mark.real_time

T = TypeVar("T")
KINDS = list(SERVERS.values())
CALLS = answer(thinking("Let me think."), "Let me look.", call("look", at="x"), call("look", at="y"))
# In pieces that are waited for one by one. Of two the line stays open behind the answer: only a client that closes its
# connection is seen to leave.
ENDED = Delivery(CALLS, chunk=400, pace=0.001)
HELD = Delivery(answer(thinking("Let me think."), "Fine."), chunk=400, pace=0.001, ending="stall")
HELD_CALLS = Delivery(CALLS, chunk=400, pace=0.001, ending="stall")
SETTINGS = {"idle_timeout": 1.0}
# The connection, the head, the first bytes and some more; how many come at once is not ours to say.
ENOUGH = 4


class Stepped(Awaitable[T]):
    """An awaitable that calls `tick` each time it has to wait."""

    def __init__(self, inner: Awaitable[T], tick: Callable[[], object]) -> None:
        self._inner = inner
        self._tick = tick

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._inner.__await__()
        sent: BaseException | None = None
        while True:
            try:
                waited = next(steps) if sent is None else steps.throw(sent)
            except StopIteration as stop:
                return stop.value
            self._tick()
            try:
                sent = None
                yield waited
            except BaseException as thrown:  # noqa: BLE001  # handed on to the awaitable, which it is meant for
                sent = thrown


def stepping(tick: Callable[[], object]) -> StreamFn:
    """The model's own provider, calling `tick` at every await of it."""

    async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[StreamEvent, None]:
        source = cast(AsyncGenerator[StreamEvent, None], find_stream_fn(model)(model, request, options))
        try:
            while True:
                try:
                    event = await Stepped(source.__anext__(), tick)
                except StopAsyncIteration:
                    return
                yield event
        finally:
            await source.aclose()

    return stream


@tool
def look(at: str) -> str:
    """Look somewhere."""
    return f"{at} is fine"


class Countdown:
    """Acts at the `step`-th tick; `ticks` is how many there were."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.ticks = 0
        self.act: Callable[[], object] = lambda: None

    def __call__(self) -> None:
        self.ticks += 1
        if self.ticks == self.step:
            self.act()


@pytest.mark.parametrize("told", [HELD, ENDED], ids=["held", "ended"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_abort_at_every_await_closes_the_connection_and_the_next_prompt_is_taken(
    kind: type[StrictServer], told: Delivery
) -> None:
    """failures.md A1, D8, I12: whatever had arrived, thinking and half calls included."""

    def reply(received: Received) -> Any:
        return "Fine." if b"And now?" in received.body or b"is fine" in received.body else told

    cancelled = 0
    while True:
        async with kind(reply, repeat_last=True) as server:
            tick = Countdown(cancelled + 1)
            agent = Agent(server.model(settings=SETTINGS), tools=[look], stream_fn=stepping(tick))
            tick.act = agent.abort
            result = await agent.run("Look at x and y.")
            if tick.ticks < tick.step:
                assert (result.end_reason, result.text) == ("done", "Fine.")
                break
            assert result.end_reason == "aborted"
            cancelled += 1
            again = await agent.run("And now?")
            assert (again.end_reason, again.text) == ("done", "Fine.")
            async with asyncio.timeout(10):
                outcomes = [(received.connection, await received.wait_for_outcome()) for received in [*server.raw]]
            if told is HELD:
                assert sorted(outcome for _, outcome in outcomes) in (["answered"], ["answered", "left"])
                assert len(dict(outcomes)) == len(outcomes)
    assert cancelled >= ENOUGH


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_task_closes_the_connection_at_every_await(kind: type[StrictServer]) -> None:
    """failures.md F6, I12: and leaves no task behind."""
    cancelled = 0
    async with kind(HELD_CALLS, repeat_last=True) as server:
        while True:
            await aclose_http()  # so that the connection is waited for as well
            before = len(server.raw)
            tick = Countdown(cancelled + 1)
            task = asyncio.create_task(answered(server.model(settings=SETTINGS), tick))
            tick.act = task.cancel
            await asyncio.wait([task])
            async with asyncio.timeout(10):
                assert {await received.wait_for_outcome() for received in server.raw[before:]} <= {"left"}
            assert len(asyncio.all_tasks()) == 1
            if not task.cancelled():
                assert isinstance(task.result(), Done)
                break
            cancelled += 1
    assert cancelled >= ENOUGH


async def answered(model: Model, tick: Countdown) -> StreamEvent:
    request = Request("", [user_message("Look at x and y.")], [look])
    return [event async for event in stream_events(stepping(tick), model, request, StreamOptions())][-1]
