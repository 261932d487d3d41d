"""What the server knows of a session's records."""

from __future__ import annotations

from typing import Any

from steersman.server.outline import read_outline
from steersman.session.records import Record, encode


def test_a_question_takes_an_answer_also_before_a_run_that_goes_on_has_asked_it_again() -> None:
    """S7: the run of a killed program goes on, and two clients answer at once."""
    asked: dict[str, Any] = {"type": "approval_requested", "approval_id": "a"}
    resolved: dict[str, Any] = {"type": "approval_resolved", "approval_id": "a", "decision": "denied"}
    steps = [("run_start", {"loop_id": "l"}), ("event", asked), ("run_start", {"loop_id": "l"}), ("event", resolved)]
    lines = [
        (seq, encode(Record(id=f"r{seq}", parent=None, seq=seq, type=kind, time=0.0, payload=payload)))
        for seq, (kind, payload) in enumerate(steps, start=1)
    ]
    taken = [read_outline(lines[:count]).takes_answer("a") for count in range(len(lines) + 1)]
    assert taken == [False, False, True, True, False]
    assert not read_outline(lines).takes_answer("b")
