from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.loop.toolbox import Workshop, agent_of, customs, told

from steersman import ExecutionLimits, RunResult, Tool, ToolContext, tool
from steersman.testing import EventCollector, ScriptedModel, answer, call, stall
from steersman.types.events import ToolExecutionEnd


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_tool_is_cut_at_its_own_timeout_and_the_run_goes_on() -> None:
    """loop.md D5"""
    shop = Workshop()
    script = ScriptedModel(answer(call("slow", name="a", seconds=100.0), call("job", name="b", seconds=2.0)), "ok")
    agent, _ = agent_of(script, [shop.job("slow", timeout=5), shop.job()], tool_timeout=50)
    result = await agent.run("go")
    assert told(result.messages) == [
        ("slow", "Tool 'slow' timed out after 5s.", True, "interrupted"),
        ("job", "b done", False, "completed"),
    ]
    assert (shop.log, now(), result.end_reason) == (["+a", "+b", "-b", "!a"], 5.0, "done")


async def test_the_timeout_of_the_config_holds_for_tools_without_their_own() -> None:
    """loop.md D5"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a", seconds=100.0), call("long", name="b", seconds=20.0)), "ok")
    agent, _ = agent_of(script, [shop.job(), shop.job("long", timeout=60)], tool_timeout=0.5)
    result = await agent.run("go")
    assert told(result.messages) == [
        ("job", "Tool 'job' timed out after 0.5s.", True, "interrupted"),
        ("long", "b done", False, "completed"),
    ]


async def test_a_tool_without_any_timeout_takes_its_time() -> None:
    """loop.md D5"""
    shop = Workshop()
    agent, _ = agent_of(
        ScriptedModel(answer(call("job", name="a", seconds=80_000.0)), "ok"),
        [shop.job()],
        limits=ExecutionLimits(max_duration=None),
    )
    result = await agent.run("go")
    assert told(result.messages) == [("job", "a done", False, "completed")]


async def test_a_tool_that_ends_in_time_is_not_cut_later() -> None:
    """loop.md D5"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a")), answer("ok", pace=100))
    agent, heard = agent_of(script, [shop.job(timeout=5)])
    result = await agent.run("go")
    assert told(result.messages) == [("job", "a done", False, "completed")]
    assert len(heard.of(ToolExecutionEnd)) == 1


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), True, "5"])
def test_a_timeout_is_a_positive_number(timeout: Any) -> None:
    """loop.md D5"""
    with pytest.raises((ValueError, TypeError), match="timeout"):
        Workshop().job(timeout=timeout)


async def test_a_tool_that_will_not_stop_is_abandoned_reported_and_its_late_result_is_an_event() -> None:
    """loop.md D5, failures.md A10"""
    shop = Workshop()
    script = ScriptedModel(answer(call("stubborn")), answer("ok", pace=10))
    agent, heard = agent_of(script, [shop.stubborn(swallows=2, takes=8)], tool_timeout=5)
    result = await agent.run("go")
    assert told(result.messages) == [("stubborn", "Tool 'stubborn' timed out after 5s.", True, "interrupted")]
    (end,) = heard.of(ToolExecutionEnd)
    assert end.result.details == {"status": "interrupted", "abandoned": True}
    assert customs(heard, "tool_abandoned") == [{"tool_call_id": "call_1", "tool_name": "stubborn"}]
    assert customs(heard, "late_tool_result") == [
        {"tool_call_id": "call_1", "tool_name": "stubborn", "output": "stubborn done"}
    ]
    assert shop.log == ["+stubborn", "!stubborn", "!stubborn", "-stubborn"]


async def run_until_late(block: Tool, release: threading.Event) -> tuple[RunResult, EventCollector]:
    """Run an agent that calls a tool, which is released after its timeout; the run ends after its late result."""
    arrived = asyncio.Event()

    async def ending(_: Any) -> str:
        release.set()
        await arrived.wait()
        return "ok"

    agent, heard = agent_of(ScriptedModel(answer(call("block")), ending), [block])
    agent.subscribe(lambda _: arrived.set() if customs(heard, "late_tool_result") else None)
    return await agent.run("go"), heard


async def test_a_thread_that_will_not_stop_is_abandoned_counted_and_reported() -> None:
    """loop.md D5, failures.md F5"""
    release = threading.Event()
    seen: list[bool] = []

    @tool(timeout=5)
    def block(ctx: ToolContext) -> str:
        """Block."""
        assert release.wait(30)
        seen.append(ctx.cancelled)
        return "after all"

    result, heard = await run_until_late(block, release)
    assert told(result.messages) == [("block", "Tool 'block' timed out after 5s.", True, "interrupted")]
    (end,) = heard.of(ToolExecutionEnd)
    assert end.result.details == {"status": "interrupted", "abandoned": True}
    assert customs(heard, "tool_abandoned") == [{"tool_call_id": "call_1", "tool_name": "block"}]
    assert customs(heard, "late_tool_result") == [
        {"tool_call_id": "call_1", "tool_name": "block", "output": "after all"}
    ]
    assert (seen, result.text) == ([True], "ok")


async def test_a_late_failure_is_an_event_too() -> None:
    """loop.md D5"""
    release = threading.Event()

    @tool(timeout=5)
    def block() -> str:
        """Block."""
        assert release.wait(30)
        raise ValueError("too late")

    result, heard = await run_until_late(block, release)
    assert customs(heard, "late_tool_result") == [
        {"tool_call_id": "call_1", "tool_name": "block", "output": "ValueError('too late')"}
    ]
    assert len(told(result.messages)) == 1


async def test_an_abort_does_not_wait_for_a_thread() -> None:
    """loop.md D5, D6"""
    release = threading.Event()

    @tool
    def block() -> str:
        """Block."""
        assert release.wait(30)
        return "late"

    agent, heard = agent_of(ScriptedModel(answer(call("block")), stall()), [block])
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(1)
    agent.abort()
    result = await running
    release.set()
    assert (result.end_reason, now()) == ("aborted", 1.0)
    assert told(result.messages) == [("block", "tool call cancelled: operation aborted", True, "interrupted")]
    assert len(customs(heard, "tool_abandoned")) == 1


async def test_the_deadline_of_the_run_cuts_a_running_tool() -> None:
    """loop.md D5, T3"""
    shop = Workshop()
    script = ScriptedModel(answer(call("job", name="a", seconds=1000.0)), "never said")
    agent, _ = agent_of(script, [shop.job()], limits=ExecutionLimits(max_duration=60))
    result = await agent.run("go")
    assert (result.end_reason, result.detail) == ("limit", "Max duration reached (60s/60s)")
    assert told(result.messages) == [("job", "tool call cancelled: operation aborted", True, "interrupted")]
    assert (shop.log, script.asked, now()) == (["+a", "!a"], 1, 60.0)
