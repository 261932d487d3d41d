"""The spans of every scenario against its events: the same runs, turns, requests, calls, ends and tokens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from tests.loop.scenarios import SCENARIOS, Scenario, Stage
from tests.telemetry.kit import Collected, attributes, events

from steersman import Agent, AgentEvent, Usage
from steersman.testing import EventCollector, run_virtual
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent
from steersman.types.wire import decode

BILL = Usage(input=70, output=30, cache_read=20, cache_write=10, reasoning=5)
Ask = Callable[[Model, Request, StreamOptions], AsyncGenerator[StreamEvent, None]]


class Billed:
    """A `StreamFn` that reports usage with each answer and each failure, and counts the requests."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.requests = 0

    async def __call__(self, model: Model, request: Request, options: StreamOptions, /) -> Any:
        self.requests += 1
        return self._stream(model, request, options)

    async def _stream(self, model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Any, None]:
        async for event in self.inner(model, request, options):
            if isinstance(event, Done | Failed):
                yield msgspec.structs.replace(event, message=msgspec.structs.replace(event.message, usage=BILL))
            else:
                yield event


def set_stage(scenario: Scenario) -> tuple[Stage, Billed]:
    stage = scenario.stage()
    billed = Billed(stage.switch)
    stage.agent.configure(stream_fn=billed)
    return stage, billed


def unwrap(events: EventCollector) -> list[AgentEvent]:
    """The events of the agent, and those of its sub-agents, which come as updates of a tool call."""
    found: list[AgentEvent] = []
    for event in events:
        found.append(event)
        update: Any = event.update if event.type == "tool_execution_update" else None
        if isinstance(update, dict) and "event" in update:
            found.append(cast(AgentEvent, decode(msgspec.json.encode(update["event"]))))
    return found


def expect_tools(told: list[AgentEvent], loop_id: str) -> Counter[tuple[str, str, bool]]:
    """The calls of a run by its events: id, status and whether they failed."""
    ends = [one for one in told if one.type == "tool_execution_end" and one.loop_id == loop_id]
    return Counter((end.tool_call_id, end.result.details["status"], end.is_error) for end in ends)


def show_tools(collected: Collected, run: ReadableSpan) -> Counter[tuple[str, str, bool]]:
    """The same by the spans below the requests of the run."""
    chats = collected.children(run, "chat")
    spans = [span for chat in (run, *chats) for span in collected.children(chat, "execute_tool")]
    return Counter(
        (
            attributes(span)["gen_ai.tool.call.id"],
            attributes(span)["steersman.tool.status"],
            "error.type" in attributes(span),
        )
        for span in spans
    )


SPAN_EVENTS = {
    "retry_scheduled": "steersman.retry",
    "model_fallback": "steersman.fallback",
    "compaction_ended": "steersman.compaction",
    "prun_applied": "steersman.prun",
    "approval_requested": "steersman.approval_requested",
    "approval_resolved": "steersman.approval_resolved",
    "input_rejected": "steersman.input_rejected",
    "loop_detected": "steersman.loop_detected",
}


def check_run(collected: Collected, run: ReadableSpan, told: list[AgentEvent]) -> None:
    """One run: its end, its turns, its calls, its span events and its tokens are those of its events."""
    loop_id = attributes(run)["steersman.loop_id"]
    own = [event for event in told if event.loop_id == loop_id]
    end = own[-1]
    assert end.type == "agent_end"
    seen = attributes(run)
    assert (seen["steersman.end_reason"], seen["steersman.turns"]) == (
        end.end_reason,
        len([event for event in own if event.type == "turn_start"]),
    )
    assert show_tools(collected, run) == expect_tools(told, loop_id)
    names = [SPAN_EVENTS[event.type] for event in own if event.type in SPAN_EVENTS]
    assert [name for name, _ in events(run) if name in SPAN_EVENTS.values()] == names
    assert ("steersman.limit" in [name for name, _ in events(run)]) == (end.end_reason == "limit")
    asked = collected.children(run, "chat")
    for earlier, later in pairwise(asked):  # a request is over before the next one begins, also one that was cut
        assert earlier.end_time is not None
        assert earlier.end_time <= (later.start_time or 0)
    chats = [span for span in collected.below(run) if attributes(span)["gen_ai.operation.name"] == "chat"]
    sums = [sum(attributes(chat).get(name, 0) for chat in chats) for name in TOKENS]
    assert sums == [seen.get(name, 0) for name in TOKENS] == count_tokens(end.usage)


TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.reasoning.output_tokens",
)


def count_tokens(usage: Usage) -> list[int]:
    whole = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    return [whole, usage.output or 0, usage.cache_read or 0, usage.cache_write or 0, usage.reasoning or 0]


def check_all(collected: Collected, told: list[AgentEvent]) -> None:
    """All runs there were, and no other span than theirs."""
    runs = collected.find("invoke_agent")
    ends = [event.loop_id for event in told if event.type == "agent_end"]
    assert sorted(attributes(run)["steersman.loop_id"] for run in runs) == sorted(ends)
    for run in runs:
        check_run(collected, run, told)
    starts = {event.loop_id: event for event in told if event.type == "agent_start"}
    for run in runs:
        above = collected.started_by(run)
        start = starts.get(attributes(run)["steersman.loop_id"])
        call = None if start is None else start.parent_tool_call_id
        assert (None if above is None else attributes(above)["gen_ai.tool.call.id"]) == call


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_spans_are_what_the_events_tell(name: str, collected: Collected) -> None:
    """Runs, turns, calls, retries, limits and tokens; each request, retries too, is a span of its own."""
    stage, billed = set_stage(SCENARIOS[name])
    collected.record(stage.agent)
    told = EventCollector()
    stage.agent.subscribe(told)
    run_virtual(SCENARIOS[name].run(stage))
    check_all(collected, unwrap(told))
    own = [span for run in collected.children(None) for span in collected.children(run, "chat")]
    assert len(own) == billed.requests > 0


STEPS = 7
INTERRUPTED = ("parallel tools", "a sub-agent", "a retry after deltas", "steering cancels", "approval", "an overflow")


@pytest.mark.parametrize("by", ["abort", "cancel"])
@pytest.mark.parametrize("name", INTERRUPTED)
def test_every_span_is_ended_once_wherever_a_run_is_cut(name: str, by: str, collected: Collected) -> None:
    """An abort, or a cancel of the caller's task, at steps all over the run."""
    steps = _play(name, None, by, collected)
    assert steps > 0
    for step in range(1, steps + 1, max(steps // STEPS, 1)):
        _play(name, step, by, collected)
        collected.check()


def _play(name: str, step: int | None, by: str, collected: Collected) -> int:
    stage, _ = set_stage(SCENARIOS[name])
    collected.record(stage.agent)
    told = EventCollector()
    stage.agent.subscribe(told)
    callers: list[asyncio.Task[None]] = []
    steps = 0

    def on_step(_: int) -> None:
        nonlocal steps
        if callers and not callers[0].done():
            steps += 1
            if steps == step:
                stage.agent.abort() if by == "abort" else callers[0].cancel()

    async def main() -> None:
        callers.append(asyncio.ensure_future(SCENARIOS[name].run(stage)))
        await asyncio.wait(callers)
        await stage.agent.wait_for_idle()

    before = len(collected.find("invoke_agent"))
    run_virtual(main(), on_step=on_step)
    for run in collected.find("invoke_agent")[before:]:
        check_run(collected, run, unwrap(told))
    return steps


def test_a_sub_agent_is_below_its_call_and_its_requests_below_it(collected: Collected) -> None:
    scenario = SCENARIOS["a sub-agent"]
    stage = scenario.stage()
    collected.record(stage.agent, name="boss")
    run_virtual(scenario.run(stage))
    research = ["invoke_agent research", [["chat script", ["execute_tool slow"]], "chat script"]]
    assert collected.draw() == [
        ["invoke_agent boss", [["chat test", [["execute_tool research", [research]]]], "chat test"]]
    ]


async def test_nothing_is_recorded_without_instrument(collected: Collected) -> None:
    stage = SCENARIOS["one tool"].stage()
    await SCENARIOS["one tool"].run(stage)
    assert collected.started == []
    assert Agent("scripted:echo").dispatcher.callbacks == ()
