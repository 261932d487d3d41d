"""Steering, follow-ups and re-entrancy: what has gone wrong elsewhere, and must not here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.loop.play import listened, said
from tests.rows import each_row

from steersman import Agent, AgentBusy, AgentEvent, AgentMessage, ContextConfig, ExecutionLimits, Retry, tool
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import ScriptedModel, answer, call, error, run_virtual


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


def spoken_to(at: int | None, speak: Callable[[Agent], object]) -> tuple[int, list[str], list[str], str]:
    """A run of two turns, spoken to at one step of the event loop: steps, what was said, what is left, the receipt."""
    agents: list[Agent] = []
    receipts: list[Any] = []
    steps = 0

    def on_step(_: int) -> None:
        nonlocal steps
        if agents and not over:
            steps += 1
            if steps == at:
                receipts.append(speak(agents[0]))

    over: list[bool] = []

    async def main() -> tuple[list[str], list[str], str]:
        script = ScriptedModel(call("look"), answer("one", pace=0), "two", "three")
        agent = Agent(script.model, tools=[look], after_loop=after_loop, post_loop_policies=[pause])
        agents.append(agent)
        await agent.run("go")
        over.append(True)
        left = said([*agent.queued.steering, *agent.queued.follow_up])
        status = receipts[0].status if receipts else ""
        return said(agent.messages), left, status

    async def after_loop(messages: object, usage: object) -> None:
        await asyncio.sleep(1)

    async def pause(view: object) -> None:
        await asyncio.sleep(1)

    messages, left, status = run_virtual(main(), on_step=on_step)
    return steps, messages, left, status


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
def test_g1_what_was_accepted_at_any_step_is_delivered_once_or_kept_for_the_next_run(queue: str) -> None:
    """failures.md G1"""

    def speak(agent: Agent) -> object:
        return getattr(agent, queue)("S")

    steps, *_ = spoken_to(None, speak)
    assert steps > 10
    outcomes: Counter[tuple[int, int, str]] = Counter()
    for step in range(1, steps + 1):
        _, messages, left, status = spoken_to(step, speak)
        outcomes[(messages.count("user: S"), left.count("user: S"), status)] += 1

    assert set(outcomes) == {(1, 0, "delivered"), (0, 1, "next_run")}


async def test_g2_steering_that_was_taken_is_not_destroyed_by_an_abort() -> None:
    """failures.md G2"""

    def turn(messages: object, index: int) -> None:
        if index == 1:
            agent.abort()

    agent, _ = listened(ScriptedModel(answer("one", pace=1), "two"), before_turn=turn)

    stream = agent.prompt("go")
    await asyncio.sleep(0.5)
    receipt = agent.steer("S")
    result = await stream

    assert (result.end_reason, receipt.status) == ("aborted", "delivered")
    assert said(agent.messages) == ["user: go", "assistant: one", "user: S"]
    assert agent.queued.steering == []


async def test_g3_steering_at_the_turn_limit_is_heard_or_stays_queued_and_is_reported() -> None:
    """failures.md G3: what is pending enters the log before the limit is looked at (loop.md T2, T3)"""
    script = ScriptedModel(answer("one", pace=1), "never")
    agent, _ = listened(script, limits=ExecutionLimits(max_turns=1))
    stream = agent.prompt("go")
    await asyncio.sleep(0.5)
    receipts = [agent.steer("first"), agent.steer("second"), agent.follow_up("third")]
    result = await stream

    assert (result.end_reason, script.asked) == ("limit", 1)
    assert said(result.messages) == [
        *("user: go", "assistant: one", "user: first"),
        "user: [Agent stopped: Max turns reached (1/1)]",
    ]
    assert [receipt.status for receipt in receipts] == ["delivered", "next_run", "next_run"]
    assert said(result.undelivered) == ["user: second", "user: third"]


async def test_g4_a_follow_up_queued_on_agent_end_is_heard_by_the_next_run() -> None:
    """failures.md G4"""
    agent = Agent(ScriptedModel("one", "two").model)
    receipts: list[Any] = []

    def speak(event: AgentEvent) -> None:
        if event.type == "agent_end" and not receipts:
            receipts.append(agent.follow_up("and?"))

    agent.subscribe(speak)
    await agent.run("go")
    status = receipts[0].status
    result = await agent.continue_()

    assert (status, receipts[0].status) == ("next_run", "delivered")
    assert said(result.messages) == ["user: and?", "assistant: two"]


async def test_g5_of_a_hundred_prompts_at_once_exactly_one_starts() -> None:
    """failures.md G5"""

    async def before_loop(messages: object, index: int) -> None:
        await asyncio.sleep(1)

    script = ScriptedModel("one")
    agent, events = listened(script, before_loop=before_loop)
    outcomes: list[str] = []

    async def speak(number: int) -> None:
        try:
            outcomes.append((await agent.run(f"prompt {number}")).end_reason)
        except AgentBusy:
            outcomes.append("busy")

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(speak(number))

    assert Counter(outcomes) == {"busy": 99, "done": 1}
    assert said(agent.messages) == ["user: prompt 0", "assistant: one"]
    assert events.types.count("agent_start") == 1


@each_row("mode", ["one-at-a-time", "all"])
@each_row("turns", range(6))
async def test_g7_five_messages_are_heard_by_the_mode_and_none_is_lost_by_an_abort_between(
    turns: int, mode: Any
) -> None:
    """failures.md G7"""
    script = ScriptedModel("ok", repeat_last=True)
    agents: list[Agent] = []

    def before_turn(messages: object, index: int) -> None:
        if index == turns:
            agents[0].abort()

    agent, _ = listened(script, steering_mode=mode, before_turn=before_turn)
    agents.append(agent)
    for number in range(5):
        agent.steer(f"m{number}")
    await agent.run("go")

    heard = [message.text for message in agent.messages if message.role == "user"]
    waiting = [message.text for message in agent.queued.steering]
    count = 5 if mode == "all" else min(turns + 1, 5)
    assert heard == ["go", *(f"m{number}" for number in range(count))]
    assert waiting == [f"m{number}" for number in range(count, 5)]


class SlowCompaction:
    """A strategy that takes its time and keeps only the last message."""

    async def compact(self, messages: Sequence[AgentMessage], config: object) -> Sequence[AgentMessage]:
        await asyncio.sleep(10)
        return messages[-1:]


@pytest.mark.parametrize("when", ["compaction", "backoff", "retry"])
async def test_g8_steering_during_compaction_backoff_and_retry_is_delivered_once_after(when: str) -> None:
    """failures.md G8"""
    first = "one" if when == "compaction" else error("overloaded")
    second = answer("one", pace=10) if when == "retry" else "one"
    turns = [first, "two"] if when == "compaction" else [first, second, "two"]
    history: list[Any] = ["task", *({"role": "assistant", "content": "word " * 300} for _ in range(4)), "next"]
    options: dict[str, Any] = {}
    if when == "compaction":
        options["context_config"] = ContextConfig(
            max_context_tokens=1000, compaction=CompactionConfig(in_memory_strategy=SlowCompaction())
        )
    agent, _ = listened(ScriptedModel(*turns), messages=history, retry=Retry(base_delay=5, jitter=0), **options)
    stream = agent.prompt("go")
    await asyncio.sleep(8 if when == "retry" else 2)
    receipt = agent.steer("S")
    waiting = receipt.status
    result = await stream

    assert (waiting, receipt.status) == ("accepted", "delivered")
    assert said(result.messages) == ["user: go", "assistant: one", "user: S", "assistant: two"]


async def test_g6_a_subscriber_may_steer_prompt_and_unsubscribe_from_inside_a_callback() -> None:
    """failures.md J3: the neighbours of G5"""
    agent = Agent(ScriptedModel("one", "two").model)
    refused: list[str] = []

    def meddle(event: AgentEvent) -> None:
        if event.type == "message_end" and not refused:
            with pytest.raises(AgentBusy):
                agent.prompt("another")
            refused.append("busy")
            agent.steer("S")
            agent.unsubscribe(subscription)

    subscription = agent.subscribe(meddle)
    result = await agent.run("go")

    assert refused == ["busy"]
    assert said(result.messages) == ["user: go", "assistant: one", "user: S", "assistant: two"]
