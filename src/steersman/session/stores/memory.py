"""Sessions in memory: they follow the rules of every store, and end with the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from steersman.session.records import Record, encode, make_title
from steersman.session.stores.store import (
    Problem,
    SessionError,
    SessionExists,
    SessionNotFound,
    Summary,
    check_sequence,
    check_session_id,
    find_queue_numbers,
    make_busy_error,
    make_read_only_error,
    make_taken_error,
)
from steersman.types.content import replace_lone_surrogates

_CHUNK = 256


class _StoredSession:
    """One session; the lock of the store guards all of its fields."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.title = ""
        self.created = self.updated = time.time()
        self.writer: MemoryHandle | None = None
        self.epoch = 0
        self.keys: dict[str, int] = {}
        self.queue: dict[int, bytes] = {}
        self.wakes: dict[Callable[[], None], MemoryHandle] = {}

    def wake(self) -> None:
        """Wake all that watch the queue; not under the lock, since they read the queue."""
        for wake in list(self.wakes):
            wake()


class MemoryStore:
    """Any number of sessions, which live as long as the store."""

    def __init__(self) -> None:
        self._sessions: dict[str, _StoredSession] = {}
        self._lock = threading.RLock()

    def create(self, session_id: str, /, *, first: bool = False) -> MemoryHandle:
        """A new, empty session to write to; with `first`, only if there is none."""
        check_session_id(session_id)
        with self._lock:
            if first and self._sessions:
                raise SessionExists(f"There is a session {next(iter(self._sessions))!r} already; open it.")
            if session_id in self._sessions:
                raise SessionExists(f"There is a session {session_id!r} already; open it.")
            kept = self._sessions[session_id] = _StoredSession()
            return MemoryHandle(session_id, kept, self._lock, write=True)

    def open(self, session_id: str, /, *, write: bool = True) -> MemoryHandle:
        """An existing session."""
        check_session_id(session_id)
        with self._lock:
            return MemoryHandle(session_id, self._find(session_id), self._lock, write=write)

    def take_over(self, session_id: str, /) -> MemoryHandle:
        """An existing session, also if another one writes to it."""
        check_session_id(session_id)
        with self._lock:
            kept = self._find(session_id)
            kept.writer = None
            kept.epoch += 1
            handle = MemoryHandle(session_id, kept, self._lock, write=True)
        kept.wake()
        return handle

    def open_queue(self, session_id: str, /) -> MemoryQueue:
        """The queue of an existing session."""
        check_session_id(session_id)
        with self._lock:
            return MemoryQueue(self._find(session_id), self._lock)

    def list(self) -> Sequence[Summary]:
        """The sessions, the most recently used first."""
        with self._lock:
            found = [
                Summary(id, kept.title, kept.created, kept.updated, len(kept.lines))
                for id, kept in reversed(self._sessions.items())
            ]
        return sorted(found, key=lambda summary: summary.updated, reverse=True)

    def delete(self, session_id: str, /) -> None:
        """Delete a session for good."""
        with self._lock:
            self.open(session_id).close()
            del self._sessions[session_id]

    def _find(self, session_id: str) -> _StoredSession:
        kept = self._sessions.get(session_id)
        if kept is None:
            raise SessionNotFound(f"No session {session_id!r} in this store.")
        return kept


class MemoryHandle:
    """One open session."""

    def __init__(self, session_id: str, kept: _StoredSession, lock: threading.RLock, *, write: bool) -> None:
        self.session_id = session_id
        self.problems: Sequence[Problem] = ()
        self.writable = write
        self.epoch = kept.epoch
        self._kept = kept
        self._lock = lock
        self._closed = False
        if write:
            if kept.writer is not None:
                raise make_busy_error(session_id)
            kept.writer = self

    @property
    def last_seq(self) -> int:
        """The number of the last record."""
        return len(self._kept.lines)

    def append(self, records: Sequence[Record], /) -> None:
        """Append these, which follow `last_seq`."""
        with self._lock:
            self._check_writer()
            check_sequence(self.session_id, self.last_seq, records)
            self._kept.lines.extend([encode(record) for record in records])
            for number in find_queue_numbers(records):
                self._kept.queue.pop(number, None)
            self._kept.title = self._kept.title or make_title(records)
            self._kept.updated = max([self._kept.updated, *(record.time for record in records)])

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number, in order."""
        self._check_open()
        while chunk := self._kept.lines[after : after + _CHUNK]:
            for line in chunk:
                after += 1
                yield after, line

    def read_queue(self, after: int = 0, /) -> Sequence[tuple[int, bytes]]:
        """What waits in the queue after a number."""
        with self._lock:
            self._check_writer()
            return [(number, data) for number, data in self._kept.queue.items() if number > after]

    def watch_queue(self, wake: Callable[[], None], /) -> Callable[[], None]:
        """Call `wake` when something was queued, in the thread of the sender."""
        self._kept.wakes[wake] = self
        return lambda: self._kept.wakes.pop(wake, None) and None

    def set_title(self, title: str, /) -> None:
        """Set the title that a list shows."""
        with self._lock:
            self._check_writer()
            self._kept.title = replace_lone_surrogates(title)

    def close(self) -> None:
        """Close the session."""
        with self._lock:
            self._closed = True
            self._kept.wakes = {wake: handle for wake, handle in self._kept.wakes.items() if handle is not self}
            if self._kept.writer is self:
                self._kept.writer = None

    def _check_writer(self) -> None:
        self._check_open()
        if self.writable and self._kept.epoch != self.epoch:
            raise make_taken_error(self.session_id)
        if self._kept.writer is not self:
            raise make_read_only_error(self.session_id)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError(f"The session {self.session_id!r} is closed.")


class MemoryQueue:
    """The queue of a session."""

    def __init__(self, kept: _StoredSession, lock: threading.RLock) -> None:
        self._kept = kept
        self._lock = lock

    def add(self, key: str, data: bytes, /) -> tuple[int, bool]:
        """Queue data under a key; a key is queued once."""
        kept = self._kept
        with self._lock:
            if key in kept.keys:
                return kept.keys[key], False
            number = kept.keys[key] = len(kept.keys) + 1
            kept.queue[number] = data
        kept.wake()
        return number, True

    def waiting(self) -> Sequence[tuple[int, bytes]]:
        """What is not in the log yet."""
        with self._lock:
            return list(self._kept.queue.items())

    def close(self) -> None:
        """Nothing to close."""
