"""What a worker is told and what it returns: names and positions, never a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

FORMAT: Final = 1
"""The version of these values: a worker refuses a newer one."""
ACTIVITY: Final = "steersman_run_session"

Fields: TypeAlias = dict[str, Any]
"""A job or an outcome as Temporal has it: its own conversion reads the annotations of a class anew for each value."""

IDLE: Final = "idle"
"""The end reason where there was nothing to do."""
WAITING: Final = "waiting"
"""The end reason of a run that rests until a question is answered."""


@dataclass(frozen=True)
class Job:
    """The session to run. `agent` is a name in the worker, `None` for the one that the session was made for.

    `continue_after` is the number of a record: the conversation goes on, unless a run has started since then.
    """

    session_id: str
    agent: str | None = None
    heartbeat: float = 2.0
    continue_after: int | None = None
    format: int = FORMAT


@dataclass(frozen=True)
class Outcome:
    """How the last run of a session ended. `text` is its last answer, read from the session and not from Temporal.

    `last` is the number of the last record of the run, 0 if it is not known.
    """

    session_id: str
    end_reason: str
    detail: str = ""
    loop_id: str | None = None
    text: str = ""
    last: int = 0


def to_fields(value: Job | Outcome) -> Fields:
    """A job or an outcome for Temporal."""
    return msgspec.to_builtins(value)


def read_job(fields: Fields) -> Job:
    """A job that Temporal has; what a newer version has added is left out."""
    return msgspec.convert(fields, Job)


def read_outcome(fields: Fields) -> Outcome:
    """An outcome that Temporal has."""
    return msgspec.convert(fields, Outcome)
