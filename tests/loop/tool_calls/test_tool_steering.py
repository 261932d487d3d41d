from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.loop.toolbox import Workshop, agent_of, customs, echo, texts, told

from steersman import Agent, ToolContext, ToolResultMessage, batched, tool
from steersman.testing import EventCollector, ScriptedModel, answer, call
from steersman.types.events import ToolExecutionEnd, TurnEnd

SKIPPED = "Skipped due to queued user message."
STEERED = "tool call cancelled: user requested steering interrupt"
ABORTED = "tool call cancelled: operation aborted"


def now() -> float:
    return asyncio.get_running_loop().time()


class Scene:
    """Three jobs of ten seconds each, two at a time; something happens after five of them."""

    def __init__(self, **options: Any) -> None:
        self.shop = Workshop()
        script = ScriptedModel(answer(*(call("job", name=name, seconds=10.0) for name in "abc")), "heard you")
        options.setdefault("tool_execution", batched(2))
        self.agent, self.heard = agent_of(script, [self.shop.job()], **options)
        self.script = script

    async def play(self, action: Callable[[Agent], object], *, after: float = 5) -> tuple[list[Any], list[str], float]:
        """The results, what the tools did, and when they were over."""
        running = asyncio.create_task(self.agent.run("go"))
        await asyncio.sleep(after)
        action(self.agent)
        self.result = await running
        return told(self.result.messages), self.shop.log, now()


DONE = [("job", f"{name} done", False, "completed") for name in "abc"]


async def test_skip_is_the_default_and_answers_what_has_not_started() -> None:
    """loop.md D6"""
    scene = Scene()
    results, log, end = await scene.play(lambda agent: agent.steer("other way"))
    assert results == [*DONE[:2], ("job", SKIPPED, True, "not_started")]
    assert (log, end) == (["+a", "+b", "-a", "-b"], 10.0)
    assert texts(scene.result.messages)[-2:] == [("user", "other way"), ("assistant", "heard you")]


@pytest.mark.parametrize(("mode", "reason"), [("skip", "steered"), ("cancel", "steered"), ("wait", "tool_use")])
async def test_the_turn_says_that_steering_ended_it(mode: Any, reason: str) -> None:
    """loop.md D6"""
    scene = Scene()
    await scene.play(lambda agent: agent.steer("other way", mode=mode))
    assert [turn.reason for turn in scene.heard.of(TurnEnd)] == [reason, "stop"]


async def test_a_tool_that_says_the_words_of_steering_was_not_steered() -> None:
    """loop.md D6"""

    @tool
    def mimic() -> str:
        """Say it."""
        return SKIPPED

    agent, heard = agent_of(ScriptedModel(call("mimic"), "ok"), [mimic])
    await agent.run("go")
    assert [turn.reason for turn in heard.of(TurnEnd)] == ["tool_use", "stop"]


async def test_cancel_stops_what_runs_after_a_short_grace() -> None:
    """loop.md D6"""
    results, log, end = await Scene(steering="cancel").play(lambda agent: agent.steer("other way"))
    assert results == [
        ("job", STEERED, True, "interrupted"),
        ("job", STEERED, True, "interrupted"),
        ("job", SKIPPED, True, "not_started"),
    ]
    assert (log, end) == (["+a", "+b", "!a", "!b"], 5.25)


async def test_a_call_that_ends_within_the_grace_keeps_its_result() -> None:
    """loop.md D6"""
    results, log, end = await Scene(steering="cancel", cancel_grace=6).play(lambda agent: agent.steer("other way"))
    assert results == [*DONE[:2], ("job", SKIPPED, True, "not_started")]
    assert (log, end) == (["+a", "+b", "-a", "-b"], 10.0)


async def test_wait_lets_the_whole_batch_finish() -> None:
    """loop.md D6"""
    scene = Scene(steering="wait")
    results, log, end = await scene.play(lambda agent: agent.steer("other way"))
    assert results == DONE
    assert (log, end) == (["+a", "+b", "-a", "-b", "+c", "-c"], 20.0)
    assert texts(scene.result.messages)[-2:] == [("user", "other way"), ("assistant", "heard you")]


@pytest.mark.parametrize(
    ("config", "mode", "ends"),
    [
        ("skip", "wait", 20.0),
        ("skip", "cancel", 5.25),
        ("cancel", "wait", 20.0),
        ("cancel", "skip", 10.0),
        ("wait", "skip", 10.0),
        ("wait", "cancel", 5.25),
        ("wait", None, 20.0),
    ],
)
async def test_a_message_may_bring_its_own_mode(config: str, mode: Any, ends: float) -> None:
    """loop.md D6"""
    _, _, end = await Scene(steering=config).play(lambda agent: agent.steer("other way", mode=mode))
    assert end == ends


