"""The witness, the collector, and the judge around every test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steersman.testing import EventCollector, Witness, watch
from steersman.types.content import TextContent, ToolCall
from steersman.types.continuation import Initial
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    TurnEnd,
    TurnStart,
)
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.stream import Reset, TextDelta
from steersman.types.usage import Usage


def rejected(loop_id: str) -> list[AgentEvent]:
    return [
        AgentStart(loop_id, 0, 0.0, "agent", "session", Initial()),
        AgentEnd(loop_id, 1, 0.0, [], Usage(), "rejected"),
    ]


def test_runs_that_interleave_are_judged_one_by_one() -> None:
    witness = Witness()
    for pair in zip(rejected("one"), rejected("two"), strict=True):
        for event in pair:
            witness(event)
    witness.check()
    assert witness.finished == 2


def test_a_run_that_did_not_end_is_a_fault() -> None:
    witness = Witness()
    witness(rejected("one")[0])
    with pytest.raises(AssertionError, match="'one' ended without its agent_end"):
        witness.check()


def test_a_fault_is_kept_for_later_and_told_once() -> None:
    witness = Witness()
    start, _ = rejected("one")
    for event in (start, start, start):
        witness(event)
    with pytest.raises(AssertionError, match="expected seq 1, got 0"):
        witness.check()
    assert len(witness.faults) == 1


def test_a_transcript_with_an_unanswered_call_is_a_fault() -> None:
    broken = AssistantMessage([ToolCall("a", "look")], stop_reason="tool_use")
    witness = Witness()
    for event in [rejected("one")[0], AgentEnd("one", 1, 0.0, [broken], Usage(), "error")]:
        witness(event)
    with pytest.raises(AssertionError, match="without `tool_result` blocks immediately after: a"):
        witness.check()


def test_watching_subscribes_a_witness() -> None:
    class Bell:
        def __init__(self) -> None:
            self.callbacks: list[Callable[[AgentEvent], object]] = []

        def subscribe(self, callback: Callable[[AgentEvent], object], /) -> int:
            self.callbacks.append(callback)
            return 1

    bell = Bell()
    witness = watch(bell)
    assert bell.callbacks == [witness]


def test_the_fixture_hands_its_witness_to_a_test(witnessed: Witness) -> None:
    assert witnessed.faults == []


def test_a_collector_keeps_events_types_messages_and_the_text_on_screen() -> None:
    ask, says = user_message("Go"), AssistantMessage([TextContent("Done")])
    events: list[AgentEvent] = [
        TurnStart("one", 1, 0.0, 0, "user"),
        MessageStart("one", 2, 0.0, ask),
        MessageEnd("one", 3, 0.0, ask),
        MessageStart("one", 4, 0.0, AssistantMessage()),
        MessageUpdate("one", 5, 0.0, TextDelta("Dump")),
        MessageUpdate("one", 6, 0.0, Reset()),
        MessageUpdate("one", 7, 0.0, TextDelta("Done")),
        MessageEnd("one", 8, 0.0, says),
        TurnEnd("one", 9, 0.0, 0, says, [], "stop"),
    ]
    collector = EventCollector()
    for event in events:
        collector(event)
    assert list(collector) == events
    assert len(collector) == 9
    assert collector.types == [event.type for event in events]
    assert collector.shape == [
        "turn_start",
        "message_start",
        "message_end",
        "message_start",
        "message_end",
        "turn_end",
    ]
    assert collector.messages == [ask, says]
    assert collector.text == "Done"
    assert collector.of(TurnEnd) == [events[-1]]
