"""Limits, usage and backoff: what has gone wrong elsewhere, and must not here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.play import answering, listened, said

from steersman import Agent, ExecutionLimits, Retry, Stop, Usage, tool
from steersman.testing import ScriptedModel, answer, call, error, stall
from steersman.types.errors import ErrorInfo
from steersman.types.events import AgentEnd
from steersman.types.messages import AssistantMessage


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(10)
    return "seen"


async def test_e12_a_cancel_during_a_long_backoff_ends_the_run_at_once() -> None:
    """failures.md E12"""
    script = ScriptedModel(error(ErrorInfo("rate_limit", "slow down", retry_after=60)), "never")
    agent, events = listened(script, retry=Retry(max_delay=60))
    stream = agent.prompt("go")
    await asyncio.sleep(10)
    agent.abort()
    before = asyncio.get_running_loop().time()
    result = await stream

    assert asyncio.get_running_loop().time() - before < 0.05
    assert (result.end_reason, script.asked, len(events.of(AgentEnd))) == ("aborted", 1, 1)


async def test_i7_usage_that_grows_during_a_stream_is_counted_once() -> None:
    """failures.md I7"""
    turns = [answer(call("look"), usage=Usage(input=100, output=10)), answer("done", usage=Usage(input=150, output=5))]
    agent, events = listened(ScriptedModel(*turns), tools=[look])
    seen: list[Any] = []
    agent.subscribe(lambda event: seen.append(event.usage.total) if isinstance(event, AgentEnd) else None)
    result = await agent.run("go")

    each = [message.usage for message in result.messages if isinstance(message, AssistantMessage)]
    assert result.usage == each[0] + each[1] == Usage(input=250, output=15)
    assert (seen, events.of(AgentEnd)[0].usage) == ([265], result.usage)


async def test_i7_cached_tokens_are_counted_beside_the_others_and_reasoning_within_the_output() -> None:
    """failures.md I7"""
    usage = Usage(input=10, output=20, cache_read=30, cache_write=40, reasoning=15)
    agent, _ = listened(ScriptedModel(answer("done", usage=usage)))

    assert (await agent.run("go")).usage.total == 100


async def test_i8_the_usage_of_an_aborted_answer_is_unknown_and_not_zero() -> None:
    """failures.md I8"""
    script = ScriptedModel(answer(call("look"), usage=Usage(input=10, output=1)), stall("half", after=1))
    agent, _ = listened(script, tools=[look])
    stream = agent.prompt("go")
    await asyncio.sleep(20)
    agent.abort()
    result = await stream
    last = result.messages[-1]

    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.usage, last.usage.known) == ("aborted", Usage(), False)
    assert result.usage == Usage(input=10, output=1, partial=True)


@pytest.mark.parametrize("turns", range(4))
async def test_i9_max_turns_is_not_off_by_one(turns: int) -> None:
    """failures.md I9"""
    script = ScriptedModel(call("look"), repeat_last=True)
    agent, _ = listened(script, tools=[look], limits=ExecutionLimits(max_turns=turns))
    result = await agent.run("go")

    assert (script.asked, result.end_reason) == (turns, "limit")


@pytest.mark.parametrize("limits", [{"max_total_tokens": 0}, {"max_turns": 0}, {"max_duration": 0}, {"max_cost": 0}])
async def test_i9_a_limit_of_nothing_lets_nothing_happen(limits: dict[str, Any]) -> None:
    """failures.md I9"""
    script = ScriptedModel("never")
    agent, _ = listened(script, limits=ExecutionLimits(**limits))
    result = await agent.run("go")

    assert (script.asked, result.end_reason, said(result.messages)[0]) == (0, "limit", "user: go")


async def test_i9_the_duration_limit_is_seen_during_a_tool() -> None:
    """failures.md I9"""
    agent, _ = listened(ScriptedModel(call("look")), tools=[look], limits=ExecutionLimits(max_duration=4))
    result = await agent.run("go")

    assert (result.end_reason, asyncio.get_running_loop().time()) == ("limit", 4)


async def test_i9_a_limit_with_steering_pending_loses_nothing() -> None:
    """failures.md I9"""
    script = ScriptedModel(call("look"), "after all")
    agent, _ = listened(script, tools=[look], limits=ExecutionLimits(max_turns=1))
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.steer("S")
    first = await stream
    second = await agent.continue_()

    assert (first.end_reason, said(first.messages)[-2:]) == (
        "limit",
        ["user: S", "user: [Agent stopped: Max turns reached (1/1)]"],
    )
    assert said(second.messages) == ["assistant: after all"]
    assert said(agent.messages).count("user: S") == 1


async def test_i9_a_limit_does_not_mask_the_error_of_a_guard() -> None:
    """failures.md I9"""

    def guard(view: object) -> None:
        raise PermissionError("not this")

    agent, _ = listened(
        ScriptedModel(call("look")), tools=[look], limits=ExecutionLimits(max_turns=1), post_turn_policies=[guard]
    )
    result = await agent.run("go")

    assert result.end_reason == "error"
    assert "PermissionError: not this" in result.detail


async def test_i9_a_limit_does_not_mask_the_stop_of_a_guard() -> None:
    """failures.md I9"""
    agent, _ = listened(
        ScriptedModel(call("look")),
        tools=[look],
        limits=ExecutionLimits(max_turns=1),
        post_turn_policies=[answering(Stop("guarded"))],
    )
    result = await agent.run("go")

    assert (result.end_reason, result.detail) == ("stopped", "guarded")


async def test_i9_sub_agents_share_the_budget() -> None:
    """failures.md I9"""
    usage = Usage(input=50, output=50)
    grandchild = Agent(ScriptedModel(answer("deep", usage=usage)).model)
    child_script = ScriptedModel(answer(call("deeper", prompt="x"), usage=usage), answer("never", usage=usage))
    child = Agent(child_script.model, tools=[grandchild.as_tool("deeper", "Goes deeper.")])
    script = ScriptedModel(answer(call("helper", prompt="x"), usage=usage), "never")
    agent, _ = listened(script, tools=[child.as_tool("helper", "Helps.")], limits=ExecutionLimits(max_total_tokens=300))
    result = await agent.run("go")

    assert (result.end_reason, result.detail) == ("limit", "Max tokens reached (300/300)")
    assert (script.asked, child_script.asked, result.usage.total) == (1, 1, 300)
