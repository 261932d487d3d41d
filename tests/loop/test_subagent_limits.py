"""What sub-agents may use: one budget for all of them, and only so many, so deep, at once."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, echo, told
from tests.rows import each_row

from steersman import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    ExecutionLimits,
    Tool,
    ToolContext,
    ToolError,
    Usage,
    agent_loop,
    tool,
)
from steersman.testing import EventCollector, ScriptedModel, answer, call, stall
from steersman.types.events import ToolExecutionUpdate

# From Python 3.12 on the only call of an answer starts at once, so that the next turn begins earlier.
EAGER = sys.version_info >= (3, 12)
UNLIMITED: dict[str, Any] = {"max_turns": None, "max_total_tokens": None, "max_duration": None}


def child_ends(heard: EventCollector) -> list[tuple[str, str]]:
    """How the sub-agents ended, as their parent's subscribers heard it."""
    events = [event.update["event"] for event in heard.of(ToolExecutionUpdate)]
    return [(event["end_reason"], event["detail"]) for event in events if event["type"] == "agent_end"]


def busy(name: str, **options: Any) -> tuple[Tool, ScriptedModel]:
    """A sub-agent that never comes to an end by itself."""
    usage = Usage(input=50, output=50, cost=0.5)
    script = ScriptedModel(answer(call("echo", text="x"), usage=usage, pace=1, deltas=1), repeat_last=True, id=name)
    limits = ExecutionLimits(**UNLIMITED)
    return Agent(script.model, tools=[echo], limits=limits, repeated_calls=None, **options).as_tool(
        name, "Work."
    ), script


@pytest.mark.parametrize(
    ("limits", "reasons"),
    [
        # A turn that has begun is finished: the second one stops after it.
        (
            {"max_total_tokens": 900},
            ["Max tokens reached (900/900)", f"Max tokens reached ({1000 if EAGER else 900}/900)"],
        ),
        (
            {"max_cost": 4.5},
            ["Max cost reached ($4.50/$4.50)", f"Max cost reached (${'5.00' if EAGER else '4.50'}/$4.50)"],
        ),
        ({"max_turns": 8}, ["Max turns reached (8/8)", "Max turns reached (9/8)"]),
        ({"max_duration": 4.5}, ["Max duration reached (4.50s/4.50s)"] * 2),
    ],
    ids=["tokens", "cost", "turns", "duration"],
)
async def test_two_sub_agents_with_one_budget_stop_together(limits: dict[str, Any], reasons: list[str]) -> None:
    """loop.md T3, failures.md I9: what one uses is missing for the other, and neither outlives the budget."""
    (left, one), (right, other) = busy("left"), busy("right")
    usage = Usage(input=50, output=50, cost=0.5)
    parent = ScriptedModel(answer(call("left", prompt="x"), call("right", prompt="y"), usage=usage), "never said")
    agent, heard = agent_of(parent, [left, right], limits=ExecutionLimits(**{**UNLIMITED, **limits}))
    result = await agent.run("go")
    assert child_ends(heard) == [("limit", reason) for reason in reasons]
    assert (abs(one.asked - other.asked) <= 1, parent.asked, result.end_reason) == (True, 1, "limit")
    assert (one.streaming, other.streaming) == (0, 0)


async def test_what_one_sub_agent_used_up_lets_the_other_not_even_start() -> None:
    """failures.md I9"""
    greedy, _ = busy("greedy")
    late = ScriptedModel("never said", id="late")
    parent = ScriptedModel(
        answer(call("greedy", prompt="x"), call("late", prompt="y"), usage=Usage(1, 1)), "never said"
    )
    agent, heard = agent_of(
        parent,
        [greedy, Agent(late.model).as_tool("late", "Late.")],
        limits=ExecutionLimits(max_total_tokens=300),
        tool_execution="sequential",
    )
    await agent.run("go")
    assert (late.asked, child_ends(heard)) == (0, [("limit", "Max tokens reached (302/300)")] * 2)


