from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.play import asked, listened, outline, said
from tests.rows import each_row

from steersman import Agent, ExecutionLimits, Inject, Prices, Usage, UserMessage, tool
from steersman.testing import ScriptedModel, answer, call, error, stall
from steersman.types.events import ToolExecutionEnd
from steersman.types.messages import AssistantMessage, ToolResultMessage


@tool
def look() -> str:
    """Look."""
    return "seen"


def looking(**options: Any) -> ScriptedModel:
    """A model that never stops looking."""
    return ScriptedModel(answer(call("look"), usage=options.pop("usage", None)), repeat_last=True, **options)


async def test_a_limit_is_told_in_a_notice_then_turn_end_then_agent_end() -> None:
    """loop.md T3"""
    script = looking()
    agent, events = listened(script, tools=[look], limits=ExecutionLimits(max_turns=1), repeated_calls=None)

    result = await agent.run("go")

    assert outline(events)[-5:] == [
        "turn_end 0 tool_use",
        "turn_start 1 continuation",
        "user: [Agent stopped: Max turns reached (1/1)]",
        "turn_end 1 limit",
        "agent_end limit",
    ]
    assert (result.end_reason, result.detail, script.asked) == ("limit", "Max turns reached (1/1)", 1)
    notice = result.messages[-1]
    assert isinstance(notice, UserMessage)
    assert notice.synthetic


@pytest.mark.parametrize("turns", [0, 1, 2, 7])
async def test_max_turns_is_how_many_turns_the_model_gets(turns: int) -> None:
    """loop.md T3, failures.md I9"""
    script = looking()
    agent, _ = listened(script, tools=[look], limits=ExecutionLimits(max_turns=turns), repeated_calls=None)

    result = await agent.run("go")

    assert (script.asked, result.detail) == (turns, f"Max turns reached ({turns}/{turns})")


async def test_an_answer_in_the_last_allowed_turn_is_no_limit() -> None:
    """loop.md T3"""
    agent, _ = listened(ScriptedModel(call("look"), "done"), tools=[look], limits=ExecutionLimits(max_turns=2))

    result = await agent.run("go")

    assert (result.end_reason, result.text) == ("done", "done")


@each_row(
    ("limits", "reason"),
    [
        ({"max_turns": 3}, "Max turns reached (3/3)"),
        ({"max_total_tokens": 100}, "Max tokens reached (120/100)"),
        ({"max_total_tokens": 120}, "Max tokens reached (120/120)"),
        ({"max_cost": 0.5}, "Max cost reached ($0.75/$0.50)"),
        ({"max_duration": 25}, "Max duration reached (25s/25s)"),
        ({"max_duration": 0}, "Max duration reached (0s/0s)"),
        ({"max_total_tokens": 0}, "Max tokens reached (0/0)"),
        ({"max_cost": 0}, "Max cost reached ($0.00/$0.00)"),
    ],
)
async def test_each_limit_says_how_far_the_run_came(limits: dict[str, Any], reason: str) -> None:
    """loop.md T3"""
    everything: dict[str, Any] = {"max_turns": None, "max_total_tokens": None, "max_duration": None, **limits}
    usage = Usage(input=10, output=10, cache_read=30, cache_write=10, cost=0.375)

    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(10)
        return "waited"

    script = ScriptedModel(answer(call("wait"), usage=usage), repeat_last=True)
    agent, events = listened(script, tools=[wait], limits=ExecutionLimits(**everything), repeated_calls=None)

    result = await agent.run("go")

    assert (result.end_reason, result.detail) == ("limit", reason)
    assert said(result.messages)[-1] == f"user: [Agent stopped: {reason}]"
    assert [line for line in outline(events) if line.startswith("user: [Agent")] == [said(result.messages)[-1]]


async def test_the_price_of_the_model_counts_against_the_cost_limit() -> None:
    """loop.md T3, loop.md T8"""
    script = ScriptedModel(
        answer(call("look"), usage=Usage(input=1_000_000, output=100_000)),
        repeat_last=True,
        prices=Prices(input=3, output=15),
    )
    limits = ExecutionLimits(max_turns=None, max_total_tokens=None, max_cost=10)
    agent, _ = listened(script, tools=[look], limits=limits, repeated_calls=None)

    result = await agent.run("go")

    assert (result.detail, result.cost) == ("Max cost reached ($13.50/$10.00)", 13.5)


