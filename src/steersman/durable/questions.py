"""The questions of a session that wait for an answer, read from its log by whichever process asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from steersman.session.orders import find_answer
from steersman.session.records import decode
from steersman.session.stores.store import Store

_MARKS = (b'"approval_', b'"run_start"', b'"run_end"', b'"imported"', b'"approve"', b'"deny"')


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A tool call that waits for approval, with its `preview`: what it would do.

    `is_answered` says whether a worker has heard an answer and not used it.
    """

    approval_id: str
    tool_name: str
    args: Any
    reason: str
    preview: str = ""
    is_answered: bool = False


def read_questions(store: Store, session_id: str) -> list[OpenQuestion]:
    """The open questions of a session, oldest first; blocks."""
    handle = store.open(session_id, write=False)
    try:
        return _find_questions(handle.lines())
    finally:
        handle.close()


def _find_questions(lines: Iterable[tuple[int, bytes]]) -> list[OpenQuestion]:
    found: dict[str, OpenQuestion] = {}
    answers: set[str] = set()
    for _, line in lines:
        if not any(mark in line for mark in _MARKS):
            continue
        try:
            record = decode(line)
        except ValueError:
            continue  # a damaged record says nothing
        fields = record.payload
        if record.type in ("run_start", "run_end", "imported"):
            # A run that goes on asks its questions again, under other ids if the calls would do something else by now.
            # Those of an imported session belong to another place.
            found.clear()
        elif record.type == "order" and (answer := find_answer(fields)) is not None:
            answers.add(answer.approval_id)
        elif record.type == "event":
            _follow_event(found, fields)
    return [replace(each, is_answered=each.approval_id in answers) for each in found.values()]


def _follow_event(found: dict[str, OpenQuestion], fields: Any) -> None:
    id = str(fields.get("approval_id"))
    if fields.get("type") == "approval_resolved":
        found.pop(id, None)
    elif fields.get("type") == "approval_requested":
        name, reason, preview = [str(fields.get(name, "")) for name in ("tool_name", "reason", "preview")]
        found[id] = OpenQuestion(id, name, fields.get("args"), reason, preview)