async def test_a_budget_is_shared_over_all_levels() -> None:
    """failures.md I9: the grandchild's tokens end the child and the parent."""
    deep, script = busy("deep")
    middle = Agent(ScriptedModel(answer(call("deep", prompt="x"), usage=Usage(1, 1)), "never said").model, tools=[deep])
    parent = ScriptedModel(answer(call("middle", prompt="x"), usage=Usage(1, 1)), "never said")
    agent, heard = agent_of(
        parent, [middle.as_tool("middle", "Delegate.")], limits=ExecutionLimits(max_total_tokens=205)
    )
    result = await agent.run("go")
    assert (script.asked, parent.asked, result.end_reason) == (3, 1, "limit")
    assert [reason for reason, _ in child_ends(heard)] == ["limit"]
    assert result.usage == Usage(input=152, output=152, cost=1.5, partial=True)  # not all of them have a price


def answering(count: int, **options: Any) -> tuple[Tool, ScriptedModel]:
    script = ScriptedModel(*[answer("done", pace=1, deltas=1)] * count, id="child")
    return Agent(script.model, **options).as_tool("ask", "Ask."), script


def refusal(reason: str) -> str:
    return f"The sub-agent was not started: {reason}. Do the work without it, or wait for another to end."


async def test_only_so_many_sub_agents_are_at_work_at_once() -> None:
    """failures.md L20, L21: reaching the cap is an error result that says so, and the rest goes on."""
    ask, script = answering(9)
    many = [call("ask", prompt=str(number)) for number in range(4)]
    parent = ScriptedModel(answer(*many), answer(*many[:2]), "ok")
    agent, _ = agent_of(parent, [ask], limits=ExecutionLimits(max_sub_agents_at_once=2))
    result = await agent.run("go")
    crowded = ("ask", refusal("Max sub-agents at once reached (2/2)"), True, "completed")
    done = ("ask", "done", False, "completed")
    assert told(result.messages) == [done, done, crowded, crowded, done, done]
    assert (script.asked, result.text) == (4, "ok")


async def test_a_run_may_have_only_so_many_sub_agents_in_all() -> None:
    """failures.md L20, L21"""
    ask, script = answering(9)
    parent = ScriptedModel(*[answer(call("ask", prompt="x"))] * 3, "ok")
    agent, _ = agent_of(parent, [ask], limits=ExecutionLimits(max_sub_agents=2))
    result = await agent.run("go")
    assert [text for _, text, *_ in told(result.messages)] == [
        "done",
        "done",
        refusal("Max sub-agents reached (2/2)"),
    ]
    assert (script.asked, result.end_reason) == (2, "done")
    # It is the run that is counted, not the agent.
    parent_again = ScriptedModel(answer(call("ask", prompt="x")), "ok")
    second, _ = agent_of(parent_again, [ask], limits=ExecutionLimits(max_sub_agents=2))
    assert told((await second.run("go")).messages) == [("ask", "done", False, "completed")]


async def test_the_sub_agents_of_sub_agents_count_above_too() -> None:
    """failures.md L21: a tree cannot grow around the cap of its root."""
    leaf, _ = answering(9)
    script = ScriptedModel(answer(call("ask", prompt="a"), call("ask", prompt="b")), "middle done")
    middle = Agent(script.model, tools=[leaf]).as_tool("delegate", "Delegate.")
    parent = ScriptedModel(answer(call("delegate", prompt="x")), "ok")
    agent, _ = agent_of(parent, [middle], limits=ExecutionLimits(max_sub_agents=2))
    await agent.run("go")
    results = script.requests[1][0].messages[-2:]
    assert [message.text for message in results] == ["done", refusal("Max sub-agents reached (2/2)")]


def _deeper(text: str) -> Any:
    return answer(call("deeper", prompt="go")) if text == "go" else answer(text)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