async def test_the_most_urgent_of_several_messages_decides() -> None:
    """loop.md D6"""

    def steer(agent: Agent) -> None:
        agent.steer("when you are done", mode="wait")
        agent.steer("stop that now", mode="cancel")

    scene = Scene()
    results, _, end = await scene.play(steer)
    assert [status for *_, status in results] == ["interrupted", "interrupted", "not_started"]
    assert end == 5.25


async def test_steering_that_was_there_before_the_tools_is_heard_before_them() -> None:
    """loop.md D6, T2"""
    scene = Scene()
    scene.agent.steer("first this")
    results, _, _ = await scene.play(lambda _: None)
    assert results == DONE
    assert texts(scene.result.messages)[:2] == [("user", "go"), ("user", "first this")]


async def test_steering_while_the_model_speaks_skips_all_its_calls() -> None:
    """loop.md D6"""
    shop = Workshop()
    script = ScriptedModel(answer("Let me see.", call("job", name="a"), call("job", name="b"), pace=1), "heard you")
    agent, _ = agent_of(script, [shop.job()])
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(2.5)
    agent.steer("no, wait")
    result = await running
    assert told(result.messages) == [("job", SKIPPED, True, "not_started")] * 2
    assert shop.log == []


@pytest.mark.parametrize("steering", ["skip", "cancel"])
async def test_an_uninterruptible_tool_finishes_whatever_the_user_says(steering: str) -> None:
    """loop.md D6"""
    shop = Workshop()
    script = ScriptedModel(answer(call("commit", name="c", seconds=10.0), call("job", name="j", seconds=20.0)), "heard")
    agent, _ = agent_of(script, [shop.job("commit", uninterruptible=True), shop.job()], steering=steering)
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    agent.steer("stop")
    result = await running
    other = ("job", STEERED, True, "interrupted") if steering == "cancel" else ("job", "j done", False, "completed")
    assert told(result.messages) == [("commit", "c done", False, "completed"), other]
    assert now() == (10.0 if steering == "cancel" else 20.0)


async def test_an_abort_stops_an_uninterruptible_tool_too() -> None:
    """loop.md D6: only steering waits for it."""
    scene = Scene(tool_execution="parallel")
    scene.shop.log.clear()
    shop = Workshop()
    agent, _ = agent_of(
        ScriptedModel(answer(call("commit", name="c", seconds=10.0))), [shop.job("commit", uninterruptible=True)]
    )
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    agent.abort()
    result = await running
    assert told(result.messages) == [("commit", ABORTED, True, "interrupted")]
    assert (result.end_reason, shop.log, now()) == ("aborted", ["+c", "!c"], 5.0)


async def test_an_abort_tells_what_ran_from_what_was_never_started() -> None:
    """loop.md D6, failures.md S14"""

    async def quick_then_abort() -> tuple[list[Any], list[str]]:
        shop = Workshop()
        script = ScriptedModel(
            answer(
                call("job", name="quick"),
                call("job", name="slow", seconds=99.0),
                call("job", name="never"),
                call("nope"),
            )
        )
        agent, _ = agent_of(script, [shop.job()], tool_execution=batched(2))
        running = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(5)
        agent.abort()
        result = await running
        assert (result.end_reason, result.detail) == ("aborted", "operation aborted")
        return told(result.messages), shop.log

    results, log = await quick_then_abort()
    assert results == [
        ("job", "quick done", False, "completed"),
        ("job", ABORTED, True, "interrupted"),
        ("job", ABORTED, True, "not_started"),
        ("nope", "No tool named 'nope'. Available tools: job.", True, "invalid"),
    ]
    assert log == ["+quick", "+slow", "-quick", "!slow"]


async def test_what_the_loop_answers_for_a_tool_is_marked_as_its_own() -> None:
    """loop.md D6: a message made by the loop itself is flagged synthetic."""
    scene = Scene(steering="cancel")
    await scene.play(lambda agent: agent.steer("other way"))
    flags = [message.synthetic for message in scene.result.messages if isinstance(message, ToolResultMessage)]
    assert flags == [True, True, True]


async def test_a_tool_that_ignores_the_cancel_of_steering_is_abandoned_after_the_grace() -> None:
    """loop.md D6, D5"""
    shop = Workshop()
    agent, heard = agent_of(
        ScriptedModel(answer(call("stubborn")), answer("heard", pace=10)),
        [shop.stubborn(swallows=2, takes=8)],
        steering="cancel",
    )
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    agent.steer("stop")
    result = await running
    (end,) = heard.of(ToolExecutionEnd)
    assert told(result.messages) == [("stubborn", STEERED, True, "interrupted")]
    assert end.result.details == {"status": "interrupted", "abandoned": True}
    assert len(customs(heard, "tool_abandoned")) == 1
    assert [data["output"] for data in customs(heard, "late_tool_result")] == ["stubborn done"]


