from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from tests.loop.play import answering, asked, listened, outline, said

from steersman import (
    Agent,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AgentMessage,
    ExecutionLimits,
    Inject,
    Pass,
    Stop,
    agent_loop,
    agent_loop_continue,
    tool,
)
from steersman.policy.hooks import PolicyView
from steersman.testing import ScriptedModel, answer, call, error, stall
from steersman.types.events import AgentEnd


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(10)
    return "seen"


def slow(words: str) -> Any:
    """An answer that takes a second or more."""
    return answer(words, deltas=1, pace=1)


async def test_steering_is_heard_at_the_next_turn_of_the_run() -> None:
    """loop.md T11"""
    script = ScriptedModel(call("look"), "done")
    agent, events = listened(script, tools=[look])
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    receipt = agent.steer("left")
    before = (receipt.status, said(agent.queued.steering))
    await stream

    assert before == ("accepted", ["user: left"])
    assert (receipt.status, agent.queued.steering) == ("delivered", [])
    assert outline(events)[-7:] == [
        "tool_result: seen",
        "turn_end 0 tool_use",
        "turn_start 1 continuation",
        "user: left",
        "assistant: done",
        "turn_end 1 stop",
        "agent_end done",
    ]
    assert asked(script)[-1] == "user: left"


async def test_a_follow_up_is_heard_when_the_agent_would_stop() -> None:
    """loop.md T11"""
    agent, events = listened(ScriptedModel(call("look"), "first", "second"), tools=[look])
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    receipt = agent.follow_up("and then?")
    result = await stream

    assert receipt.status == "delivered"
    assert said(result.messages) == [
        "user: go",
        "assistant: [look]",
        "tool_result: seen",
        "assistant: first",
        "user: and then?",
        "assistant: second",
    ]
    assert outline(events).count("agent_end done") == 1


async def test_steering_comes_before_follow_ups() -> None:
    """loop.md T11"""
    agent, _ = listened(ScriptedModel(slow("one"), "two", "three"))
    stream = agent.prompt("go")
    await asyncio.sleep(0.5)
    agent.follow_up("follow-up")
    agent.steer("steering")

    assert said((await stream).messages) == [
        "user: go",
        "assistant: one",
        "user: steering",
        "assistant: two",
        "user: follow-up",
        "assistant: three",
    ]


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("mode", ["one-at-a-time", "all"])
async def test_a_queue_is_heard_one_at_a_time_or_all_at_once(queue: str, mode: Any) -> None:
    """loop.md T11, failures.md G7"""
    script = ScriptedModel(slow("ok"), repeat_last=True)
    agent, _ = listened(script, steering_mode=mode, follow_up_mode=mode)
    stream = agent.prompt("go")
    await asyncio.sleep(0.5)
    receipts = [getattr(agent, queue)(f"m{number}") for number in range(5)]
    result = await stream

    together = ["user: m0", "user: m1", "user: m2", "user: m3", "user: m4"]
    each = [line for heard in together for line in (heard, "assistant: ok")]
    expected = each if mode == "one-at-a-time" else [*together, "assistant: ok"]
    assert said(result.messages) == ["user: go", "assistant: ok", *expected]
    assert [receipt.status for receipt in receipts] == ["delivered"] * 5


async def test_each_queue_has_its_own_mode() -> None:
    """loop.md T11"""
    agent, _ = listened(ScriptedModel("ok", repeat_last=True), follow_up_mode="all")
    for number in range(2):
        agent.steer(f"s{number}")
        agent.follow_up(f"f{number}")

    assert said((await agent.run("go")).messages) == [
        *("user: go", "user: s0", "assistant: ok"),
        *("user: s1", "assistant: ok"),
        *("user: f0", "user: f1", "assistant: ok"),
    ]


async def test_what_is_said_to_an_idle_agent_is_for_the_next_run_and_says_so() -> None:
    """loop.md T11"""
    agent, _ = listened(ScriptedModel("one", "two"))
    receipts = [agent.steer("steering"), agent.follow_up("follow-up")]
    before = [receipt.status for receipt in receipts]
    result = await agent.run("go")

    assert before == ["next_run", "next_run"]
    assert [receipt.status for receipt in receipts] == ["delivered", "delivered"]
    assert said(result.messages) == [
        *("user: go", "user: steering", "assistant: one"),
        *("user: follow-up", "assistant: two"),
    ]


