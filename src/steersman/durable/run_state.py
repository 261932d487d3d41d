"""What the log of a session says of its run, read by whichever process asks; all of it blocks."""

from __future__ import annotations

from dataclasses import replace

from steersman.durable.job import IDLE, Outcome
from steersman.durable.questions import read_questions
from steersman.session.records import Payload
from steersman.session.restore import find_last_answer
from steersman.session.session import Session
from steersman.session.stores.store import SessionNotFound, Store

_LAST_RECORDS = 16


def is_in_run(store: Store, session_id: str) -> bool:
    """Whether the log has the start of a run, and not its end."""
    with Session.open(store, session_id, write=False) as session:
        return session.recorder.index.unfinished


def goes_on(store: Store, session_id: str) -> bool:
    """Whether a run that was put aside has not ended since; in a session that was deleted it has."""
    try:
        return is_in_run(store, session_id)
    except SessionNotFound:
        return False


def rests_on_question(store: Store, session_id: str) -> bool:
    """Whether a session waits for an answer; for so long, perhaps, that Temporal has forgotten its run."""
    try:
        return bool(read_questions(store, session_id))
    except SessionNotFound:
        return False


def read_last(store: Store, session_id: str) -> int:
    """The number of the last record."""
    handle = store.open(session_id, write=False)
    try:
        return handle.last_seq
    finally:
        handle.close()


def complete_outcome(store: Store, session_id: str, outcome: Outcome | None) -> Outcome:
    """The outcome with the last answer; where Temporal knows none, what the session says."""
    if outcome is not None and outcome.end_reason != IDLE:
        text = _read_last_answer(store, session_id, outcome.last)
        if text is not None:
            return replace(outcome, text=text)
    with Session.open(store, session_id, write=False) as session:
        answers = [message.text for message in session.messages if message.role == "assistant"]
        text, loop_id = answers[-1] if answers else "", session.last_loop_id
        if outcome is None or outcome.end_reason == IDLE:
            end: Payload = {"end_reason": IDLE}
            for record in session.records():
                end = record.payload if record.type == "run_end" else end
            return Outcome(session_id, str(end["end_reason"]), str(end.get("detail", "")), loop_id, text)
    return replace(outcome, text=text)


def _read_last_answer(store: Store, session_id: str, last: int) -> str | None:
    """The last answer, if it is among the last records up to this one; `None` if the whole is to be read."""
    handle = store.open(session_id, write=False)
    try:
        after = max(0, (last or handle.last_seq) - _LAST_RECORDS)
        return find_last_answer([line for _, line in handle.lines(after)])
    finally:
        handle.close()