async def test_sub_agents_go_only_so_deep(depth: int) -> None:
    """failures.md L21"""

    @tool
    async def deeper(prompt: str, ctx: ToolContext) -> str:
        """Go deeper."""
        return (await agent.run_for(ctx, prompt)).text

    script = ScriptedModel(lambda request: _deeper(request.messages[-1].text), repeat_last=True)
    agent = Agent(script.model, tools=[deeper], limits=ExecutionLimits(max_sub_agent_depth=depth))
    result = await agent.run("go")
    # One run more than there are levels; on the last one the call was refused.
    assert script.asked == 2 * (depth + 1)
    assert refusal(f"Max sub-agent depth reached ({depth}/{depth})") in result.text


async def test_without_any_limits_the_usual_caps_hold() -> None:
    """failures.md L21, I11: there is a limit, also for a bare loop."""

    @tool
    async def deeper(prompt: str, ctx: ToolContext) -> str:
        """Go deeper."""
        return (await agent.run_for(ctx, prompt)).text

    limits = ExecutionLimits(max_sub_agent_depth=None, max_sub_agents=None, max_sub_agents_at_once=None)
    script = ScriptedModel(lambda request: _deeper(request.messages[-1].text), repeat_last=True)
    agent = Agent(script.model, tools=[deeper], limits=limits)
    config = AgentLoopConfig(model=script.model)
    messages = await agent_loop("go", AgentContext(tools=[deeper]), config).result()
    assert refusal("Max sub-agent depth reached (3/3)") in messages[-1].text


async def test_a_tool_of_ones_own_can_run_an_agent_as_part_of_its_run() -> None:
    """failures.md I9, F13: `run_for` shares limits, usage and cancel, and says so where there is no room."""
    script = ScriptedModel(answer("one", usage=Usage(10, 1)), answer("two", usage=Usage(20, 2)))
    helper = Agent(script.model)
    refused: list[str] = []

    @tool
    async def both(ctx: ToolContext) -> str:
        """Ask twice, one after the other."""
        first = await helper.run_for(ctx, "first")
        second = await helper.run_for(ctx, "second")
        try:
            await helper.run_for(ctx, "third")
        except ToolError as error:
            refused.append(str(error))
        return f"{first.text} and {second.text}"

    parent = ScriptedModel(answer(call("both"), usage=Usage(1, 1)), answer("ok", usage=Usage(1, 1)))
    agent, heard = agent_of(parent, [both], limits=ExecutionLimits(max_sub_agents=2))
    result = await agent.run("go")
    assert told(result.messages) == [("both", "one and two", False, "completed")]
    assert (result.usage, refused) == (Usage(32, 5), [refusal("Max sub-agents reached (2/2)")])
    assert {event.update["agent"] for event in heard.of(ToolExecutionUpdate)} == {"both"}


async def test_outside_of_a_run_it_belongs_to_no_parent() -> None:
    from steersman import CancelToken

    script = ScriptedModel("one")
    result = await Agent(script.model).run_for(ToolContext("c", "tool", CancelToken()), "go")
    assert result.text == "one"


@each_row("name", ["max_sub_agents", "max_sub_agents_at_once", "max_sub_agent_depth"])
@each_row("value", [-1, 1.5, True, "3"])
def test_a_cap_is_a_whole_number(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is a whole number from 0 on"):
        ExecutionLimits(**{name: value})


async def test_a_sub_agent_that_was_cancelled_makes_room_for_another() -> None:
    stalled = ScriptedModel(stall(), "ok", id="child")
    ask = Agent(stalled.model).as_tool("ask", "Ask.", timeout=5)
    parent = ScriptedModel(answer(call("ask", prompt="x")), answer(call("ask", prompt="y")), "ok")
    agent, _ = agent_of(parent, [ask], limits=ExecutionLimits(max_sub_agents_at_once=1))
    result = await agent.run("go")
    assert [(text, status) for _, text, _, status in told(result.messages)] == [
        ("Tool 'ask' timed out after 5s.", "interrupted"),
        ("ok", "completed"),
    ]
    assert asyncio.get_running_loop().time() == 5.0