async def test_the_deadline_cuts_a_stalled_model() -> None:
    """loop.md T3"""
    script = ScriptedModel(stall("half an answer", after=2))
    agent, events = listened(script, limits=ExecutionLimits(max_duration=30))

    result = await agent.run("go")

    assert asyncio.get_running_loop().time() == 30
    assert (result.end_reason, result.detail) == ("limit", "Max duration reached (30s/30s)")
    cut = result.messages[1]
    assert isinstance(cut, AssistantMessage)
    assert (cut.stop_reason, cut.text) == ("aborted", "half an")
    assert outline(events)[-4:] == [
        "assistant: half an",
        "user: [Agent stopped: Max duration reached (30s/30s)]",
        "turn_end 0 aborted",
        "agent_end limit",
    ]
    assert script.streaming == 0


async def test_the_deadline_cuts_a_running_tool() -> None:
    """loop.md T3"""
    cleaned: list[str] = []

    async def forever() -> str:
        """Forever."""
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append("up")
        return "never"

    agent, events = listened(
        ScriptedModel([call("forever"), call("look")]),
        tools=[forever, look],
        limits=ExecutionLimits(max_duration=30),
        tool_execution="sequential",
    )

    result = await agent.run("go")

    assert (result.end_reason, result.detail, cleaned) == ("limit", "Max duration reached (30s/30s)", ["up"])
    assert asyncio.get_running_loop().time() == 30
    results = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert [message.details["status"] for message in results] == ["interrupted", "not_started"]
    assert outline(events)[-3:] == [
        "user: [Agent stopped: Max duration reached (30s/30s)]",
        "turn_end 0 tool_use",
        "agent_end limit",
    ]


async def hang(*_: object) -> Any:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("seam", ["before_loop", "input_filters", "post_loop_policies", "before_follow_up"])
async def test_a_deadline_outside_any_turn_is_told_like_any_other_limit(seam: str) -> None:
    """loop.md T3"""
    given: Any = [hang] if seam in ("input_filters", "post_loop_policies") else hang
    agent, events = listened(ScriptedModel("hello"), limits=ExecutionLimits(max_duration=30), **{seam: given})

    result = await agent.run("go")

    assert (result.end_reason, result.detail) == ("limit", "Max duration reached (30s/30s)")
    assert outline(events)[-3:] == [
        "user: [Agent stopped: Max duration reached (30s/30s)]",
        f"turn_end {events.types.count('turn_start') - 1} limit",
        "agent_end limit",
    ]


async def test_the_deadline_cuts_a_backoff() -> None:
    """loop.md T3"""
    script = ScriptedModel(error("overloaded"), repeat_last=True)
    agent, _ = listened(script, limits=ExecutionLimits(max_duration=0.5))

    result = await agent.run("go")

    assert (result.end_reason, result.detail, script.asked) == ("limit", "Max duration reached (0.50s/0.50s)", 1)


async def test_a_run_may_go_on_after_a_limit_and_begins_to_count_anew() -> None:
    """loop.md T3"""
    script = ScriptedModel(call("look"), "one", call("look"))
    agent, _ = listened(script, tools=[look], limits=ExecutionLimits(max_turns=1))
    ends = [(await agent.run("a")).end_reason, (await agent.continue_()).end_reason]

    assert ends == ["limit", "done"]
    assert asked(script, 1) == [
        "user: a",
        "assistant: [look]",
        "tool_result: seen",
        "user: [Agent stopped: Max turns reached (1/1)]",
    ]


async def test_with_wrap_up_there_is_one_last_answer_with_tools_declared_and_not_allowed() -> None:
    """loop.md T3"""
    script = ScriptedModel(call("look"), "That is all I found.")
    agent, events = listened(script, tools=[look], limits=ExecutionLimits(max_turns=1, wrap_up=True))

    result = await agent.run("go")

    assert (result.end_reason, result.detail, result.text) == (
        "limit",
        "Max turns reached (1/1)",
        "That is all I found.",
    )
    requests = [([tool.name for tool in request.tools], options.tool_choice) for request, options in script.requests]
    assert requests == [(["look"], "auto"), (["look"], "none")]
    assert asked(script)[-1] == "user: [Agent stopped: Max turns reached (1/1)]"
    assert outline(events)[-4:] == [
        "user: [Agent stopped: Max turns reached (1/1)]",
        "assistant: That is all I found.",
        "turn_end 1 stop",
        "agent_end limit",
    ]


