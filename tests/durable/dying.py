"""A store whose process kills itself at one record of a session, and workers that do so.

    python -m tests.durable.dying DSN TEMPORAL LEDGER QUEUE TURNS GO POINT ...

Runs one worker for each point, `NUMBER:before` or `NUMBER:after`: it takes one session, and kills itself around that
record, counted over all that it writes. All are forked from this process, which has everything imported and no thread.
Lines on stdout say what happens: `opened POINT SESSION`, `dead POINT`. No run begins before there is a file GO.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.durable.stage import Ledger, make_worker_agent

from steersman.durable import Worker
from steersman.session import PostgresStore
from steersman.session.records import Record
from steersman.session.stores.store import (
    Finishing,
    Handle,
    Problem,
    Queue,
    SharedHandle,
    Store,
    Summary,
    can_begin,
    can_look,
)


class TellingHandle:
    """A handle that calls a function before and after each record; a group is split there."""

    def __init__(self, handle: SharedHandle, tell: Callable[[str], None]) -> None:
        self._handle, self._tell = handle, tell
        self.session_id, self.writable = handle.session_id, handle.writable
        tell(f"opened {handle.session_id}")

    @property
    def problems(self) -> Sequence[Problem]:
        """What was found damaged."""
        return self._handle.problems

    @property
    def epoch(self) -> int:
        """The number of this owner."""
        return self._handle.epoch

    @property
    def last_seq(self) -> int:
        """The number of the last record."""
        return self._handle.last_seq

    def append(self, records: Sequence[Record], /) -> None:
        """Append records, one at a time."""
        for record in records:
            if record.seq > self._handle.last_seq:
                self._tell("before")
                self._handle.append([record])
                self._tell("after")

    def begin_append(self, records: Sequence[Record], tell: Callable[[bool], None], /) -> Finishing | None:
        """Append one record from the event loop; several are split by `append`."""
        assert can_begin(self._handle)
        if len(records) > 1:
            return None

        def told(is_saved: bool) -> None:
            if is_saved:
                self._tell("after")
            tell(is_saved)

        self._tell("before")
        return self._handle.begin_append(records, told)

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number."""
        return self._handle.lines(after)

    def read_queue(self, after: int = 0, /) -> Sequence[tuple[int, bytes]]:
        """What waits in the queue."""
        return self._handle.read_queue(after)

    def watch_queue(self, wake: Callable[[], None], /) -> Callable[[], None]:
        """Call `wake` when something may have been queued."""
        return self._handle.watch_queue(wake)

    def set_title(self, title: str, /) -> None:
        """Set the title."""
        self._handle.set_title(title)

    def close(self) -> None:
        """Close it."""
        self._tell("closing")
        self._handle.close()

    def close_and_look(self) -> Sequence[tuple[int, bytes]] | None:
        """Close it and look what is queued; calls the function before and after."""
        self._tell("closing")
        assert can_look(self._handle)
        found = self._handle.close_and_look()
        self._tell("looked")
        return found


class TellingQueue:
    """A queue that calls a function after each look."""

    def __init__(self, queue: Queue, tell: Callable[[str], None]) -> None:
        self._queue, self._tell = queue, tell
        self.add, self.close = queue.add, queue.close

    def waiting(self) -> Sequence[tuple[int, bytes]]:
        """What is not in the log yet."""
        found = self._queue.waiting()
        self._tell("looked")
        return found


class TellingStore:
    """A database whose writers call a function around each record."""

    def __init__(self, store: PostgresStore, tell: Callable[[str], None]) -> None:
        self._store, self._tell = store, tell

    def create(self, session_id: str, /, *, first: bool = False) -> Handle:
        """A new session."""
        return TellingHandle(self._store.create(session_id, first=first), self._tell)

    def open(self, session_id: str, /, *, write: bool = True) -> Handle:
        """An existing session."""
        handle = self._store.open(session_id, write=write)
        return TellingHandle(handle, self._tell) if write else handle

    def take_over(self, session_id: str, /) -> SharedHandle:
        """A session that another one may have open."""
        return TellingHandle(self._store.take_over(session_id), self._tell)

    def open_queue(self, session_id: str, /) -> Queue:
        """The queue of a session."""
        return TellingQueue(self._store.open_queue(session_id), self._tell)

    def list(self) -> Sequence[Summary]:
        """The sessions."""
        return self._store.list()

    def delete(self, session_id: str, /) -> None:
        """Delete a session."""
        self._store.delete(session_id)


class Fate:
    """Kills this process at a point."""

    def __init__(self, point: str, go: Path) -> None:
        number, self._how = point.split(":")
        self._point, self._left, self._go = point, int(number), go

    def __call__(self, what: str) -> None:
        """Something happened."""
        act, _, session = what.partition(" ")
        if act == "opened":
            say(f"opened {self._point} {session}")
            while not self._go.exists():  # in a thread of the worker, which tells Temporal that it is alive
                threading.Event().wait(0.02)
        if what == self._how:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


def say(line: str) -> None:
    """Write a line at once: other processes write to the same pipe."""
    os.write(1, f"{line}\n".encode())


async def _work(dsn: str, temporal: str, ledger: str, queue: str, turns: int, fate: Fate) -> None:
    store: Store = TellingStore(PostgresStore(dsn), fate)
    written = Ledger(Path(ledger))
    worker = Worker(lambda: make_worker_agent(written, turns), store, temporal, task_queue=queue, max_sessions=1)
    await worker.run()


def _main(dsn: str, temporal: str, ledger: str, queue: str, turns: str, go: str, *points: str) -> None:
    children: dict[int, str] = {}
    for point in points:
        child = os.fork()
        if not child:
            try:
                asyncio.run(_work(dsn, temporal, ledger, queue, int(turns), Fate(point, Path(go))))
            finally:
                os._exit(1)
        children[child] = point
    while children:
        child, status = os.wait()
        say(f"{'dead' if os.WIFSIGNALED(status) else 'ended'} {children.pop(child)}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
