"""A gate that takes its time holds up only its own call."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.loop.toolbox import told

from steersman import Agent, tool
from steersman.testing import EventCollector, ScriptedModel, answer, call
from steersman.types.events import ToolExecutionStart


@tool
async def free() -> str:
    """Need no approval."""
    return "free"


@tool(needs_approval=True)
async def risky() -> str:
    """Need approval."""
    return "risky"


class Person:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.get_running_loop().create_future()

    async def __call__(self, asked: Any) -> bool:
        self.asked.append(asked.id)
        return await self.answer


async def test_a_sibling_that_needs_no_approval_does_not_wait_for_one() -> None:
    """loop.md D1, D3: the gates of one call are no gates of another."""
    script = ScriptedModel(answer(call("risky"), call("free")), "Done.")
    person = Person()
    agent = Agent(script.model, tools=[free, risky], approve=person)
    events = EventCollector()
    agent.subscribe(events)
    stream = agent.prompt("Go.")
    await asyncio.sleep(1)
    assert [event.tool_name for event in events.of(ToolExecutionStart)] == ["free"]
    person.answer.set_result(True)
    result = await stream
    assert told(result.messages) == [("risky", "risky", False, "completed"), ("free", "free", False, "completed")]


async def test_approvals_are_asked_one_at_a_time_in_the_order_of_the_calls() -> None:
    """loop.md D3: a person is not asked two things at once."""
    script = ScriptedModel(answer(call("risky", id="a"), call("risky", id="b")), "Done.")
    person = Person()
    agent = Agent(script.model, tools=[risky], approve=person)
    stream = agent.prompt("Go.")
    await asyncio.sleep(1)
    assert person.asked == ["a"]
    person.answer.set_result(True)
    await stream
    assert person.asked == ["a", "b"]


async def test_steering_is_heard_while_an_approval_waits() -> None:
    """loop.md D6: the call has not started, so it is skipped, and the question is taken back."""
    script = ScriptedModel(answer(call("risky")), "As you wish.")
    person = Person()
    agent = Agent(script.model, tools=[risky], approve=person)
    stream = agent.prompt("Go.")
    await asyncio.sleep(1)
    agent.steer("Never mind.")
    result = await stream
    assert told(result.messages) == [("risky", "Skipped due to queued user message.", True, "not_started")]
    assert (result.text, person.answer.cancelled()) == ("As you wish.", True)


async def test_an_abort_takes_the_question_back() -> None:
    """loop.md T12: cancel is seen while a gate is asked."""
    script = ScriptedModel(answer(call("risky")), "Never said.")
    person = Person()
    agent = Agent(script.model, tools=[risky], approve=person)
    stream = agent.prompt("Go.")
    await asyncio.sleep(1)
    agent.abort()
    result = await stream
    assert told(result.messages) == [("risky", "tool call cancelled: operation aborted", True, "not_started")]
    assert (result.end_reason, person.answer.cancelled()) == ("aborted", True)
