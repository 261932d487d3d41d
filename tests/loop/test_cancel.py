"""A cancel at every step of every scenario: a valid transcript, one end, nothing left or lost, and life goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from tests.loop.scenarios import SCENARIOS, Scenario, Stage
from tests.rows import each_row

from steersman import AgentMessage
from steersman.testing import EventCollector, ScriptedModel, VirtualClockLoop, check_transcript, run_virtual
from steersman.types.events import AgentEnd, ToolExecutionEnd

Interrupt = Callable[[Stage, "asyncio.Task[None]"], object]


def _abort(stage: Stage, _: asyncio.Task[None]) -> None:
    stage.agent.abort()


def _cancel_caller(_: Stage, caller: asyncio.Task[None]) -> None:
    caller.cancel()


def test_there_are_enough_scenarios() -> None:
    """At least thirty kinds of conversations are interrupted."""
    assert len(SCENARIOS) >= 30


@each_row("interrupt", [_abort, _cancel_caller], ids=["abort", "cancelled caller"])
@each_row("name", SCENARIOS)
def test_a_cancel_at_any_step_leaves_everything_in_order(name: str, interrupt: Interrupt) -> None:
    """loop.md T12, T9, T1, R8, section 6; failures.md A1, S2, F12: wherever the loop waits, a cancel is seen there."""
    scenario = SCENARIOS[name]
    steps = _play(scenario, None, interrupt)
    assert steps > 0
    for step in range(1, steps + 1):
        try:
            _play(scenario, step, interrupt)
        except BaseException as failure:
            failure.add_note(f"{name!r}, interrupted before step {step} of {steps}")
            raise


@each_row("name", SCENARIOS)
def test_an_abort_inside_any_callback_ends_the_run_there(name: str) -> None:
    """loop.md T12, section 5; failures.md F12, J3: a subscriber may abort on any event, with more already buffered."""
    total = _abort_on_event(name, None)
    assert total > 0
    for number in range(total):
        try:
            _abort_on_event(name, number)
        except BaseException as failure:
            failure.add_note(f"{name!r}, aborted in the callback of event {number} of {total}")
            raise


def _abort_on_event(name: str, number: int | None) -> int:
    """Play the scenario and abort inside the callback of one event; how many events it had."""
    scenario = SCENARIOS[name]
    stage = scenario.stage()
    events = EventCollector()
    stage.agent.subscribe(events)
    stage.agent.subscribe(lambda _: stage.agent.abort() if len(events) - 1 == number else None)

    async def main() -> int:
        await scenario.run(stage)
        _check(stage, events)
        told = list(events)
        if number is not None and told[number].type in ("message_start", "message_update", "turn_start"):
            ends = [event for event in told if isinstance(event, AgentEnd) and event.loop_id == told[number].loop_id]
            # A deadline that has already cut the run stays the reason.
            cut = any(isinstance(event, ToolExecutionEnd) and event.is_error for event in told[:number])
            assert [end.end_reason for end in ends] == ["limit" if cut and name == "a deadline" else "aborted"]
        await _speak_again(stage, events)
        return len(told)

    return run_virtual(main())


def test_a_task_that_is_cancelled_before_its_first_step_still_ends_the_run() -> None:
    """loop.md R8: a run whose task never got to run is closed all the same, and its prompt is not lost."""

    async def main() -> None:
        stage = SCENARIOS["a text"].stage()
        events = EventCollector()
        stage.agent.subscribe(events)
        stage.said.append("Go.")
        stream = stage.agent.prompt("Go.")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        result = await stream
        assert result.end_reason == "aborted"
        _check(stage, events)
        await _speak_again(stage, events)

    run_virtual(main())


def _play(scenario: Scenario, step: int | None, interrupt: Interrupt) -> int:
    """Play the scenario with one interruption, check what must hold, speak again; how many steps it had."""
    stage = scenario.stage()
    events = EventCollector()
    stage.agent.subscribe(events)
    callers: list[asyncio.Task[None]] = []
    steps = 0

    def on_step(_: int) -> None:
        nonlocal steps
        if callers and not callers[0].done():
            steps += 1
            if steps == step:
                interrupt(stage, callers[0])

    async def main() -> None:
        callers.append(asyncio.ensure_future(scenario.run(stage)))
        await asyncio.wait(callers)
        if not callers[0].cancelled():
            callers[0].result()
        # A reader that is cancelled drops its stream, and the run ends a moment later.
        await stage.agent.wait_for_idle()
        assert not stage.agent.is_running
        _check(stage, events)
        await _speak_again(stage, events)

    run_virtual(main(), on_step=on_step)
    return steps


def _check(stage: Stage, events: EventCollector) -> None:
    check_transcript(stage.agent.messages)
    ends = Counter(event.loop_id for event in events if event.type == "agent_end")
    assert set(ends.values()) <= {1}
    assert set(ends) == {event.loop_id for event in events}
    heard = Counter(message.text for message in _everything(stage) if message.role == "user")
    queued = stage.agent.queued
    waiting = Counter(message.text for message in (*queued.steering, *queued.follow_up))
    for words in stage.said:
        # A warning of an input filter is appended to what was said.
        times = sum(count for text, count in (heard + waiting).items() if text.startswith(words))
        assert times == 1, (words, heard, waiting)


def _everything(stage: Stage) -> list[AgentMessage]:
    """The transcript, and where a branch was taken, the way left behind too."""
    log = stage.agent.context.log
    while log.parent is not None:
        log = log.parent[0]
    seen = {id(message): message for message in (*log.messages, *stage.agent.messages)}
    return list(seen.values())


async def _speak_again(stage: Stage, events: EventCollector) -> None:
    stage.switch.script = ScriptedModel('{"a": 1}', repeat_last=True)
    result = await stage.agent.run("And now?")
    assert (result.end_reason, result.text) == ("done", '{"a": 1}'), result.detail
    assert stage.agent.queued.steering == []
    assert stage.agent.queued.follow_up == []
    _check(stage, events)


def test_the_loop_counts_its_steps() -> None:
    """The place where the cancels are injected is between any two things that happen."""
    loop = VirtualClockLoop()
    try:
        loop.run_until_complete(asyncio.sleep(1))
        assert loop.steps > 1
    finally:
        loop.close()
