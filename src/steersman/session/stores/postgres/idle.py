"""Connections that are open and not in use: the next session of the same store takes one instead of a new one.

A new connection costs the server a process, and its first statements are slow: several milliseconds of CPU in all.
"""

from __future__ import annotations

import itertools
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import finalize

if TYPE_CHECKING:
    from steersman.session.stores.postgres.connection import Connection

MOST_IDLE: Final = 4
"""So many are kept by all stores of a program: one that closes a session mostly opens another one soon.

A program that has many open at once closes several before it opens the next, and keeps more: see `keep_for`.
"""
LONGEST_IDLE: Final = 60.0
"""Seconds after which one is not used again: something between here and the server may have dropped it."""


_kept: list[tuple[float, int, Connection]] = []
"""Since when a connection is not in use, and the number of its store; the oldest first.

There is no lock, because the garbage collector closes the connections of a store wherever a thread is. A connection
belongs to the thread that has removed it from this list, which is one step.
"""
_numbers = itertools.count()
_limits = [MOST_IDLE]


class IdleConnections:
    """The unused connections of one store. Any thread may use it; what is left is closed with the store."""

    def __init__(self) -> None:
        self._number = next(_numbers)
        finalize(self, _close_those_of, self._number)

    def take(self, *, write: bool) -> Connection | None:
        """The connection that was used last; for a writer one to a server that took writes."""
        close_old()
        for entry in reversed(tuple(_kept)):
            _, number, connection = entry
            if number == self._number and (connection.takes_writes or not write) and _remove(entry):
                if _is_quiet(connection):
                    return connection
                connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """Keep a connection that holds no lock and is in no transaction; if there are enough, close the oldest."""
        # One that was made before the tables were would not find them.
        if not (connection.has_queue and _is_quiet(connection)):
            connection.close()
            return
        _kept.append((time.monotonic(), self._number, connection))
        close_old()
        _close(_kept[: -max(_limits)])


def keep_for(sessions: int) -> Callable[[], None]:
    """Keep as many as this number of sessions needs at once; returns a function that ends this."""
    _limits.append(sessions)

    def end() -> None:
        _limits.remove(sessions)
        _close(_kept[: -max(_limits)])

    return end


def disown_idle_connections() -> None:
    """In a forked child: the connections are the parent's."""
    for *_, connection in _kept:
        connection.disown()
    _kept.clear()


def close_old() -> None:
    """Close those that were not used for long."""
    oldest = time.monotonic() - LONGEST_IDLE
    _close([entry for entry in _kept if entry[0] < oldest])


def _close_those_of(number: int) -> None:
    _close([entry for entry in _kept if entry[1] == number])


def _close(entries: list[tuple[float, int, Connection]]) -> None:
    for entry in entries:
        if _remove(entry):
            entry[-1].close()


def _remove(entry: tuple[float, int, Connection]) -> bool:
    """Remove a connection from the list; whether this thread has done so, and not another one."""
    try:
        _kept.remove(entry)
    except ValueError:
        return False
    return True


def _is_quiet(connection: Connection) -> bool:
    """Whether the server has neither closed it nor said anything that was not asked for."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return not poll.poll(0)