async def test_no_message_comes_between_the_notice_of_a_limit_and_the_last_answer() -> None:
    """loop.md T3, and the event grammar: after the notice comes the last answer."""
    script = ScriptedModel(call("look"), "That is all I found.")
    agent, events = listened(
        script,
        tools=[look],
        limits=ExecutionLimits(max_turns=1, wrap_up=True),
        pre_turn_policies=[lambda view: Inject("Look out.")],  # pyright: ignore[reportUnknownLambdaType]
    )

    result = await agent.run("go")

    assert (result.end_reason, result.text) == ("limit", "That is all I found.")
    assert said(result.messages).count("user: Look out.") == 1
    assert outline(events)[-4:-2] == [
        "user: [Agent stopped: Max turns reached (1/1)]",
        "assistant: That is all I found.",
    ]


async def test_a_tool_call_in_the_last_answer_is_answered_and_not_run() -> None:
    """loop.md T3"""
    runs: list[str] = []

    def touch() -> str:
        """Touch."""
        runs.append("touched")
        return "ok"

    script = ScriptedModel(call("touch"), repeat_last=True)
    agent, events = listened(script, tools=[touch], limits=ExecutionLimits(max_turns=1, wrap_up=True))

    result = await agent.run("go")

    assert (result.end_reason, runs, script.asked) == ("limit", ["touched"], 2)
    last = events.of(ToolExecutionEnd)[-1].result
    assert (last.text, last.details["status"]) == ("Not run: Max turns reached (1/1).", "not_started")


async def test_a_failed_last_answer_leaves_the_limit_as_the_reason() -> None:
    """loop.md T3"""
    script = ScriptedModel(call("look"), ValueError("gone"))
    agent, _ = listened(script, tools=[look], limits=ExecutionLimits(max_turns=1, wrap_up=True))

    result = await agent.run("go")

    assert (result.end_reason, result.detail) == ("limit", "Max turns reached (1/1)")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_turns": 3}, "Max turns reached (4/3)"),
        ({"max_total_tokens": 40}, "Max tokens reached (40/40)"),
        ({"max_cost": 4}, "Max cost reached ($4.00/$4.00)"),
    ],
)
async def test_sub_agents_share_the_limits_of_their_parent(limits: dict[str, Any], reason: str) -> None:
    """loop.md T3, failures.md I9"""
    usage = Usage(input=5, output=5, cost=1)
    child_script = ScriptedModel(answer(call("look"), usage=usage), repeat_last=True)
    child = Agent(child_script.model, tools=[look], repeated_calls=None)
    script = ScriptedModel(answer(call("helper", prompt="help"), usage=usage), repeat_last=True)
    unlimited: dict[str, Any] = {"max_turns": None, "max_total_tokens": None, "max_duration": None, **limits}
    agent, _ = listened(
        script, tools=[child.as_tool("helper", "Helps.")], limits=ExecutionLimits(**unlimited), repeated_calls=None
    )

    result = await agent.run("go")

    assert (result.end_reason, result.detail, script.asked, child_script.asked) == ("limit", reason, 1, 3)
    assert result.usage.total == 40


async def test_the_deadline_of_the_parent_cuts_its_sub_agents() -> None:
    """loop.md T3"""
    child_script = ScriptedModel(stall())
    child = Agent(child_script.model, limits=ExecutionLimits(max_duration=500))
    script = ScriptedModel(call("helper", prompt="help"))
    agent, _ = listened(script, tools=[child.as_tool("helper", "Helps.")], limits=ExecutionLimits(max_duration=20))

    result = await agent.run("go")

    assert (result.end_reason, result.detail) == ("limit", "Max duration reached (20s/20s)")
    assert (asyncio.get_running_loop().time(), child_script.streaming) == (20, 0)


async def test_a_sub_agent_at_its_own_limit_is_an_error_result_and_the_parent_goes_on() -> None:
    """loop.md T3"""
    child = Agent(looking().model, tools=[look], limits=ExecutionLimits(max_turns=2))
    agent, _ = listened(
        ScriptedModel(call("helper", prompt="help"), "I did it myself."), tools=[child.as_tool("helper", "Helps.")]
    )

    result = await agent.run("go")

    assert (result.end_reason, result.text) == ("done", "I did it myself.")
    given = result.messages[2]
    assert isinstance(given, ToolResultMessage)
    assert given.is_error
    assert "Max turns reached (2/2)" in given.text


async def test_tokens_a_provider_does_not_report_are_estimated_for_the_limit() -> None:
    """loop.md T3, loop.md T8"""
    agent, _ = listened(
        looking(), tools=[look], limits=ExecutionLimits(max_turns=50, max_total_tokens=100), repeated_calls=None
    )

    result = await agent.run("some words of a prompt that are worth more than ten tokens, to be sure")

    assert result.end_reason == "limit"
    assert result.detail.startswith("Max tokens reached (")
    assert result.usage == Usage(partial=True)
