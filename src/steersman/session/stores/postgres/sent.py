"""Statements whose answer an event loop reads when it comes, instead of a thread that waits for it.

Only what goes well ends here. After anything else the caller does the same once more in a thread, where it may wait,
find out why, and connect again: so what is sent must be idempotent. A thread that needs the connection first reads the
answer itself: it never waits for the event loop.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus, Format

from steersman.tools.threads import is_running_in

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

    from steersman.session.stores.postgres.connection import Connection

_FAILED = -1
# The driver has had the server forget what was prepared, as it does after a rollback.
_FORGOTTEN = b"26000"


class SocketWatch:
    """Watches a socket in an event loop, with a descriptor of its own: other threads may close that of the socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: int, look: Callable[[], bool]) -> None:
        self.loop = loop
        self._file = os.dup(socket)
        self._look = look
        self._is_on = False

    def start(self) -> None:
        """Call `look` whenever something can be read, until it returns false; in the event loop."""
        if not self._is_on:
            self.loop.add_reader(self._file, self._read)
            self._is_on = True

    def close(self) -> None:
        """End it, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._close)
        except RuntimeError:
            os.close(self._file)  # the event loop is closed, and watches nothing

    def disown(self) -> None:
        """In a forked child: the event loop is the parent's."""
        os.close(self._file)

    def _read(self) -> None:
        if not self._look():
            self._stop()

    def _stop(self) -> None:
        if self._is_on:
            self.loop.remove_reader(self._file)
            self._is_on = False

    def _close(self) -> None:
        self._stop()
        os.close(self._file)


class SentStatement:
    """A prepared statement that was sent. `take` is called once, in any thread, with the number of rows it has changed.

    That is negative if it failed, or if the answer did not come in time.
    """

    def __init__(self, connection: Connection, lock: threading.RLock, take: Callable[[int], None]) -> None:
        self._connection = connection
        self._lock = lock
        self._take = take
        self._until = time.monotonic() + connection.timeout
        self._rows = _FAILED
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def send(self, name: str, values: Sequence[bytes]) -> bool:
        """Send it; whether the connection has taken it. The lock is held."""
        connection = self._connection
        try:
            connection.pgconn.send_query_prepared(name.encode(), values, [Format.BINARY] * len(values))
            is_sent = connection.pgconn.flush() == 0
        except psycopg.Error:
            return False
        connection.sent = self
        # One that could not be sent at once is for a thread to finish.
        self._timer = self._loop.call_later(connection.timeout if is_sent else 0.0, self._end_in_thread)
        return True

    def look(self) -> bool:
        """Read what has come, in the event loop; false if that is done, or done by another thread."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._is_over:
                return False
            self._read()
        finally:
            self._lock.release()
        return True

    def finish(self) -> None:
        """Wait for the answer in this thread, unless there is one."""
        with self._lock:
            while not self._is_over:
                self._wait()

    def _end_in_thread(self) -> None:
        if not self._is_over:
            threading.Thread(target=self.finish, name="steersman-finish", daemon=True).start()

    def _wait(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            self._connection.close()
            self._end()
            return
        pgconn, poll = self._connection.pgconn, select.poll()
        with suppress(psycopg.Error):  # which reading tells once more
            poll.register(pgconn.socket, select.POLLIN | (select.POLLOUT if pgconn.flush() else 0))
            poll.poll(1000 * left)
        self._read()

    def _read(self) -> None:
        pgconn = self._connection.pgconn
        try:
            pgconn.flush()
            pgconn.consume_input()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    self._end()
                    return
                self._rows = self._count_rows(result)
        except psycopg.Error:
            self._rows = _FAILED
            self._end()

    def _count_rows(self, result: PGresult) -> int:
        if result.status == ExecStatus.COMMAND_OK:
            return result.command_tuples or 0
        if result.error_field(DiagnosticField.SQLSTATE) == _FORGOTTEN:
            self._connection.takes_appends = False
        return _FAILED

    def _end(self) -> None:
        # With the lock: whoever needs the connection next finds everything told.
        self._is_over = True
        self._connection.sent = None
        if self._timer is not None and is_running_in(self._loop):
            self._timer.cancel()
        self._take(self._rows)