async def test_a_tool_sees_that_it_is_cancelled() -> None:
    """loop.md D6"""
    seen: list[Any] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Wait to be cancelled."""
        try:
            await asyncio.sleep(100)
        finally:
            seen.append((ctx.cancelled, ctx.token.reason))
        return "never"

    agent, _ = agent_of(ScriptedModel(answer(call("look")), "ok"), [look], steering="cancel")
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    agent.steer("stop")
    await running
    assert seen == [(True, STEERED)]


async def test_the_dispatcher_only_peeks_and_the_message_is_heard_once_after_the_results() -> None:
    """loop.md D7, failures.md S1"""
    scene = Scene()
    receipts: list[Any] = []
    seen: list[list[str]] = []
    scene.agent.subscribe(
        lambda event: (
            seen.append([message.text for message in scene.agent.queued.steering])
            if isinstance(event, ToolExecutionEnd)
            else None
        )
    )
    await scene.play(lambda agent: receipts.append(agent.steer("other way")))
    assert seen == [["other way"]] * 3
    assert [message.text for message in scene.result.messages if message.role == "user"] == ["go", "other way"]
    assert (receipts[0].status, scene.agent.queued.steering, scene.script.asked) == ("delivered", [], 2)


async def test_steering_and_then_an_abort_leaves_the_message_in_the_queue() -> None:
    """loop.md D7, failures.md S2"""
    scene = Scene()

    def both(agent: Agent) -> None:
        agent.steer("other way")
        agent.abort()

    results, _, end = await scene.play(both)
    assert [status for *_, status in results] == ["interrupted", "interrupted", "not_started"]
    assert end == 5.0
    assert (texts(scene.result.undelivered), scene.result.end_reason) == ([("user", "other way")], "aborted")


async def test_a_callback_for_steering_is_asked_after_each_call_and_skips_the_rest() -> None:
    """loop.md D6, D7"""
    shop = Workshop()
    script = ScriptedModel(answer(*(call("job", name=name) for name in "abc")), "heard")
    given: list[str] = []

    async def source() -> list[str]:
        if "-a" in shop.log and not given:
            given.append("other way")
            return list(given)
        return []

    agent, _ = agent_of(script, [shop.job()], tool_execution="sequential", get_steering_messages=source)
    result = await agent.run("go")
    assert [text for _, text, *_ in told(result.messages)] == ["a done", SKIPPED, SKIPPED]
    assert shop.log == ["+a", "-a"]
    assert [message.text for message in result.messages if message.role == "user"] == ["go", "other way"]


async def test_steering_from_another_thread_reaches_a_running_batch() -> None:
    """loop.md D6"""
    shop = Workshop()

    @tool
    def speak() -> str:
        """Steer from a thread."""
        agent.steer("from a thread", mode="cancel")
        return "spoken"

    script = ScriptedModel(answer(call("speak"), call("job", name="a", seconds=100.0)), "heard")
    agent, _ = agent_of(script, [speak, shop.job()])
    result = await agent.run("go")
    assert told(result.messages) == [("speak", "spoken", False, "completed"), ("job", STEERED, True, "interrupted")]
    assert result.text == "heard"


async def test_a_tool_may_steer_its_own_run() -> None:
    """loop.md D6, failures.md J3"""

    @tool
    async def speak() -> str:
        """Steer."""
        agent.steer("by the way")
        return "spoken"

    agent, _ = agent_of(ScriptedModel(answer(call("speak"), call("echo", text="x")), "heard"), [speak, echo])
    result = await agent.run("go")
    assert texts(result.messages)[-2:] == [("user", "by the way"), ("assistant", "heard")]


@pytest.mark.parametrize("value", ["stop", "", 1])
def test_an_unknown_mode_is_refused_where_it_is_given(value: Any) -> None:
    """loop.md D6"""
    agent = Agent(ScriptedModel("x").model)
    with pytest.raises(ValueError, match="mode is 'skip', 'cancel', 'wait' or None"):
        agent.steer("x", mode=value)
    with pytest.raises(ValueError, match="steering is one of 'skip', 'cancel', 'wait'"):
        Agent(ScriptedModel("x").model, steering=value)


async def test_every_result_comes_before_the_steering_on_the_wire() -> None:
    """loop.md D6, failures.md A6"""
    scene = Scene()
    heard = EventCollector()
    scene.agent.subscribe(heard)
    await scene.play(lambda agent: agent.steer("other way"))
    sent = scene.script.requests[1][0].messages
    assert [message.role for message in sent] == [
        "user",
        "assistant",
        "tool_result",
        "tool_result",
        "tool_result",
        "user",
    ]
