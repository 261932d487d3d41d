"""The questions of a session that wait for an answer, read from its log by whichever process asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from steersman.session.orders import find_answer
from steersman.session.records import decode
from steersman.session.stores.store import Store

_MARKS = (b'"approval_', b'"run_start"', b'"run_end"', b'"approve"', b'"deny"')


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A tool call that waits for approval. `is_answered` says whether a worker has heard an answer and not used it."""

    approval_id: str
    tool_name: str
    args: Any
    reason: str
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
        record = decode(line)
        fields = record.payload
        if record.type == "run_end":
            found.clear()
        elif record.type == "order" and (answer := find_answer(fields)) is not None:
            answers.add(answer.approval_id)
        elif record.type == "event":
            _follow_event(found, fields)
    return [
        OpenQuestion(each.approval_id, each.tool_name, each.args, each.reason, each.approval_id in answers)
        for each in found.values()
    ]


def _follow_event(found: dict[str, OpenQuestion], fields: Any) -> None:
    id = str(fields.get("approval_id"))
    if fields.get("type") == "approval_resolved":
        found.pop(id, None)
    elif fields.get("type") == "approval_requested":
        found[id] = OpenQuestion(
            id, str(fields.get("tool_name", "")), fields.get("args"), str(fields.get("reason", ""))
        )