async def test_what_comes_with_the_end_of_a_run_is_for_the_next_one() -> None:
    """loop.md T11, failures.md S8"""
    agent = Agent(ScriptedModel("one", "two", "three").model)
    receipts: list[Any] = []

    def speak(event: AgentEvent) -> None:
        if event.type == "agent_end" and not receipts:
            receipts.extend([agent.steer("late steering"), agent.follow_up("late follow-up")])
            statuses.extend(receipt.status for receipt in receipts)

    statuses: list[str] = []
    agent.subscribe(speak)
    first = await agent.run("go")
    second = await agent.run("again")

    assert statuses == ["next_run", "next_run"]
    assert said(first.messages) == ["user: go", "assistant: one"]
    assert said(first.undelivered) == ["user: late steering", "user: late follow-up"]
    assert said(second.messages) == [
        *("user: again", "user: late steering", "assistant: two"),
        *("user: late follow-up", "assistant: three"),
    ]
    assert [receipt.status for receipt in receipts] == ["delivered", "delivered"]


@pytest.mark.parametrize("queue", ["steer", "follow_up"])
@pytest.mark.parametrize("seam", ["post_loop_policies", "before_follow_up", "get_follow_up_messages"])
async def test_what_comes_during_the_last_questions_of_a_run_is_still_heard_by_it(queue: str, seam: str) -> None:
    """loop.md T11: the last look and the closing are one step"""
    agents: list[Agent] = []
    receipts: list[Any] = []

    async def speak(*_: object) -> None:
        if not receipts:
            await asyncio.sleep(1)
            receipts.append(getattr(agents[0], queue)("just in time"))
            await asyncio.sleep(1)

    given: Any = [speak] if seam == "post_loop_policies" else speak
    agent, events = listened(ScriptedModel("one", "two"), **{seam: given})
    agents.append(agent)
    result = await agent.run("go")

    assert said(result.messages) == ["user: go", "assistant: one", "user: just in time", "assistant: two"]
    assert receipts[0].status == "delivered"
    assert len(events.of(AgentEnd)) == 1


async def test_post_loop_policies_are_asked_before_follow_ups_and_may_stop() -> None:
    """loop.md T11"""
    agent, _ = listened(ScriptedModel("one"), post_loop_policies=[answering(Stop("enough"))])
    receipt = agent.follow_up("more")
    result = await agent.run("go")

    assert (result.end_reason, result.detail, receipt.status) == ("stopped", "enough", "next_run")
    assert said(result.undelivered) == ["user: more"]


async def test_what_a_post_loop_policy_injects_goes_before_the_follow_ups_and_only_once() -> None:
    """loop.md T11"""
    asked_after: list[str] = []

    def policy(view: Any) -> Inject | None:
        asked_after.append(view.message.text)
        return Inject("check it") if len(asked_after) == 1 else None

    agent, _ = listened(ScriptedModel("one", "two", "three"), post_loop_policies=[policy])
    agent.follow_up("follow-up")
    result = await agent.run("go")

    assert asked_after == ["one", "two", "three"]
    assert said(result.messages) == [
        *("user: go", "assistant: one"),
        *("user: check it", "assistant: two"),
        *("user: follow-up", "assistant: three"),
    ]


async def test_post_loop_policies_are_not_asked_while_there_is_steering_or_a_tool_result() -> None:
    """loop.md T11"""
    asked_after: list[str] = []

    def note(view: PolicyView) -> None:
        asked_after.append("" if view.message is None else view.message.text)

    agent, _ = listened(
        ScriptedModel(call("look"), slow("one"), "two"),
        tools=[look],
        post_loop_policies=[note],
    )
    stream = agent.prompt("go")
    await asyncio.sleep(10.5)
    agent.steer("steering")
    await stream

    assert asked_after == ["two"]


async def test_before_follow_up_may_hold_follow_ups_back() -> None:
    """loop.md T11"""
    seen: list[list[str]] = []

    def before_follow_up(messages: list[AgentMessage]) -> bool:
        seen.append(said(messages))
        return False

    agent, _ = listened(ScriptedModel("one"), before_follow_up=before_follow_up)
    agent.follow_up("more")
    result = await agent.run("go")

    assert (result.end_reason, seen) == ("stopped", [["user: go", "assistant: one"]])
    assert said(agent.queued.follow_up) == ["user: more"]


