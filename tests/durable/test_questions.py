"""The questions of a session, as whichever process reads them from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.session.kit import cut, planted, records

from steersman import Session
from steersman.durable.questions import OpenQuestion, read_questions
from steersman.session import MemoryStore
from steersman.session.records import Record
from steersman.session.stores.store import Store

_SHOWN = {"tool_name": "pay", "args": {"to": "ann"}, "reason": "why", "preview": "pays 5 to ann"}


def _plant(*steps: tuple[str, dict[str, Any]]) -> tuple[Store, str]:
    store = MemoryStore()
    head: dict[str, Any] = {"format": "1.0", "session_id": "s", "created": 0.0}
    found = [("session", head), *steps]
    return store, planted(
        store, [Record(f"r{n}", None, n, kind, 0.0, fields) for n, (kind, fields) in enumerate(found, 1)]
    )


def _ask(id: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "event", {"type": "approval_requested", "approval_id": id, "tool_call_id": "c", **_SHOWN, **more}


def test_a_question_says_what_the_call_would_do() -> None:
    store, id = _plant(("run_start", {"loop_id": "l"}), _ask("a"))
    assert read_questions(store, id) == [OpenQuestion("a", "pay", {"to": "ann"}, "why", "pays 5 to ann")]


def test_a_run_that_goes_on_asks_its_questions_again() -> None:
    """The answer to one that is asked under another id now would else wait for ever, and keep a worker busy."""
    start = ("run_start", {"loop_id": "l"})
    yes = ("order", {"kind": "approve", "id": "o", "approval_id": "a"})
    changed = _ask("b", preview="pays 500 to ann")
    store, id = _plant(start, _ask("a"), yes, start, changed)
    shown = [
        [(each.approval_id, each.is_answered) for each in read_questions(store, cut(store, id, length))]
        for length in range(2, 7)
    ]
    assert shown == [[], [("a", False)], [("a", True)], [], [("b", False)]]


def test_an_imported_session_brings_no_questions(tmp_path: Path) -> None:
    """docs/sessions.md: nobody waits for an answer to what another place has asked."""
    store, id = _plant(("run_start", {"loop_id": "l"}), _ask("a"))
    with Session.open(store, id) as theirs:
        theirs.export(tmp_path / "s.jsonl")
    with Session.import_(tmp_path / "s.jsonl", store, "ours") as session:
        assert read_questions(store, session.id) == []
    assert records(store, "ours")
