"""A run leaves nothing for the garbage collector: everything of a turn is freed when it is no longer needed."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from steersman import Agent, ExecutionLimits, tool
from steersman.testing import ScriptedModel, answer, call
from steersman.testing.servers import OpenAIChatServer

TURNS = 1000
UNLIMITED = ExecutionLimits(max_turns=None, max_total_tokens=None, max_duration=None)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only the garbage collector can free, from here on, once it has run."""
    for _ in range(3):  # what earlier tests have left may keep more of it, by a weak key
        gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def count_types(garbage: list[object]) -> Counter[str]:
    gc.collect()
    return Counter(type(one).__qualname__ for one in garbage)


async def test_a_thousand_turns_leave_no_garbage(garbage: list[object]) -> None:
    model = ScriptedModel(*[answer("thinking", call("add", a=number, b=1)) for number in range(TURNS)], "done")
    agent = Agent(model.model, tools=[add], limits=UNLIMITED)
    seen = 0
    stream = agent.prompt("Go.")
    async for _ in stream:
        seen += 1
    assert (await stream).text == "done"
    assert seen > 10 * TURNS
    left = count_types(garbage)
    assert left == Counter()


async def test_runs_leave_no_garbage(garbage: list[object]) -> None:
    @tool
    async def stop() -> str:
        """Abort the run."""
        agent.abort()
        return "aborted"

    agent = Agent(ScriptedModel(answer(call("add", a=1, b=1)), "done", answer(call("stop"))).model, tools=[add, stop])
    ends = [(await agent.run("Go.")).end_reason for _ in range(2)]
    assert ends == ["done", "aborted"]
    assert count_types(garbage) == Counter()


@pytest.mark.real_time
async def test_turns_over_http_leave_no_garbage(garbage: list[object]) -> None:
    script = [answer("thinking", call("add", a=number, b=1)) for number in range(50)]
    async with OpenAIChatServer("warm", *script, "done") as server:
        agent = Agent(server.model(), tools=[add], limits=UNLIMITED)
        await agent.run("Warm up: what is imported at first use leaves garbage.")
        before = sum(count_types(garbage).values())
        assert (await agent.run("Go.")).text == "done"
        left = count_types(garbage)
    # Less than one object a turn: the server is in this process too.
    assert sum(left.values()) - before < 50, left
