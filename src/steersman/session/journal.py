"""Writes the records of one session in a thread of its own, in groups: one fsync for all records since the last one.

Adding a record never waits and never raises. Records that the store refuses stay in memory, in order and with their
numbers; each save tries them again, and so does the thread from time to time. Until they are saved `degraded` says why,
and a save that waits for them returns. Once another writer has taken the session over, nothing more is tried. A forked
child adds nothing to its parent's session.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator

from steersman.session.loop_writer import LoopWriter, make_settled
from steersman.session.open_journals import BUSY_NAME, open_journals
from steersman.session.records import Payload, Record, encode
from steersman.session.stores.store import (
    Handle,
    SessionError,
    SessionTaken,
    call_wake,
    can_begin,
)
from steersman.types.errors import describe_exception
from steersman.types.ids import new_id

_LAG = 0.02
_RETRY = 1.0
_IDLE = 10.0
# The most records of one group: after a long time without a disk the transactions still fit.
_MAX_GROUP = 1_000
_IDLE_NAME = f"{BUSY_NAME} idle"

_log = logging.getLogger("steersman")


class JournalWriter:
    """The one writer of an open session. `add` is safe from any thread, `wait_until_saved` is for any event loop.

    A record is written within `lag` seconds, a refused one is tried again after `retry` seconds, and the thread ends
    after `idle` seconds without work, until it is needed again. `clock` gives the records their times, `new_id` ids.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        lag: float = _LAG,
        retry: float = _RETRY,
        idle: float = _IDLE,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[str], str] = new_id,
    ) -> None:
        self.handle = handle
        self.degraded: str | None = None
        self.taken: str | None = None
        """Why nothing more is written: another writer has taken the session over."""
        self.on_taken: Callable[[str], None] | None = None
        self.on_saved: Callable[[int], None] | None = None
        """Called in any thread with the number of the last record of each group that was saved."""
        self._lag = lag
        self._retry = retry
        self._idle = idle
        self.clock = clock
        self.new_id = new_id
        self._giving_up = threading.Lock()
        self._changed = threading.Condition()
        self._seq = self._last_saved = handle.last_seq
        self._pending: list[Record] = []
        self._due = 0.0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._answering = 0
        self._closing = ""
        self._cut = False
        self._last_try = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._is_writing = False  # in a thread
        self._in_loop: LoopWriter | None = None
        # Held while the store works, so that a fork can wait for it.
        self.at_work = threading.RLock()
        open_journals.add(self)

    @property
    def seq(self) -> int:
        """The number of the last record that was added."""
        return self._seq

    @property
    def last_saved(self) -> int:
        """The number of the last record that is saved."""
        return self._last_saved

    def add(self, type: str, payload: Payload, *, id: str | None = None, parent: str | None = None) -> Record:
        """Number a record and queue it for writing; once the journal is closed it is only numbered."""
        with self._changed:
            self._seq += 1
            record = Record(id or self.new_id("record"), parent, self._seq, type, self.clock(), payload)
            if self._closing:
                self._degrade(self._closing)
                return record
            self._pending.append(record)
            if len(self._pending) == 1:
                self._plan_write()
        return record

    def write_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write in an event loop that runs until the journal is closed, if the store can; a thread does what fails."""
        if can_begin(self.handle):
            self._in_loop = LoopWriter(loop, self.handle, self._lag, self._write_planned, self._end_write)

    async def wait_until_saved(self) -> bool:
        """Wait until everything added so far is saved, or the store has refused it; whether it is saved."""
        done, tell = make_settled()
        wanted = self._request_write(tell, begins=True)
        if wanted > self._last_saved:
            await done
        return wanted <= self._last_saved

    def flush(self) -> bool:
        """The same as `wait_until_saved` for callers without an event loop: it blocks."""
        done = threading.Event()
        wanted = self._request_write(done.set)
        self.finish_begun()
        if wanted > self._last_saved:
            done.wait()
        return wanted <= self._last_saved

    def finish_begun(self) -> None:
        """Wait for what the event loop writes; blocks."""
        if self._in_loop is not None:
            self._in_loop.finish()

    def lines(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The numbers and encoded forms of the records after a number, including those that are only in memory."""
        with self._changed:
            pending = list(self._pending)
        for seq, line in self.handle.lines(after):
            if pending and seq >= pending[0].seq:
                break  # saved since `pending` was copied
            yield seq, line
        for record in pending:
            if record.seq > after:
                yield record.seq, encode(record)

    def give_up(self, error: SessionTaken, *, level: int = logging.ERROR) -> None:
        """Write nothing more: another writer has taken the session over. Tells `on_taken`, once, in this thread.

        It is logged at this level.
        """
        with self._giving_up:
            if self.taken is not None:
                return
            self.taken = text = str(error)
            _log.log(level, "%s", text)
            # First: a save that returns because of this must find the run cancelled, or a tool would start.
            if self.on_taken is not None:
                self.on_taken(text)
            with self._changed:
                self._closing = self.degraded = text
                self._last_try = True
                self._changed.notify_all()

    def cut(self, reason: str) -> None:
        """Take no more records, as if the program had ended here: what a run still does is no failure to report."""
        with self._changed:
            self._closing, self._cut = self._closing or reason, True
            self._changed.notify_all()

    def close(self) -> None:
        """Write what is left and close the session; what the store still refuses is reported in the log."""
        self.close_within(None)

    def close_within(self, patience: float | None) -> None:
        """Close, and wait at most so many seconds for it."""
        with self._changed:
            self._closing = self._closing or f"The session {self.handle.session_id!r} is closed."
        self.finish_begun()
        with self._changed:
            thread = self._thread
            self._changed.notify_all()
        if thread is threading.current_thread():
            return  # called from the journal's own thread, which ends by itself
        if thread is not None:
            thread.join(patience)
            if thread.is_alive():
                _log.error(
                    "%d records of session %r may not be kept: the store does not answer.", *self._count_unsaved()
                )
                return
        self._write_in_caller()
        with self._changed:
            if self._closed:
                return
            self._closed = self._last_try = True
            open_journals.discard(self)
        if self._pending:
            _log.error("%d records of session %r were not kept: %s", *self._count_unsaved(), self.degraded)
        self.handle.close()

    @property
    def _is_begun(self) -> bool:
        return self._in_loop is not None and self._in_loop.is_writing

    def _count_unsaved(self) -> tuple[int, str]:
        return len(self._pending), self.handle.session_id

    def _request_write(self, tell: Callable[[], None], *, begins: bool = False) -> int:
        """Request the writing of everything added so far; the number of its last record.

        With `begins` the running event loop writes it, if the store can do that.
        """
        with self._changed:
            wanted = self._seq
            if wanted <= self._last_saved:
                return wanted
            self._waiting.append((wanted, tell))
            if begins and self._begin_write():
                return wanted
            if not self._closing:
                self._wake()
            alone = self._thread is None
            if self._thread is not None:
                self._thread.name = BUSY_NAME
        if alone:
            self._write_in_caller()
        return wanted

    def _plan_write(self) -> None:
        """Have written what was added, a moment later: mostly something waits for it before."""
        self._due = time.monotonic() + self._lag
        if self._in_loop is None or self.degraded is not None or not self._in_loop.plan():
            self._wake()

    def _write_planned(self) -> None:
        with self._changed:
            if self._pending and not self._begin_write():
                self._wake()

    def _begin_write(self) -> bool:
        """Have the event loop write the next group; false if that is for a thread."""
        if self._in_loop is None or self._is_writing or self._closing or self.degraded is not None:
            return False
        return self._in_loop.is_writing or self._in_loop.begin(self._pending[:_MAX_GROUP])

    def _end_write(self, group: list[Record], is_saved: bool) -> None:
        """The event loop has written a group, or a thread is to."""
        with self._changed:
            assert self._in_loop is not None
            # At once: a thread that finds nothing under way must not find the group still to be written.
            self._in_loop.note_end()
            due = self._note_saved(group) if is_saved else []
            if self._pending and (self._waiting or not is_saved or self._closing):
                self._wake()
            elif self._pending:
                self._plan_write()
        if is_saved:
            self._tell_saved(group, due)

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run_thread, name=BUSY_NAME, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # the interpreter is ending and starts no thread: the caller that waits or closes writes
            self._thread = thread
        self._changed.notify_all()

    def _run_thread(self) -> None:
        while (group := self._wait_for_group()) is not None:
            self._finish_group(group, self._try_append(group))

    def _write_in_caller(self) -> None:
        """Write in the caller's thread, because there is no other one, and wake all that wait."""
        with self.at_work:
            self.finish_begun()
            while not self._last_try and (group := self._take_group()):
                refused = self._try_append(group)
                self._finish_group(group, refused)
                if refused is not None:
                    break
        with self._changed:
            self._wake_waiters()

    def _try_append(self, group: list[Record]) -> str | None:
        """Append a group; gives the reason of a refusal, or `None` if the records are saved."""
        try:
            with self.at_work:
                self.handle.append(group)
        except SessionTaken as error:
            self.give_up(error)  # before those that wait learn it: a tool must not start
            return str(error)
        except SessionError as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001  # whatever a store raises, the records stay in memory and the run goes on
            return describe_exception(error)
        return None

    def _wait_for_group(self) -> list[Record] | None:
        """Wait until a group is due, and take it; `None` when the thread is to end."""
        with self._changed:
            while True:
                pause = self._compute_wait()
                if pause <= 0:
                    self._last_try = bool(self._closing)
                    return self._take_group()
                # Only after each outcome is on its way: a virtual clock that skips idle time must not skip that.
                if self._thread is not None and not (self._pending and self.degraded is None):
                    self._thread.name = _IDLE_NAME
                woken = (self._is_begun or not self._closing) and self._changed.wait(pause)
                if self._closing and (self._last_try or not self._pending):
                    return self._end_thread()
                if not woken and not self._pending:
                    return self._end_thread()

    def _take_group(self) -> list[Record]:
        """The next records to write. A refusal wakes those that wait by now; those that come later get another try."""
        with self._changed:
            self._answering = len(self._waiting)
            self._is_writing = bool(self._pending)
            return self._pending[:_MAX_GROUP]

    def _compute_wait(self) -> float:
        """Seconds until a group is due."""
        if not self._pending or self._last_try or self._is_begun:
            return self._idle
        return 0.0 if self._waiting or self._closing else self._due - time.monotonic()

    def _end_thread(self) -> None:
        """End the thread; `_wake` starts another one when it is needed."""
        self._thread = None
        self._wake_waiters()

    def _finish_group(self, group: list[Record], refused: str | None) -> None:
        with self._changed:
            self._is_writing = False
            if refused is None:
                due = self._note_saved(group)
            else:
                self._degrade(refused)
                self._due = time.monotonic() + self._retry
                due = [tell for _, tell in self._waiting[: self._answering]]
                del self._waiting[: self._answering]
        if refused is None:
            self._tell_saved(group, due)
        else:
            for tell in due:
                tell()

    def _note_saved(self, group: list[Record]) -> list[Callable[[], None]]:
        """Note that a group is saved; those that waited for it. The lock is held."""
        del self._pending[: len(group)]
        self._last_saved = group[-1].seq
        self._last_try = self.taken is not None
        self._due = 0.0
        if self.degraded is not None and self.taken is None:
            _log.warning("Session %r is saved again.", self.handle.session_id)
        self.degraded = self.taken
        due = [tell for seq, tell in self._waiting if seq <= self._last_saved]
        self._waiting = [item for item in self._waiting if item[0] > self._last_saved]
        return due

    def _tell_saved(self, group: list[Record], due: list[Callable[[], None]]) -> None:
        # Without the lock: the run goes on at once, and the first thing that it does may be to add a record.
        for tell in due:
            tell()
        if (tell_seq := self.on_saved) is not None:
            call_wake(lambda: tell_seq(group[-1].seq))

    def _degrade(self, reason: str) -> None:
        if self.degraded is None and not self._cut:
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
        self._pending, self._waiting, self._in_loop = [], [], None
        self._closing = self.degraded = (
            f"The session {self.handle.session_id!r} belongs to the process that this one was forked from; "
            "open it again in this process."
        )

    def __repr__(self) -> str:
        unsaved = self._seq - self._last_saved
        return f"JournalWriter({self.handle.session_id!r}, {self._seq} records, {unsaved} not saved yet)"
