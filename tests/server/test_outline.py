"""What the server knows of a session's records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steersman.server.outline import read_outline
from steersman.session.records import Record, encode


def _encode(steps: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[int, bytes]]:
    return [
        (seq, encode(Record(id=f"r{seq}", parent=None, seq=seq, type=kind, time=0.0, payload=payload)))
        for seq, (kind, payload) in enumerate(steps, start=1)
    ]


def test_a_question_takes_an_answer_also_before_a_run_that_goes_on_has_asked_it_again() -> None:
    """S7: the run of a killed program goes on, and two clients answer at once."""
    asked: dict[str, Any] = {"type": "approval_requested", "approval_id": "a"}
    resolved: dict[str, Any] = {"type": "approval_resolved", "approval_id": "a", "decision": "denied"}
    steps = [("run_start", {"loop_id": "l"}), ("event", asked), ("run_start", {"loop_id": "l"}), ("event", resolved)]
    lines = _encode(steps)
    taken = [read_outline(lines[:count]).takes_answer("a") for count in range(len(lines) + 1)]
    assert taken == [False, False, True, True, False]
    assert not read_outline(lines).takes_answer("b")


def test_a_question_in_whose_place_another_one_is_asked_after_a_restart_takes_no_answer() -> None:
    """Its call would do something else by now."""
    first: dict[str, Any] = {"type": "approval_requested", "approval_id": "a", "tool_call_id": "c"}
    second = {**first, "approval_id": "b"}
    of_sub_agents = [{**first, "approval_id": id, "parent_tool_call_id": "p"} for id in ("x", "y")]
    start = ("run_start", {"loop_id": "l"})
    asked = [("event", first), *(("event", each) for each in of_sub_agents)]
    outline = read_outline(_encode([start, *asked, start, ("event", second)]))
    assert [outline.takes_answer(id) for id in ("a", "b", "x", "y")] == [False, True, True, True]
    assert outline.resolved == {"a"}


def test_questions_and_receipts_of_an_imported_session_say_nothing_here() -> None:
    steps: list[tuple[str, dict[str, Any]]] = [
        ("run_start", {"loop_id": "l"}),
        ("accepted", {"kind": "steering", "key": "said"}),
        ("event", {"type": "approval_requested", "approval_id": "a"}),
        ("receipt", {"key": "k", "id": "x", "status": "accepted"}),
        ("imported", {}),
    ]
    outline = read_outline(_encode(steps))
    assert [outline.questions, outline.receipts, outline.queued] == [{}, {}, {}]
    assert not outline.said
    assert not outline.in_run
    assert not outline.takes_answer("a")
