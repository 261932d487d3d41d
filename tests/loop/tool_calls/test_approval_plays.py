"""Whatever is asked, answered, steered, aborted and left, every question gets its one answer and no run hangs."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from steersman import Agent, Approval, Tool, tool
from steersman.events import AgentEvent, ApprovalRequested, ApprovalResolved, ToolExecutionStart
from steersman.testing import EventCollector, ScriptedModel, answer, call

PLAYS = 60
CHUNKS = 4


@tool
async def act(name: str, seconds: float) -> str:
    """Act for a while."""
    await asyncio.sleep(seconds)
    return name


@tool(access="read", sequential=True)
async def look(name: str) -> str:
    """Look around."""
    return name


@tool(name="child", access="read")
async def rest(prompt: str) -> str:
    """Do nothing: the last sub-agent has none of its own."""
    return prompt


def play_calls(dice: random.Random) -> Any:
    calls = [
        call("look", name=f"l{number}") if dice.random() < 0.2 else call("act", name=f"a{dice.randrange(3)}", seconds=1)
        for number in range(dice.randrange(1, 5))
    ]
    if dice.random() < 0.4:
        calls.append(call("child", prompt="Go on."))
    return answer(*calls)


def make_agent(dice: random.Random, level: int) -> Agent:
    """An agent with sub-agents below it; the ways to answer are drawn for each."""
    tools: list[Tool] = [act, look]
    if level < 2:
        timeout = dice.choice([None, None, 3.0])
        tools.append(make_agent(dice, level + 1).as_tool("child", "Helps.", timeout=timeout))
    else:
        tools.append(rest)
    turns = [play_calls(dice) for _ in range(dice.randrange(1, 3))]
    options: dict[str, Any] = {"tool_execution": dice.choice(["parallel", "parallel", "sequential"])}
    if level == 0 or dice.random() < 0.3:
        options["approval"] = Approval()
    if dice.random() < (0.6 if level == 0 else 0.2):
        options["approve"] = dice.choice(["wait", "wait", slow_yes])
        options["approve_timeout"] = dice.choice([5.0, 20.0])
    return Agent(ScriptedModel(*turns, *["Done."] * 9).model, tools=tools, **options)


async def slow_yes(_: Any) -> bool:
    await asyncio.sleep(2)
    return True


class Client:
    """Answers some questions, sooner or later, and sometimes twice or not at all."""

    def __init__(self, agent: Agent, dice: random.Random) -> None:
        self.agent = agent
        self.dice = dice
        self.counted: dict[str, int] = {}

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, ApprovalRequested):
            for _ in range(self.dice.choice([0, 1, 1, 1, 2])):
                delay = self.dice.choice([0, 0, 1, 4, 30])
                if delay:
                    asyncio.get_running_loop().call_later(delay, self.press, event.approval_id)
                else:
                    self.press(event.approval_id)

    def press(self, approval_id: str) -> None:
        dice = self.dice
        if dice.random() < 0.7:
            counts = self.agent.approve(approval_id, remember=dice.random() < 0.3)
        else:
            counts = self.agent.deny(approval_id, "no")
        self.counted[approval_id] = self.counted.get(approval_id, 0) + counts


async def play(seed: int) -> None:
    dice = random.Random(seed)
    agent, heard = make_agent(dice, 0), EventCollector()
    client = Client(agent, dice)
    agent.subscribe(heard)
    answering = agent.subscribe(client, answers=dice.random() < 0.6)
    loop = asyncio.get_running_loop()
    if dice.random() < 0.3:
        mode: Any = dice.choice(["skip", "cancel", "wait"])
        loop.call_later(dice.choice([1, 3]), agent.steer, "Rather so.", mode)
    if dice.random() < 0.3:
        loop.call_later(dice.choice([1, 2, 3]), agent.unsubscribe, answering)
    if dice.random() < 0.3:
        loop.call_later(dice.choice([1, 2, 3, 5]), agent.abort)
    try:
        await asyncio.wait_for(asyncio.shield(agent.run("Go.")), 3_600)
    except TimeoutError:
        # A question without a deadline may wait for ever if no answer was drawn for it.
        assert agent.open_approvals
        agent.abort()
        await agent.wait_for_idle()
    asked = [event.approval_id for event in heard.of(ApprovalRequested)]
    resolved = {event.approval_id: event for event in heard.of(ApprovalResolved)}
    assert (sorted(asked), len(heard.of(ApprovalResolved))) == (sorted(resolved), len(asked))
    assert list(agent.open_approvals) == []
    started = {event.tool_call_id for event in heard.of(ToolExecutionStart)}
    assert started >= {event.tool_call_id for event in heard.of(ApprovalRequested) if not event.parent_tool_call_id}
    for approval_id, counted in client.counted.items():
        assert counted <= 1
        by_another = resolved[approval_id].reason == "the same call was approved for good"
        assert (counted == 1) == (resolved[approval_id].by == "application" and not by_another)


@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_every_question_gets_its_one_answer_and_no_run_hangs(chunk: int) -> None:
    """server.md S7, S8; loop.md T12, D2. The checker of the event grammar watches every run."""
    for seed in range(chunk * PLAYS, (chunk + 1) * PLAYS):
        await play(seed)
