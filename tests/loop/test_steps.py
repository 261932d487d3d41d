"""Single steps of a run, for engines that run the loop elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from steersman import Agent, AgentContext, Retry, ToolContext, ToolOutput, tool
from steersman.context import ContextConfig
from steersman.context.repair import UNKNOWN
from steersman.loop.steps import take_answer_step, take_call_step
from steersman.testing import ScriptedModel, answer, call, error, stall
from steersman.types import OutcomeUnknown, Prun, ToolCall, Usage


async def test_an_answer_is_added_to_the_log_with_the_usage_of_all_its_requests() -> None:
    """loop.md T8: a retry counts too."""
    script = ScriptedModel(error("overloaded", usage=Usage(input=5)), answer("hello", usage=Usage(input=7, output=1)))
    agent = Agent(script.model, retry=Retry())
    context = AgentContext(messages=["hi"])

    step = await take_answer_step(context, agent.config)

    assert (step.message.text, step.usage.input, step.error) == ("hello", 12, None)
    assert [message.role for message in context.messages] == ["user", "assistant"]


async def test_a_context_over_its_threshold_is_compacted_before_the_answer() -> None:
    """loop.md T5"""
    script = ScriptedModel("short")
    agent = Agent(script.model, context_config=ContextConfig(max_context_tokens=400))
    said = [{"role": "assistant", "content": "word " * 100}, {"role": "user", "content": "more"}]
    context = AgentContext(messages=["task", *said * 6])

    await take_answer_step(context, agent.config)

    assert len(script.requests[0][0].messages) < 13
    assert [entry.type for entry in context.log.entries][-2:] == ["compaction", "message"]


async def test_a_cancelled_answer_raises_and_leaves_what_had_arrived() -> None:
    """loop.md T12"""
    agent = Agent(ScriptedModel(stall("half", after=1)).model)
    context = AgentContext(messages=["hi"])
    task = asyncio.create_task(take_answer_step(context, agent.config))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert context.messages[-1].role == "assistant"


async def test_a_call_runs_with_its_key_and_its_effects_are_returned() -> None:
    """loop.md D2, C2"""

    @tool
    async def work(ctx: ToolContext, n: int) -> ToolOutput:
        """Work."""
        return ToolOutput(f"{n} {ctx.idempotency_key}", effects=[Prun(5)], terminate=True)

    agent = Agent(ScriptedModel("x").model, tools=[work])
    context = AgentContext(tools=agent.context.tools, session_id="s")

    step = await take_call_step(context, agent.config, ToolCall("c", "work", {"n": 3}), "entry_1")

    assert (step.result.text, step.effects, step.terminate) == ("3 s:entry_1:c", (Prun(5),), True)
    unknown = await take_call_step(context, agent.config, ToolCall("c", "nope", {}), "entry_1")
    assert unknown.result.text == "No tool named 'nope'. Available tools: work."


async def test_a_cancelled_call_says_so() -> None:
    """loop.md D6: its result is told, and the cancel is not raised."""
    context = AgentContext(tools=[hang])
    agent = Agent(ScriptedModel("x").model, tools=[hang])
    task = asyncio.create_task(take_call_step(context, agent.config, ToolCall("c", "hang", {}), "e"))
    await asyncio.sleep(1)
    task.cancel()

    step = await task

    assert (step.result.text, step.result.details) == (
        "tool call cancelled: operation aborted",
        {"status": "interrupted"},
    )


@tool
async def hang() -> str:
    """Hang."""
    await asyncio.Event().wait()
    return "never"


async def test_a_tool_may_say_that_the_outcome_of_its_work_is_unknown() -> None:
    """durable.md U9: what was lost elsewhere is told in recovery's words, and not as completed."""

    @tool
    async def lose() -> str:
        """Lose."""
        raise OutcomeUnknown("the other machine is gone")

    result = await Agent(ScriptedModel(call("lose"), "ok").model, tools=[lose]).run("go")

    told = result.messages[2]
    assert (getattr(told, "text", ""), getattr(told, "details", None)) == (UNKNOWN, {"status": "interrupted"})
