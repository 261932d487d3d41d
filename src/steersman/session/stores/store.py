"""Where sessions are kept: the protocol of a store, and what can go wrong with one.

A store is used from the one thread of a journal, so it is plain and blocking. What `append` was given is safe once it
returns, all of it or nothing.

    SessionError(SteersmanError)
      SessionNotFound   there is no session of this id
      SessionExists     there is one already
      SessionBusy       another process or object writes to it
      SessionDamaged    what is there cannot be read as a session at all
      NewerFormat       it was written by a newer major version
      StoreFailed       the disk or the database would not take it
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from steersman.session.records import Record, decode
from steersman.types.errors import SteersmanError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class SessionError(SteersmanError):
    """Something is wrong with a session."""


class SessionNotFound(SessionError):
    """There is no session of this id."""


class SessionExists(SessionError):
    """There is a session of this id already."""


class SessionBusy(SessionError):
    """Another process or object writes to the session."""


class SessionDamaged(SessionError):
    """What is there cannot be read as a session at all."""


class NewerFormat(SessionError):
    """The session was written by a newer major version."""


class StoreFailed(SessionError):
    """The disk or the database would not take it; it may later."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Damage that was found, where it is, and what was done about it."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """One session as a list shows it; `records` is how many it has, times are seconds since the epoch."""

    id: str
    title: str
    created: float
    updated: float
    records: int


class Handle(Protocol):
    """One open session."""

    @property
    def session_id(self) -> str: ...

    @property
    def writable(self) -> bool: ...

    @property
    def problems(self) -> Sequence[Problem]:
        """What was found damaged; a log that was only torn at its end says so here too."""
        ...

    @property
    def last_seq(self) -> int:
        """The number of the last record, 0 for none."""
        ...

    def append(self, records: Sequence[Record], /) -> None:
        """Keep these, which go on from `last_seq`; raises `StoreFailed`, and then none of them counts as kept.

        The same records may be given again after a failure, with more behind them: they are kept once.
        """
        ...

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The numbers and the encoded forms of the records after a number, in order, without holding them all.

        What is damaged is left out and told in `problems`.
        """
        ...

    def entitle(self, title: str, /) -> None:
        """What the session is called in a list; until then it is the first words of the user."""
        ...

    def close(self) -> None:
        """Let go of the session; closing twice is nothing."""
        ...


class Store(Protocol):
    """Keeps any number of sessions. Each has at most one writer; whoever reads is in nobody's way."""

    def create(self, session_id: str, /) -> Handle:
        """A new, empty session to write to; raises `SessionExists`."""
        ...

    def open(self, session_id: str, /, *, write: bool = True) -> Handle:
        """A session that is there; raises `SessionNotFound`, and `SessionBusy` for a second writer."""
        ...

    def list(self) -> Sequence[Summary]:
        """The sessions, the last used first."""
        ...

    def delete(self, session_id: str, /) -> None:
        """Remove a session for good; raises `SessionBusy` while somebody writes to it."""
        ...


def is_session_id(value: object) -> bool:
    """Whether this can be the id of a session: nothing that could mean something to a file system."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def check_session_id(session_id: str) -> str:
    """The id; raises `ValueError` if it can be none."""
    if not is_session_id(session_id):
        raise ValueError(
            f"A session's id is up to 128 letters, digits, '_', '-' and '.', beginning with a letter or digit, "
            f"got {session_id!r}."
        )
    return session_id


def read_records(handle: Handle, after: int = 0) -> Iterator[Record]:
    """The records after a number, in order."""
    for _, line in handle.lines(after):
        yield decode(line)
