"""The protocol of a store of sessions, its errors, and the checks that all stores share.

The thread of a journal calls the store, so a store is plain blocking code. Once `append` returns, all its records are
saved; if it raises, none of them.

    SessionError(SteersmanError)
      SessionNotFound   there is no session with this id
      SessionExists     there is already a session with this id
      SessionBusy       another process or object writes to the session
        SessionTaken    another writer took the session over from this one
      SessionDamaged    what is there cannot be read as a session at all
      NewerFormat       it was written by a newer major version
      StoreFailed       the disk or the database refused it
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeGuard, runtime_checkable

from steersman.session.records import FORMAT, FROM_QUEUE, Payload, Record, decode
from steersman.types.errors import SteersmanError

_log = logging.getLogger("steersman")
QUEUE_PAGE: Final = 256
"""So many are read from a queue at once; fewer are all that there is."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class SessionError(SteersmanError):
    """Something is wrong with a session."""


class SessionNotFound(SessionError):
    """There is no session with this id."""


class SessionExists(SessionError):
    """There is already a session with this id."""


class SessionBusy(SessionError):
    """Another process or object writes to the session."""


class SessionTaken(SessionBusy):
    """Another writer took the session over from this one, which writes nothing more."""


class SessionDamaged(SessionError):
    """What is there cannot be read as a session at all."""


class NewerFormat(SessionError):
    """The session was written by a newer major version."""


class StoreFailed(SessionError):
    """The disk or the database refused it; trying again later may help."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Damage that was found: where it is, and what was done about it."""

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
        """What was found damaged, including a write-ahead log that was torn at its end."""
        ...

    @property
    def last_seq(self) -> int:
        """The number of the last record, 0 for none."""
        ...

    def append(self, records: Sequence[Record], /) -> None:
        """Append records, which follow `last_seq`; raises `StoreFailed`, and then none of them counts as saved.

        It is idempotent: after a failure the same records may be given again, with more behind them.
        """
        ...

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The numbers and the encoded forms of the records after a number, in order, a few at a time.

        What is damaged is left out and reported in `problems`.
        """
        ...

    def set_title(self, title: str, /) -> None:
        """Set the title that a list shows; until then it shows the first words of the user."""
        ...

    def close(self) -> None:
        """Close the session; closing twice does nothing."""
        ...


class Store(Protocol):
    """Keeps any number of sessions. Each has at most one writer; readers never block it."""

    def create(self, session_id: str, /, *, first: bool = False) -> Handle:
        """A new, empty session to write to; raises `SessionExists`, with `first` also if there is any other session.

        Of several programs that create the first session at once, one succeeds.
        """
        ...

    def open(self, session_id: str, /, *, write: bool = True) -> Handle:
        """An existing session; raises `SessionNotFound`, and `SessionBusy` for a second writer."""
        ...

    def list(self) -> Sequence[Summary]:
        """The sessions, the most recently used first."""
        ...

    def delete(self, session_id: str, /) -> None:
        """Delete a session for good; raises `SessionBusy` while it has a writer."""
        ...


class Queue(Protocol):
    """The queue of a session, for any process: what is added waits until the writer has it in the log."""

    def add(self, key: str, data: bytes, /) -> tuple[int, bool]:
        """Queue data under a key and wake the writer; its number, and whether it is new: a key is queued once.

        Numbers only rise, and a reader that sees one sees all lower ones.
        """
        ...

    def waiting(self) -> Sequence[tuple[int, bytes]]:
        """What is not in the log yet, by number."""
        ...

    def close(self) -> None:
        """Close it; closing twice does nothing."""
        ...


@runtime_checkable
class SharedHandle(Handle, Protocol):
    """One open session into which other processes may queue, and which another writer may take over.

    `append` refuses to write with `SessionTaken` once there is a higher epoch. It removes from the queue, in the same
    transaction, the numbers that `find_queue_numbers` finds in the records.
    """

    @property
    def epoch(self) -> int:
        """The number of this owner; one that takes the session over has a higher one."""
        ...

    def read_queue(self, after: int = 0, /) -> Sequence[tuple[int, bytes]]:
        """What waits in the queue after a number, the first `QUEUE_PAGE` of it; raises `SessionTaken`."""
        ...

    def watch_queue(self, wake: Callable[[], None], /) -> Callable[[], None]:
        """Call `wake`, in any thread, when something may have been queued; returns a function that ends this."""
        ...


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store whose sessions other processes may queue into and take over."""

    def take_over(self, session_id: str, /) -> SharedHandle:
        """Open a session for writing although another one may have it open, which writes nothing more."""
        ...

    def open_queue(self, session_id: str, /) -> Queue:
        """The queue of an existing session; the session may have a writer or not."""
        ...


@runtime_checkable
class QueuedStore(SharedStore, Protocol):
    """A store that makes a session and queues into it in one step."""

    def create_and_queue(self, session_id: str, records: Sequence[Record], key: str, data: bytes, /) -> None:
        """Make a session for others to open, with these records, and queue data as number 1; raises `SessionExists`."""
        ...


@runtime_checkable
class ListeningStore(SharedStore, Protocol):
    """A store that can be ready before a session is open: for programs that open one after another."""

    def keep_ready(self, sessions: int, /) -> Callable[[], None]:
        """Listen for what is queued, and keep connections for so many sessions; returns a function that ends this."""
        ...


