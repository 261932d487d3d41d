"""Agents that share a key do not storm a server that has told them to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from tests.provider.streaming.streams import HELLO, REQUEST
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, Retry
from steersman.provider.streaming.normalize import stream_events
from steersman.provider.streaming.retry import MAX_EXTRA_WAIT, SLOT_SECONDS, reserve_slot, with_retry
from steersman.provider.streaming.retry_strategy import RetryStrategy
from steersman.testing import run_virtual
from steersman.testing.servers import Received
from steersman.types.errors import ErrorInfo, NetworkError, OverloadedError, ProviderError, RateLimitError
from steersman.types.events import AgentEvent, RetryScheduled
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamEvent

MANY = 200


class Limited:
    """A server that sends everybody away so often; it knows when it was asked by whom."""

    def __init__(self, error: ProviderError, times: int = 1) -> None:
        self.error = error
        self.left: dict[str, int] = {}
        self.times = times
        self.asked: list[float] = []

    async def __call__(
        self, model: Model, request: Request, options: StreamOptions, /
    ) -> AsyncGenerator[StreamEvent, None]:
        return self._answer(model)

    async def _answer(self, model: Model) -> AsyncGenerator[StreamEvent, None]:
        self.asked.append(asyncio.get_running_loop().time())
        left = self.left.setdefault(model.id, self.times)
        self.left[model.id] -= 1
        if left > 0:
            raise self.error
        yield Done(HELLO)


def asked_by(models: list[Model], limited: Limited, retry: RetryStrategy | None = None) -> list[float]:
    """When the server was asked, by all these at once."""

    async def one(model: Model) -> AssistantMessage:
        stream_fn = with_retry(limited, retry or Retry())
        events = [event async for event in stream_events(stream_fn, model, REQUEST, StreamOptions())]
        assert isinstance(events[-1], Done), events[-1]
        return events[-1].message

    async def everybody() -> None:
        async with asyncio.TaskGroup() as group:
            for model in models:
                group.create_task(one(model))

    run_virtual(everybody())
    return limited.asked


def busiest(times: list[float], seconds: float = 1.0) -> int:
    """The most requests of any span of so many seconds."""
    return max(sum(start <= time < start + seconds for time in times) for start in times)


def models(count: int, **fields: Any) -> list[Model]:
    return [Model("scripted", f"m{number}", **fields) for number in range(count)]


@pytest.mark.parametrize(
    "error",
    [RateLimitError("slow down", retry_after=1.0), RateLimitError("slow down"), OverloadedError("busy")],
    ids=["with a delay", "without one", "overloaded"],
)
def test_two_hundred_agents_that_are_sent_away_come_back_one_by_one(error: ProviderError) -> None:
    """failures.md E13"""
    limited = Limited(error)
    asked = asked_by(models(MANY, api_key="key"), limited)
    assert asked[:MANY] == [0.0] * MANY
    again = asked[MANY:]
    assert len(again) == MANY
    assert again == sorted(again)
    # Slots are moved a little, each by less than itself, so that other programs do not fall into step with them.
    assert busiest(again) <= 1 / SLOT_SECONDS + 1
    assert again[-1] < 1.0 + 2 * SLOT_SECONDS * MANY


def test_they_are_not_faster_when_they_are_sent_away_again() -> None:
    """failures.md E13"""
    asked = asked_by(models(50), Limited(RateLimitError("slow down", retry_after=2.0), times=2))
    assert len(asked) == 150
    assert busiest(asked[50:]) <= 1 / SLOT_SECONDS + 1


def test_a_single_agent_waits_as_long_as_the_server_says_and_no_longer() -> None:
    asked = asked_by(models(1), Limited(RateLimitError("slow down", retry_after=3.0), times=2))
    assert asked == [0.0, 3.0, 6.0]


@pytest.mark.parametrize(
    "others",
    [
        [Model("scripted", "other")],
        [Model("other", "m", base_url="http://a")],
        [Model("scripted", "m", api_key="other")],
    ],
    ids=["no key", "another provider", "another key"],
)
def test_agents_with_another_key_are_not_waited_for(others: list[Model]) -> None:
    both = [Model("scripted", "one", api_key="key"), *others]
    asked = asked_by(both, Limited(RateLimitError("slow down", retry_after=1.0)))
    assert asked == [0.0, 0.0, 1.0, 1.0]


def test_those_who_ask_the_same_function_for_their_key_share_it() -> None:
    def mine() -> str:
        return "mine"

    def another() -> str:
        return "another"

    asking = [Model("scripted", name, api_key=key) for name, key in (("a", mine), ("b", another), ("c", mine))]
    asked = asked_by(asking, Limited(RateLimitError("slow down", retry_after=1.0)))
    assert asked[:5] == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert asked[5] > 1.0


def test_agents_that_ask_a_function_for_their_key_do_not_wait() -> None:
    """Of two who are served with one program, each has a limit of its own."""
    waits: list[tuple[str, float]] = []

    async def one(key: str) -> None:
        def heard(event: AgentEvent) -> None:
            if isinstance(event, RetryScheduled):
                waits.append((key, event.delay))

        def keys(provider: str) -> str:
            return key

        limited = Limited(RateLimitError("slow down", retry_after=1.0))
        agent = Agent(Model("scripted", key), stream_fn=limited, get_api_key=keys, retry=Retry())
        agent.subscribe(heard)
        await agent.run("Hello.")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            for key in ("a", "b"):
                group.create_task(one(key))

    run_virtual(both())
    assert waits == [("a", 1.0), ("b", 1.0)]


def test_a_long_wait_of_one_is_not_that_of_another() -> None:
    async def waits() -> list[float]:
        model, options = Model("scripted", "m"), StreamOptions()
        return [reserve_slot(model, options, delay, lambda: 0.5) for delay in (30.0, 1.0, 30.0, 1.0)]

    assert [round(wait, 3) for wait in run_virtual(waits())] == [30.0, 1.0, 30.075, 1.075]


def test_a_broken_connection_does_not_limit_other_agents() -> None:
    asked = asked_by(models(5), Limited(NetworkError("reset")), Retry(jitter=0))
    assert asked == [0.0] * 5 + [1.0] * 5


def test_no_agent_waits_for_ever_behind_a_crowd() -> None:
    """failures.md E13: where all turns are taken, as many come at any time as at any other."""
    chance = Random(1)

    async def waits() -> list[float]:
        options = StreamOptions()
        return [reserve_slot(Model("scripted", "m"), options, 1.0, chance.random) for _ in range(5000)]

    found = run_virtual(waits())
    turns = int(MAX_EXTRA_WAIT / SLOT_SECONDS) - 1
    assert found[0] == 1.0
    assert all(later > earlier for earlier, later in pairwise(found[:turns]))
    assert max(found) <= 1.0 + MAX_EXTRA_WAIT
    assert busiest(found) < 2 * 5000 / MAX_EXTRA_WAIT


@pytest.mark.parametrize("retry_after", [1.0, None])
def test_no_agent_waits_longer_than_wanted(retry_after: float | None) -> None:
    """loop.md 8: also for others, though they come closer together then."""
    limited = Limited(RateLimitError("slow down", retry_after=retry_after))
    asked = asked_by(models(MANY, api_key="key"), limited, Retry(max_delay=3.0))
    again = asked[MANY:]
    assert (len(again), max(again) <= 3.0) == (MANY, True)
    assert busiest(again, 0.5) < MANY / 2


def test_an_agent_whose_longest_wait_is_what_the_server_says_waits_no_longer() -> None:
    """loop.md 8"""
    limited = Limited(RateLimitError("slow down", retry_after=3.0))
    assert asked_by(models(20, api_key="key"), limited, Retry(max_delay=3.0))[20:] == [3.0] * 20


def test_a_strategy_without_a_longest_wait_waits_for_others() -> None:
    class Own:
        def should_retry(self, error: ErrorInfo, attempt: int, /) -> bool:
            return attempt < 3

        def delay(self, error: ErrorInfo, attempt: int, /) -> float:
            return 1.0

    again = asked_by(models(100, api_key="key"), Limited(RateLimitError("slow down")), Own())[100:]
    assert busiest(again) <= 1 / SLOT_SECONDS + 1


def test_what_is_past_is_forgotten() -> None:
    async def waits() -> float:
        for number in range(3000):
            reserve_slot(Model("scripted", "m", api_key=f"key-{number}"), StreamOptions(), 0.0, lambda: 0.0)
            await asyncio.sleep(1)
        return reserve_slot(Model("scripted", "m", api_key="key-1"), StreamOptions(), 0.0, lambda: 0.0)

    assert run_virtual(waits()) == 0.0


@pytest.mark.real_time
@pytest.mark.parametrize("protocol", SERVERS)
async def test_agents_on_one_server_get_a_turn_each(protocol: str) -> None:
    """failures.md E13, on real sockets: what each is told to wait is another turn."""
    count = 8
    came = 0

    def answer(_: Received) -> Any:
        nonlocal came
        came += 1
        return server.refusal(429, "Slow down.", headers={"retry-after-ms": "1"}) if came <= count else "Well."

    delays: list[tuple[float, float]] = []

    def heard(event: AgentEvent) -> None:
        if isinstance(event, RetryScheduled):
            delays.append((asyncio.get_running_loop().time(), event.delay))

    async with SERVERS[protocol](answer, repeat_last=True) as server:
        agents = [Agent(server.model()) for _ in range(count)]
        for agent in agents:
            agent.subscribe(heard)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(agent.run("Hello?")) for agent in agents]
    assert [task.result().text for task in tasks] == ["Well."] * count
    turns = sorted(when + delay for when, delay in delays)
    assert len(turns) == count
    # Each was heard of a moment after it was given.
    assert turns[-1] - turns[0] > SLOT_SECONDS * (count - 2)
