"""Connections that are open and not in use: the next session of the same store takes one instead of a new one.

A new connection costs the server a process, and its first statements are slow: several milliseconds of CPU in all.
"""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING, Final
from weakref import finalize

if TYPE_CHECKING:
    from steersman.session.stores.postgres.connection import Connection

MOST_IDLE: Final = 4
"""So many are kept: one that closes a session mostly opens another one soon."""
LONGEST_IDLE: Final = 60.0
"""Seconds after which one is not used again: something between here and the server may have dropped it."""


class IdleConnections:
    """The unused connections of one store. Any thread may use it; what is left is closed with the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[tuple[float, Connection]] = []
        finalize(self, _close_all, self._kept)

    def take(self, *, write: bool) -> Connection | None:
        """The connection that was used last; for a writer one to a server that took writes."""
        with self._lock:
            self._drop_old()
            for at in reversed(range(len(self._kept))):
                connection = self._kept[at][1]
                if connection.takes_writes or not write:
                    del self._kept[at]
                    if _is_quiet(connection):
                        return connection
                    connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """Keep a connection that holds no lock and is in no transaction; close it if there are enough."""
        with self._lock:
            self._drop_old()
            # One that was made before the tables were would not find them; one that only looked is not worth keeping.
            is_useful = connection.has_queue and connection.takes_writes
            if len(self._kept) < MOST_IDLE and is_useful and _is_quiet(connection):
                self._kept.append((time.monotonic(), connection))
                return
        connection.close()

    def disown(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._lock = threading.Lock()
        for _, connection in self._kept:
            connection.disown()
        self._kept.clear()

    def _drop_old(self) -> None:
        oldest = time.monotonic() - LONGEST_IDLE
        while self._kept and self._kept[0][0] < oldest:
            self._kept.pop(0)[1].close()


def _is_quiet(connection: Connection) -> bool:
    """Whether the server has neither closed it nor said anything that was not asked for."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def _close_all(kept: list[tuple[float, Connection]]) -> None:
    for _, connection in kept:
        connection.close()
    kept.clear()