@runtime_checkable
class ReleasedHandle(SharedHandle, Protocol):
    """One open session whose writer can see in one step whether it leaves something for the next one."""

    def close_and_look(self) -> Sequence[tuple[int, bytes]] | None:
        """Close it, and then read the queue as `read_queue` does; `None` if the store did not answer.

        A program that queues something after that finds no writer.
        """
        ...


class Finishing(Protocol):
    """Something that was begun in an event loop, and that any thread may finish."""

    def finish(self) -> None:
        """Return once it is over; blocks."""
        ...


@runtime_checkable
class LoopHandle(Handle, Protocol):
    """One open session whose writer may append from an event loop, without a thread that waits for the store."""

    def begin_append(self, records: Sequence[Record], tell: Callable[[bool], None], /) -> Finishing | None:
        """Begin to append records, which follow `last_seq`, in the running event loop.

        `tell` is called once with whether they are saved, in the event loop, or in a thread that could not wait for it.
        If they may not be, they are to be given to `append`. `None` if they are from the beginning.
        """
        ...


class Following(Protocol):
    """What one process hears of a session that another one writes."""

    def ask(self) -> None:
        """Ask the writer where it is: its `came` is called."""
        ...

    def close(self) -> None:
        """Hear nothing more; closing twice does nothing."""
        ...


@runtime_checkable
class FollowedHandle(SharedHandle, Protocol):
    """One open session whose writer can speak to the processes that follow it. What is said may be lost."""

    def watch_followers(self, came: Callable[[], None], /) -> Callable[[], None]:
        """Call `came`, in any thread, when a process begins to follow or asks; returns a function that ends this."""
        ...

    def broadcast(self, data: bytes, /) -> bool:
        """Send data to all that follow, in order and without waiting; returns whether there may be any."""
        ...


@runtime_checkable
class FollowedStore(SharedStore, Protocol):
    """A store whose sessions other processes may follow."""

    def follow(self, session_id: str, hear: Callable[[bytes | None], None], /) -> Following:
        """Call `hear`, in any thread, with what the present writer broadcasts, and nothing of an earlier one.

        `None` says that something may be lost, that there are records to read, or that there is another writer.
        """
        ...

    def has_writer(self, session_id: str, /) -> bool:
        """Whether a process has the session open for writing now."""
        ...


def is_shared(handle: Handle) -> TypeGuard[SharedHandle]:
    """Whether other processes may queue into the session of a handle.

    Not by `isinstance`, which reads every property of a handle until Python 3.12, and some of them ask the store.
    """
    return hasattr(type(handle), "read_queue")


def is_followed(handle: Handle) -> TypeGuard[FollowedHandle]:
    """Whether other processes may follow the session of a handle, found as `is_shared` does."""
    return hasattr(type(handle), "watch_followers")


def can_look(handle: Handle) -> TypeGuard[ReleasedHandle]:
    """Whether a handle can be closed with a last look at the queue, found as `is_shared` does."""
    return hasattr(type(handle), "close_and_look")


def can_begin(handle: Handle) -> TypeGuard[LoopHandle]:
    """Whether records can be appended from an event loop, found as `is_shared` does."""
    return hasattr(type(handle), "begin_append")


def call_wake(wake: Callable[[], None]) -> None:
    """Call the `wake` of a watched queue; whatever it raises, the thread goes on for the other sessions."""
    try:
        wake()
    except Exception as error:  # noqa: BLE001  # as said above
        _log.debug("A session that was woken raised %r.", error)


def find_queue_numbers(records: Sequence[Record]) -> list[int]:
    """The numbers of the queued records that these records take over into the log."""
    return [
        number
        for record in records
        if record.type in FROM_QUEUE and isinstance(number := record.payload.get("number"), int)
    ]


def is_session_id(value: object) -> bool:
    """Whether this can be the id of a session; nothing that a file system could read as a path is one."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def check_session_id(session_id: str) -> str:
    """The id; raises `ValueError` if it is not a valid one."""
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


def check_sequence(session_id: str, last_seq: int, records: Sequence[Record]) -> None:
    """Raise `ValueError` unless these records follow the last one without a gap."""
    for expected, record in enumerate(records, last_seq + 1):
        if record.seq != expected:
            raise ValueError(f"Expected the record {expected} of {session_id!r}, got {record.seq}.")


def check_format(header: Payload, session_id: str | None) -> None:
    """Raise `NewerFormat` if the header of a session names another major version."""
    written = str(header.get("format", FORMAT))
    if written.partition(".")[0] != FORMAT.partition(".")[0]:
        raise NewerFormat(
            f"The session {session_id!r} was written in format {written}, and this version reads {FORMAT}; update it."
        )


def make_busy_error(session_id: str) -> SessionBusy:
    """The error for a second writer."""
    return SessionBusy(
        f"The session {session_id!r} is being written to by another program or object. Wait until it is done, or open "
        "it with write=False."
    )


def make_taken_error(session_id: str) -> SessionTaken:
    """The error for a writer whose session another one has taken over."""
    return SessionTaken(
        f"The session {session_id!r} was taken over by another writer. This one writes nothing more; what it did since "
        "is not in the log."
    )


def make_read_only_error(session_id: str) -> SessionBusy:
    """The error for a reader that writes."""
    return SessionBusy(f"The session {session_id!r} was opened with write=False.")


def describe_range(first: int, last: int) -> str:
    """The place of some records, in words."""
    return f"record {first}" if first == last else f"records {first} to {last}"