async def test_the_same_key_twice_is_one_message() -> None:
    """loop.md T11"""
    agent, _ = listened(ScriptedModel("one", "two"))
    first = agent.steer("once", key="k")
    second = agent.steer("once", key="k")
    other = agent.follow_up("once more", key="other")
    result = await agent.run("go")
    after = agent.steer("once", key="k")

    assert first is second is after
    assert (first.status, other.status) == ("delivered", "delivered")
    assert Counter(said(result.messages))["user: once"] == 1
    assert agent.queued.steering == []


async def test_what_was_taken_back_may_be_sent_again_under_its_key() -> None:
    """loop.md T11"""
    agent, _ = listened(ScriptedModel("one"))
    first = agent.steer("once", key="k")
    taken = agent.clear_queue()
    again = agent.steer("once", key="k")
    result = await agent.run("go")

    assert (said(taken), first.status, again.status) == (["user: once"], "returned", "delivered")
    assert said(result.messages) == ["user: go", "user: once", "assistant: one"]


async def test_the_queue_can_be_taken_back() -> None:
    """loop.md T11"""
    agent, _ = listened(ScriptedModel(slow("one")))
    stream = agent.prompt("go")
    await asyncio.sleep(0.5)
    receipts = [agent.steer("steering"), agent.follow_up("follow-up")]
    taken = agent.clear_queue()
    result = await stream

    assert said(taken) == ["user: steering", "user: follow-up"]
    assert [receipt.status for receipt in receipts] == ["returned", "returned"]
    assert said(result.messages) == ["user: go", "assistant: one"]


@pytest.mark.parametrize("end", ["abort", "error", "limit", "veto", "stop"])
async def test_what_is_queued_when_a_run_ends_early_stays_queued_and_is_reported(end: str) -> None:
    """loop.md T9, loop.md T11"""
    options: dict[str, dict[str, Any]] = {
        "limit": {"limits": ExecutionLimits(max_duration=5)},
        "veto": {"before_loop": answering(False)},
        "stop": {"post_turn_policies": [answering(Stop("enough"))]},
    }
    first: Any = {"abort": stall(), "limit": stall(), "error": error("quota", "w", after=1, pace=1)}.get(
        end, slow("one")
    )
    script = ScriptedModel(first, "ok", "ok", "ok")
    agent, _ = listened(script, **options.get(end, {}))
    stream = agent.prompt("go")
    if end != "veto":
        await asyncio.sleep(0.5)
    receipts = [agent.steer("steering"), agent.follow_up("follow-up")]
    if end == "abort":
        agent.abort()
    result = await stream

    assert said(result.undelivered) == ["user: steering", "user: follow-up"]
    assert [receipt.status for receipt in receipts] == ["next_run", "next_run"]
    assert [said(agent.queued.steering), said(agent.queued.follow_up)] == [["user: steering"], ["user: follow-up"]]


async def test_callbacks_are_asked_for_steering_and_follow_ups() -> None:
    """loop.md T11"""
    steering: list[list[Any]] = [[], ["s1", {"role": "user", "content": "s2"}], []]
    follow_ups: list[list[Any] | None] = [["f1"], None]

    async def get_steering_messages() -> list[Any]:
        await asyncio.sleep(1)
        return steering.pop(0) if steering else []

    def get_follow_up_messages() -> list[Any] | None:
        return follow_ups.pop(0)

    script = ScriptedModel("one", "two", "three")
    context = AgentContext()
    config = AgentLoopConfig(
        model=script.model,
        get_steering_messages=get_steering_messages,
        get_follow_up_messages=get_follow_up_messages,
    )
    messages = await agent_loop("go", context, config).result()

    assert said(messages) == [
        *("user: go", "assistant: one"),
        *("user: s1", "user: s2", "assistant: two"),
        *("user: f1", "assistant: three"),
    ]
    assert follow_ups == []


async def test_a_message_provider_is_the_other_spelling_of_the_callbacks() -> None:
    """loop.md T11"""

    class Provider:
        """One message each."""

        def __init__(self) -> None:
            self.steering = ["s"]
            self.follow_up = ["f"]

        def poll_steering(self) -> list[str]:
            taken, self.steering = self.steering, []
            return taken

        async def poll_follow_up(self) -> list[str]:
            await asyncio.sleep(1)
            taken, self.follow_up = self.follow_up, []
            return taken

    agent, _ = listened(ScriptedModel("one", "two"), message_provider=Provider())

    assert said((await agent.run("go")).messages) == [
        *("user: go", "user: s", "assistant: one"),
        *("user: f", "assistant: two"),
    ]


