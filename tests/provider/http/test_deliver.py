"""Deltas that arrive while a batch is waited for are taken at once: the same events, in the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, TypeAlias

import pytest
from tests.pace import hurry
from tests.provider.wires.kit import PlainServer, stream
from tests.provider.wires.protocols import SERVERS, TOLD
from tests.rows import each_row

from steersman import Agent
from steersman.provider.models.registry import find_stream_fn
from steersman.provider.streaming.batches import Batch
from steersman.provider.streaming.normalize import DELTAS, deliver_deltas, stream_batches
from steersman.provider.streaming.retry import with_retry
from steersman.provider.streaming.retry_strategy import Retry
from steersman.testing import answer
from steersman.testing.servers import Delivery
from steersman.types.messages import user_message
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, Failed, RetryNotice, StreamEvent, TextDelta

pytestmark = pytest.mark.real_time

CUTS = (1, 7, 60, 400)
MANY = 60
ASKED = Request("", [user_message("Hello?")])

HowMany: TypeAlias = Callable[[Batch], int]


class Taken:
    """The events of an answer, and which of them were taken as they arrived."""

    def __init__(self, how_many: HowMany) -> None:
        self.events: list[StreamEvent] = []
        self.taken: list[StreamEvent] = []
        self._how_many = how_many

    def take(self, batch: Batch) -> int:
        count = self._how_many(batch)
        self.events += batch[:count]
        self.taken += batch[:count]
        return count

    async def read(self, stream_fn: StreamFn, model: Model) -> Taken:
        batches = stream_batches(stream_fn, model, ASKED, StreamOptions())
        deliver_deltas(batches, self.take)
        async with aclosing(batches):
            async for batch in batches:
                self.events += batch
        return self


def shown(events: list[StreamEvent]) -> list[Any]:
    """Events without what differs from one request to the next."""
    return [event.message.text if isinstance(event, Done) else event for event in events]


@each_row("protocol", list(SERVERS))
@each_row("chunk", CUTS)
async def test_the_events_are_the_same_however_many_are_taken(protocol: str, chunk: int) -> None:
    chance = Random(f"{protocol} {chunk}")
    ways: Mapping[str, HowMany] = {
        "none": lambda batch: 0,
        "all": len,
        "the first": lambda batch: 1,
        "some": lambda batch: chance.randrange(len(batch) + 1),
    }
    async with SERVERS[protocol](Delivery(TOLD, chunk=chunk), repeat_last=True) as server:
        model = server.model()
        read = {way: await Taken(how_many).read(find_stream_fn(model), model) for way, how_many in ways.items()}
    assert isinstance(read["none"].events[-1], Done), read["none"].events[-1]
    expected = shown(read["none"].events)
    for way, one in read.items():
        assert shown(one.events) == expected, way
    assert all(type(event) in DELTAS for event in read["all"].taken)


async def test_a_delta_that_comes_alone_is_taken_as_it_arrives() -> None:
    async with PlainServer(Delivery(answer("x" * MANY, deltas=MANY), pace=0.001)) as server:
        read = await Taken(len).read(stream, server.model())
    assert len([event for event in read.taken if isinstance(event, TextDelta)]) > MANY / 2
    assert isinstance(read.events[-1], Done)
    assert read.events[-1].message.text == "x" * MANY


async def test_what_was_taken_is_in_the_failure_of_an_answer_that_breaks_off() -> None:
    said = b"".join(b'data: {"t":"%02d"}\n\n' % number for number in range(MANY))
    async with PlainServer(Delivery(said + b"data: nonsense\n\n", chunk=18, pace=0.001, ending="stall")) as server:
        read = await Taken(len).read(stream, server.model())
    last = read.events[-1]
    assert isinstance(last, Failed)
    assert last.error is not None
    assert last.error.kind == "protocol"
    pieces = [f"{number:02}" for number in range(MANY)]
    assert last.message.text == "".join(pieces)
    assert [event.delta for event in read.events if isinstance(event, TextDelta)] == pieces


async def test_each_attempt_gives_its_deltas() -> None:
    broken = Delivery(answer("x" * MANY, deltas=MANY), pace=0.001, at=MANY * 12, ending="close")
    whole = Delivery(answer("y" * MANY, deltas=MANY), pace=0.001)
    async with PlainServer(broken, whole) as server:
        read = await Taken(len).read(with_retry(stream, Retry(base_delay=0.001)), server.model())
    (notice,) = [at for at, event in enumerate(read.events) if isinstance(event, RetryNotice)]
    letters = {event.delta for event in read.taken if isinstance(event, TextDelta)}
    assert letters == {"x", "y"}
    assert {event.delta for event in read.events[:notice] if isinstance(event, TextDelta)} == {"x"}
    assert isinstance(read.events[-1], Done)
    assert read.events[-1].message.text == "y" * MANY


@pytest.mark.parametrize("bound", ["idle_timeout", "content_idle_timeout", "total_timeout"])
async def test_a_server_that_falls_silent_is_cut_off_after_taken_deltas(bound: str) -> None:
    said = b"".join(b'data: {"t":"%d"}\n\n' % number for number in range(MANY))
    endless = (said + b": still here\n\n" * 10_000) if bound == "content_idle_timeout" else said

    def take_and_hurry(batch: Batch) -> int:
        if len(read.taken) == MANY // 2:
            hurry()
        return len(batch)

    read = Taken(take_and_hurry)
    async with PlainServer(Delivery(endless, chunk=17, pace=0.001, ending="stall")) as server:
        await read.read(stream, server.model(settings={bound: 30}))
    last = read.events[-1]
    assert isinstance(last, Failed)
    assert last.error is not None
    assert (last.error.kind, bound in last.error.message) == ("stalled", True)
    assert len(read.taken) > MANY // 2


def count_steps(counts: dict[str, int]) -> Callable[..., asyncio.Task[Any]]:
    """A task factory that counts the steps of each coroutine, by its name."""

    async def step(coroutine: Any) -> Any:
        return await Counted(coroutine, counts)

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(step(coroutine), loop=loop, **more)

    return make_task


class Counted:
    """An awaitable that counts its steps."""

    def __init__(self, coroutine: Any, counts: dict[str, int]) -> None:
        self._coroutine = coroutine
        self._counts = counts

    def __await__(self) -> Any:
        steps, name = self._coroutine.__await__(), self._coroutine.__qualname__
        sent: BaseException | None = None
        while True:
            self._counts[name] = self._counts.get(name, 0) + 1
            try:
                waited = next(steps) if sent is None else steps.throw(sent)
            except StopIteration as stop:
                return stop.value
            try:
                sent = None
                yield waited
            except BaseException as thrown:  # noqa: BLE001  # handed on to the coroutine, which it is meant for
                sent = thrown


@each_row("protocol", [name for name in SERVERS if name != "bedrock"])  # its credentials are found in a generator
async def test_a_delta_costs_its_run_no_step(protocol: str) -> None:
    """It goes from the connection to the reader of the stream."""
    steps: dict[str, int] = {}
    loop = asyncio.get_running_loop()
    async with SERVERS[protocol](Delivery(answer("x" * 5 * MANY, deltas=MANY), pace=0.001)) as server:
        agent = Agent(server.model())
        loop.set_task_factory(count_steps(steps))
        try:
            run = agent.prompt("Hello?")
        finally:
            loop.set_task_factory(None)
        deltas = [event async for event in run if event.type == "message_update" and event.delta.type == "text_delta"]
        assert (await run).text == "x" * 5 * MANY
    assert len(deltas) == MANY
    assert steps["run_loop"] < MANY / 2, steps


def name_task() -> str:
    task = asyncio.current_task()
    return "" if task is None else getattr(task.get_coro(), "__qualname__", "")


@each_row("watched", [False, True])
async def test_a_subscriber_is_called_in_the_task_of_the_run(watched: bool) -> None:
    """So it sees the context variables of the prompt; deltas go past the task only if there is none."""
    tasks: set[str] = set()
    async with SERVERS["openai"](Delivery(answer("x" * MANY, deltas=MANY), pace=0.001)) as server:
        agent = Agent(server.model())
        if watched:
            agent.subscribe(lambda event: tasks.add(name_task()))
        assert (await agent.run("Hello?")).text == "x" * MANY
    assert tasks == ({"run_loop"} if watched else set())
