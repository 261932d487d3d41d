"""Every pattern cut at every step, at its limits, and with parts that break: everything stays in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.loop.toolbox import echo
from tests.rows import each_row

from steersman import Agent, ExecutionLimits, ToolResultMessage, Usage
from steersman.team import Handoff, Loop, Parallel, Pipeline, Supervisor, judge
from steersman.testing import EventCollector, ScriptedModel, answer, call, check_transcript, run_virtual

USAGE = Usage(input=10, output=5, cost=0.01)


class Cast:
    """The models of a pattern: each calls a tool and then answers, slowly enough to be cut."""

    def __init__(self) -> None:
        self.scripts: list[ScriptedModel] = []

    def play(self, *turns: Any, **options: Any) -> Agent[Any]:
        """An agent that plays these turns for ever, or calls a tool and answers."""
        script = ScriptedModel(*(turns or self._work()), usage=USAGE, repeat_last=True)
        self.scripts.append(script)
        return Agent(script.model, tools=[echo], **options)

    @staticmethod
    def _work() -> list[Any]:
        return [answer(call("echo", text="x")), answer("done", pace=1)]

    @property
    def streaming(self) -> int:
        """How many answers still stream."""
        return sum(script.streaming for script in self.scripts)


def pipeline(cast: Cast, **options: Any) -> Agent[Any]:
    return Pipeline([cast.play(), cast.play()], **options)


def parallel(cast: Cast, **options: Any) -> Agent[Any]:
    chosen = '{"index": 0, "reason": ""}'
    return Parallel([cast.play(), cast.play()], combine=judge(cast.play(chosen)), **options)


def loop(cast: Cast, **options: Any) -> Agent[Any]:
    verdicts = answer('{"good": false, "feedback": "more"}'), answer('{"good": true}')
    return Loop(cast.play(), until=cast.play(*verdicts), **options)


def handoff(cast: Cast, **options: Any) -> Agent[Any]:
    first = cast.play(answer(call("hand_off_to_b", reason="yours")), "again")
    return Handoff({"a": first, "b": cast.play()}, **options)


def supervisor(cast: Cast, **options: Any) -> Agent[Any]:
    lead = cast.play(answer(call("a", prompt="x"), call("b", prompt="y")), "all done")
    return Supervisor(lead, {"a": cast.play(), "b": cast.play()}, **options)


def nested(cast: Cast, **options: Any) -> Agent[Any]:
    return Pipeline([Parallel([cast.play(), cast.play()]), cast.play()], **options)


Make = Callable[..., Agent[Any]]
PATTERNS: dict[str, Make] = {make.__name__: make for make in (pipeline, parallel, loop, handoff, supervisor, nested)}
Interrupt = Callable[["Agent[Any]", "asyncio.Task[None]"], object]


def _abort(agent: Agent[Any], _: asyncio.Task[None]) -> None:
    agent.abort()


def _cancel_caller(_: Agent[Any], caller: asyncio.Task[None]) -> None:
    caller.cancel()


def _check(agent: Agent[Any], events: EventCollector, cast: Cast) -> None:
    """One end for each run, a valid transcript, nothing that still works; every test checks the grammar anyway."""
    check_transcript(agent.messages)
    ends = Counter(event.loop_id for event in events if event.type == "agent_end")
    assert ends == Counter({event.loop_id for event in events})
    assert cast.streaming == 0
    assert not agent.is_running


def _play(make: Make, interrupt: Interrupt, step: int | None = None, steps_in_all: int = 0) -> int:
    """Run a pattern, cut before that step, and then run it again; how many steps the first run had."""
    cast, events, steps = Cast(), EventCollector(), 0
    agent = make(cast)
    agent.subscribe(events)
    callers: list[asyncio.Task[None]] = []

    def on_step(_: int) -> None:
        nonlocal steps
        if callers and not callers[0].done():
            steps += 1
            if steps == step:
                interrupt(agent, callers[0])

    async def run() -> None:
        result = await agent.run("go")
        # Before the first step the run is not there yet, and at the last ones it is over.
        if step is not None and 1 < step < steps_in_all - 2:
            assert result.end_reason == "aborted", result.detail

    async def main() -> None:
        callers.append(asyncio.ensure_future(run()))
        await asyncio.wait(callers)
        if not callers[0].cancelled():
            callers[0].result()
        await agent.wait_for_idle()
        _check(agent, events, cast)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []
        again = await agent.run("And now?")
        assert again.end_reason == "done", again.detail
        _check(agent, events, cast)

    run_virtual(main(), on_step=on_step)
    return steps


@pytest.mark.parametrize("interrupt", [_abort, _cancel_caller], ids=["abort", "cancelled caller"])
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_can_be_cut_at_any_step(name: str, interrupt: Interrupt) -> None:
    """loop.md T12; failures.md F13: wherever a pattern or a part waits, a cancel is seen there."""
    steps = _play(PATTERNS[name], interrupt)
    assert steps > 15
    for step in range(1, steps + 1):
        try:
            _play(PATTERNS[name], interrupt, step, steps)
        except BaseException as failure:
            failure.add_note(f"{name!r}, cut before step {step} of {steps}")
            raise


LIMITS: dict[str, Callable[[int], ExecutionLimits]] = {
    "turns": lambda count: ExecutionLimits(max_turns=count),
    "tokens": lambda count: ExecutionLimits(max_total_tokens=15 * count),
    "cost": lambda count: ExecutionLimits(max_cost=0.01 * count),
    "duration": lambda count: ExecutionLimits(max_duration=0.3 * count),
}


@each_row("limit", LIMITS)
@each_row("name", PATTERNS)
async def test_the_limits_of_the_whole_hold_in_each_part(name: str, limit: str) -> None:
    """loop.md T3; failures.md I9: whichever part uses up the budget, the run ends as `limit`."""
    ends: list[str] = []
    for count in range(1, 12):
        cast, events = Cast(), EventCollector()
        agent = PATTERNS[name](cast, limits=LIMITS[limit](count))
        agent.subscribe(events)
        result = await agent.run("go")
        _check(agent, events, cast)
        ends.append(result.end_reason)
        asked = sum(script.asked for script in cast.scripts)
        assert result.end_reason == "done" or limit == "duration" or asked <= count + 2
    cut = [end for end in ends if end != "done"]
    assert len(cut) >= 2
    assert set(cut) == {"limit"}
    assert ends == sorted(ends, key=lambda end: end == "done")


@pytest.mark.parametrize("name", ["pipeline", "loop", "handoff", "nested"])
async def test_a_part_at_its_own_limit_ends_the_run_as_an_error_that_says_so(name: str) -> None:
    cast = Cast()
    tight = cast.play(answer(call("echo", text="x")), limits=ExecutionLimits(max_turns=1))
    made = {
        "pipeline": Pipeline([cast.play(), tight]),
        "loop": Loop(tight, until=lambda _: True),
        "handoff": Handoff({"a": tight}),
        "nested": Pipeline([Parallel([tight])]),
    }[name]
    result = await made.run("go")
    assert result.end_reason == "error"
    assert "ended with 'limit': Max turns reached (1/1)" in result.detail


class Crash(Exception):
    """What a broken part raises."""


def _raise(*_: Any, **__: Any) -> Any:
    raise Crash("broken")


BREAKS: dict[str, dict[str, Any]] = {
    "its model": {"stream_fn": _raise},
    "its hook": {"before_turn": _raise},
    "its converter": {"convert_to_llm": _raise},
}


@each_row("broken", BREAKS)
@each_row("place", [0, 1])
@each_row("name", ["pipeline", "parallel", "loop", "handoff", "supervisor", "nested"])
async def test_a_part_that_breaks_is_named_and_leaves_nothing_behind(name: str, place: int, broken: str) -> None:
    """loop.md R8: whatever breaks in a part, the run of the pattern ends in order."""
    cast, events = Cast(), EventCollector()
    bad, good = cast.play(retry=None, **BREAKS[broken]), cast.play()
    two = [bad, good] if place == 0 else [good, bad]
    made: Agent[Any] = {
        "pipeline": lambda: Pipeline(two),
        "parallel": lambda: Parallel(two),
        "loop": lambda: Loop(two[0], until=two[1] if place else (lambda _: True)),
        "handoff": lambda: Handoff({"a": cast.play(answer(call("hand_off_to_b", reason="x"))), "b": bad}),
        "supervisor": lambda: Supervisor(cast.play(answer(call("part_1", prompt="x")), "so be it"), [bad]),
        "nested": lambda: Pipeline([Parallel([bad, bad]), good]),
    }[name]()
    made.subscribe(events)
    result = await made.run("go")
    _check(made, events, cast)
    failures = [message for message in made.messages if isinstance(message, ToolResultMessage) and message.is_error]
    assert len(failures) == 1
    assert "Crash: broken" in failures[0].text
    assert result.end_reason == ("done" if name in ("parallel", "supervisor") else "error")
    if result.end_reason == "error":
        assert "Crash: broken" in result.detail


async def test_the_cost_of_a_pattern_is_that_of_its_parts() -> None:
    result = await pipeline(Cast()).run("go")
    assert (result.cost, result.usage.partial) == (pytest.approx(0.04), False)
