"""Writes the records of one session in a thread of its own, in groups: one sync for all that came since the last.

Adding never waits and never raises. What the store will not take stays in memory, beside the conversation that is there
anyway, in order and with its numbers, and is tried again with each sync and from time to time; until it is kept
`degraded` says why, and whoever waits is told so by returning. A forked child adds nothing to its parent's session.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol
from weakref import WeakSet

from steersman.session import journal as process
from steersman.session.records import Payload, Record, encode
from steersman.session.stores.store import Handle, SessionError
from steersman.types.errors import describe_exception
from steersman.types.ids import new_id

# Nobody waits longer than this for a store that gives no answer.
_PATIENCE = 30.0


class Writer(Protocol):
    """A journal as its process sees it; `at_work` is held while its store works."""

    at_work: threading.RLock

    def close_within(self, patience: float) -> None:
        """Write what is left, for so many seconds at most."""
        ...

    def disown(self) -> None:
        """Leave everything to the parent: this is a forked child."""
        ...


_open: WeakSet[Writer] = WeakSet()


def enter(writer: Writer) -> None:
    """A journal is open from now on."""
    _open.add(writer)


def leave(writer: Writer) -> None:
    """A journal is closed."""
    _open.discard(writer)


def _close_all() -> None:
    for writer in list(_open):
        writer.close_within(_PATIENCE)


class _Fork:
    """A fork waits until no store is at work, so that no child has a copy of one in the middle of something."""

    def __init__(self) -> None:
        self._held: list[threading.RLock] = []

    def before(self) -> None:
        locks = [writer.at_work for writer in list(_open)]
        self._held = [lock for lock in locks if lock.acquire(timeout=_PATIENCE)]

    def after_in_parent(self) -> None:
        held, self._held = self._held, []
        for lock in held:
            lock.release()

    def after_in_child(self) -> None:
        self._held = []
        for writer in list(_open):
            writer.disown()


_fork = _Fork()
atexit.register(_close_all)
os.register_at_fork(before=_fork.before, after_in_parent=_fork.after_in_parent, after_in_child=_fork.after_in_child)


_LAG = 0.02
_RETRY = 1.0
_IDLE = 10.0
# So many records are one group at most: a long time without a disk does not end in one transaction that never fits.
_MOST = 1_000
_BUSY_NAME = "steersman-journal"
_IDLE_NAME = "steersman-journal idle"

_log = logging.getLogger("steersman")


class Journal:
    """The one writer of an open session. `add` is safe from any thread, `synced` is for any event loop.

    What nobody waits for is kept within `lag` seconds all the same, what was refused is tried again after `retry`, and
    a thread that had nothing to do for `idle` ends until it is needed. `clock` gives the records their times.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        lag: float = _LAG,
        retry: float = _RETRY,
        idle: float = _IDLE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.handle = handle
        self.degraded: str | None = None
        self._lag = lag
        self._retry = retry
        self._idle = idle
        self._clock = clock
        self._changed = threading.Condition()
        self._seq = self._last_saved = handle.last_seq
        self._pending: list[Record] = []
        self._due = 0.0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._answering = 0
        self._closing = ""
        self._last_try = False
        self._closed = False
        self._thread: threading.Thread | None = None
        # Held while the store works: no fork leaves a child with a store in the middle of something.
        self.at_work = threading.RLock()
        process.enter(self)

    @property
    def seq(self) -> int:
        """The number of the last record that was added."""
        return self._seq

    @property
    def last_saved(self) -> int:
        """The number of the last record that is safe."""
        return self._last_saved

    def add(self, type: str, payload: Payload, *, id: str | None = None, parent: str | None = None) -> Record:
        """Number a record and have it written soon; once the journal is closed it is only numbered."""
        with self._changed:
            self._seq += 1
            record = Record(id or new_id("record"), parent, self._seq, type, self._clock(), payload)
            if self._closing:
                self._mark_degraded_for(self._closing)
                return record
            self._pending.append(record)
            if len(self._pending) == 1:
                self._due = time.monotonic() + self._lag
                self._wake()
        return record

    async def wait_until_saved(self) -> bool:
        """Whether everything added so far is safe; waits until it is, or until the store has refused it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not done.done():
                done.set_result(None)

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                return  # the event loop is closed: nobody waits any more

        wanted = self._request_write(tell)
        if wanted > self._last_saved:
            await done
        return wanted <= self._last_saved

    def flush(self) -> bool:
        """The same for whoever has no event loop: it blocks."""
        done = threading.Event()
        wanted = self._request_write(done.set)
        if wanted > self._last_saved:
            done.wait()
        return wanted <= self._last_saved

    def lines(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The numbers and the encoded forms of the records after a number, those that are only in memory too."""
        with self._changed:
            pending = list(self._pending)
        for seq, line in self.handle.lines(after):
            if pending and seq >= pending[0].seq:
                break  # kept since we looked
            yield seq, line
        for record in pending:
            if record.seq > after:
                yield record.seq, encode(record)

    def close(self) -> None:
        """Write what is left and let go of the session; what the store refuses even now is told in the log."""
        self.close_within(None)

    def close_within(self, patience: float | None) -> None:
        """Close, and wait so many seconds for it at most."""
        with self._changed:
            self._closing = self._closing or f"The session {self.handle.session_id!r} is closed."
            thread = self._thread
            self._changed.notify_all()
        if thread is threading.current_thread():
            return  # asked by its own store: it ends by itself
        if thread is not None:
            thread.join(patience)
            if thread.is_alive():
                _log.error(
                    "%d records of session %r may not be kept: the store gives no answer.", *self._count_unsaved()
                )
                return
        self._write_in_caller()
        with self._changed:
            if self._closed:
                return
            self._closed = self._last_try = True
            process.leave(self)
        if self._pending:
            _log.error("%d records of session %r were not kept: %s", *self._count_unsaved(), self.degraded)
        self.handle.close()

    def _count_unsaved(self) -> tuple[int, str]:
        return len(self._pending), self.handle.session_id

    def _request_write(self, tell: Callable[[], None]) -> int:
        """Have everything written that was added so far; the number of the last of it."""
        with self._changed:
            wanted = self._seq
            if wanted <= self._last_saved:
                return wanted
            self._waiting.append((wanted, tell))
            if not self._closing:
                self._wake()
            alone = self._thread is None
            if self._thread is not None:
                self._thread.name = _BUSY_NAME
        if alone:
            self._write_in_caller()
        return wanted

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run_thread, name=_BUSY_NAME, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # the interpreter is ending and starts none: whoever waits, or closes, writes by themselves
            self._thread = thread
        self._changed.notify_all()

    def _run_thread(self) -> None:
        while (group := self._wait_for_group()) is not None:
            self._finish_group(group, self._try_append(group))

    def _write_in_caller(self) -> None:
        """Write in the caller's thread what no other thread is there for, and tell all who wait how it went."""
        with self.at_work:
            while not self._last_try and (group := self._take_group()):
                refused = self._try_append(group)
                self._finish_group(group, refused)
                if refused is not None:
                    break
        with self._changed:
            self._wake_waiters()

    def _try_append(self, group: list[Record]) -> str | None:
        """Why the store will not take these; `None` if they are safe."""
        try:
            with self.at_work:
                self.handle.append(group)
        except SessionError as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001  # whatever a store raises, the records stay and the run goes on
            return describe_exception(error)
        return None

    def _wait_for_group(self) -> list[Record] | None:
        """Wait until there is something to write that somebody waits for, or that has waited long enough."""
        with self._changed:
            while True:
                pause = self._seconds_until_due()
                if pause <= 0:
                    self._last_try = bool(self._closing)
                    return self._take_group()
                woken = not self._closing and self._changed.wait(pause)
                if self._closing and (self._last_try or not self._pending):
                    return self._end_thread()
                if not woken and not self._pending:
                    return self._end_thread()

    def _take_group(self) -> list[Record]:
        """What is written next; its refusal answers those who wait by now, and whoever comes later has another try."""
        with self._changed:
            self._answering = len(self._waiting)
            return self._pending[:_MOST]

    def _seconds_until_due(self) -> float:
        """Seconds until there is something to do."""
        if not self._pending or self._last_try:
            return self._idle
        return 0.0 if self._waiting or self._closing else self._due - time.monotonic()

    def _end_thread(self) -> None:
        """The thread ends, and whoever needs one again starts another."""
        self._thread = None
        self._wake_waiters()

    def _finish_group(self, group: list[Record], refused: str | None) -> None:
        with self._changed:
            if refused is None:
                del self._pending[: len(group)]
                self._last_saved = group[-1].seq
                self._last_try = False
                self._due = 0.0
                if self.degraded is not None:
                    _log.warning("Session %r is kept again.", self.handle.session_id)
                self.degraded = None
                told = [tell for seq, tell in self._waiting if seq <= self._last_saved]
                self._waiting = [item for item in self._waiting if item[0] > self._last_saved]
            else:
                self._mark_degraded_for(refused)
                self._due = time.monotonic() + self._retry
                told = [tell for _, tell in self._waiting[: self._answering]]
                del self._waiting[: self._answering]
            for tell in told:
                tell()
            # Idle only once the outcome is on its way: a clock that jumps over idle time must not jump over this.
            if self._thread is not None and not self._waiting:
                self._thread.name = _IDLE_NAME

    def _mark_degraded_for(self, reason: str) -> None:
        if self.degraded is None:
            _log.error("Session %r goes on in memory: %s", self.handle.session_id, reason)
        self.degraded = reason

    def _wake_waiters(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, tell in waiting:
            tell()

    def disown(self) -> None:
        """In a forked child: the records are the parent's to write, and so is the handle to close."""
        self._changed = threading.Condition()
        self.at_work = threading.RLock()
        self._closed = self._last_try = True
        self._thread = None
        self._pending, self._waiting = [], []
        self._closing = self.degraded = (
            f"The session {self.handle.session_id!r} belongs to the process that this one was forked from; "
            "open it anew here."
        )

    def __repr__(self) -> str:
        return f"Journal({self.handle.session_id!r}, {self._seq} records, {self._seq - self._last_saved} not kept yet)"