async def test_a_callback_is_asked_after_each_tool_and_its_message_ends_the_batch() -> None:
    """loop.md T11, loop.md D6"""
    runs: list[str] = []

    def touch(name: str) -> str:
        """Touch."""
        runs.append(name)
        return "ok"

    waiting = ["stop that"]

    def get_steering_messages() -> list[str]:
        return [waiting.pop()] if runs and waiting else []

    script = ScriptedModel([call("touch", name="a"), call("touch", name="b")], "fine")
    agent, _ = listened(script, tools=[touch], tool_execution="sequential", get_steering_messages=get_steering_messages)
    result = await agent.run("go")

    assert runs == ["a"]
    assert said(result.messages)[2:] == [
        "tool_result: ok",
        "tool_result: Skipped due to queued user message.",
        "user: stop that",
        "assistant: fine",
    ]


async def test_what_a_bare_context_did_not_hear_it_keeps_for_the_next_run() -> None:
    """loop.md T11, failures.md S2"""
    polls: list[int] = []

    def get_steering_messages() -> list[str]:
        polls.append(1)
        return ["kept"] if len(polls) == 2 else []

    context = AgentContext()
    script = ScriptedModel("one", "two")
    signal = asyncio.Event()

    async def slow_filter(words: str) -> Any:
        if words == "kept" and not signal.is_set():
            signal.set()
            await asyncio.sleep(60)
        return Pass()

    config = AgentLoopConfig(
        model=script.model, get_steering_messages=get_steering_messages, input_filters=[slow_filter]
    )
    first = await agent_loop("go", context, config, signal=signal)
    signal.clear()
    second = await agent_loop_continue(context, AgentLoopConfig(model=script.model))

    assert (first.end_reason, said(first.messages), said(first.undelivered)) == (
        "aborted",
        ["user: go", "assistant: one"],
        ["user: kept"],
    )
    assert said(second.messages) == ["user: kept", "assistant: two"]


@pytest.mark.parametrize("mode", ["skip", "cancel", "wait"])
async def test_a_message_may_say_itself_what_becomes_of_running_tools(mode: Any) -> None:
    """loop.md D6, loop.md T11"""
    agent, _ = listened(
        ScriptedModel([call("look"), call("look")], "fine"), tools=[look], tool_execution="sequential", steering="wait"
    )
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.steer("now", mode=mode)
    result = await stream

    answers = {
        "skip": ["tool_result: seen", "tool_result: Skipped due to queued user message."],
        "wait": ["tool_result: seen", "tool_result: seen"],
        "cancel": [
            "tool_result: tool call cancelled: user requested steering interrupt",
            "tool_result: Skipped due to queued user message.",
        ],
    }
    assert said(result.messages)[2:] == [*answers[mode], "user: now", "assistant: fine"]


def test_steering_from_many_threads_loses_and_doubles_nothing() -> None:
    """loop.md T11"""
    script = ScriptedModel(answer("ok", pace=0.001), repeat_last=True)
    agent = Agent(script.model, steering_mode="all", follow_up_mode="all", limits=ExecutionLimits(max_turns=None))
    receipts: list[Any] = []

    def speak(number: int) -> None:
        for count in range(50):
            say = agent.steer if count % 2 else agent.follow_up
            receipts.append(say(f"{number}.{count}"))

    async def main() -> None:
        threads = [threading.Thread(target=speak, args=(number,)) for number in range(4)]
        stream = agent.prompt("go")
        for thread in threads:
            thread.start()
        await stream
        for thread in threads:
            thread.join()
        if agent.queued.steering or agent.queued.follow_up:
            await agent.continue_()

    asyncio.run(main())

    heard = Counter(message.text for message in agent.messages if message.role == "user")
    expected = Counter(["go", *(f"{number}.{count}" for number in range(4) for count in range(50))])
    assert heard == expected
    assert {receipt.status for receipt in receipts} == {"delivered"}


def test_an_abort_from_another_thread_ends_the_run() -> None:
    """loop.md T12"""
    agent = Agent(ScriptedModel(stall("words", after=1)).model)

    async def main() -> str:
        stream = agent.prompt("go")
        await asyncio.sleep(0.01)
        thread = threading.Thread(target=agent.abort)
        thread.start()
        result = await stream
        thread.join()
        return result.end_reason

    assert asyncio.run(main()) == "aborted"
