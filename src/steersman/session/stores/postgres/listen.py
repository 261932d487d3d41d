"""Listens for what is queued into sessions: one thread and one connection for each database that a process uses.

A notification only says that there may be something to read: after a lost connection every session is woken once.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TypeAlias

import psycopg

from steersman.session.stores.postgres.connection import Connection, ServerAddress
from steersman.session.stores.postgres.tables import CHANNEL
from steersman.session.stores.store import call_wake

Place: TypeAlias = str
"""What a notification says: the table of the records and the number of the session."""

# Seconds between two signs of life, and until the next attempt to connect, which doubles up to the longest.
_ALIVE = 15.0
_RETRY, _LONGEST_RETRY = 0.5, 15.0

_log = logging.getLogger("steersman")


class _Listener:
    """The thread of one database; it ends with the last session that is watched, and is not used again."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._watches: list[tuple[Place, Callable[[], None]]] = []
        self._is_over = False
        self._connection: Connection | None = None
        self._poked, self._poke = os.pipe()
        os.set_blocking(self._poked, False)
        os.set_blocking(self._poke, False)

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="steersman-listen", daemon=True).start()

    def add(self, place: Place, wake: Callable[[], None]) -> Callable[[], None] | None:
        """Watch a session; returns a function that ends this, or `None` if the thread has ended."""
        watch = place, wake
        with self._lock:
            if self._is_over:
                return None
            self._watches.append(watch)
        return lambda: self._remove(watch)

    def close_in_child(self) -> None:
        """In a forked child: the connection is the parent's."""
        if self._connection is not None and not self._connection.closed:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self._connection.pgconn.socket)
            os.close(nothing)
            self._connection.close()

    def _remove(self, watch: tuple[Place, Callable[[], None]]) -> None:
        with self._lock:
            if self._is_over:
                return  # and its pipe is closed
            self._watches = [other for other in self._watches if other is not watch]
            try:
                os.write(self._poke, b"x")
            except BlockingIOError:
                pass  # it is full of pokes already

    def _run(self) -> None:
        retry = _RETRY
        while not self._end_if_unused():
            try:
                with closing(self._address.connect(write=True)) as connection:
                    self._connection = connection
                    connection.execute(f"LISTEN {CHANNEL}")
                    retry = _RETRY
                    self._wake()
                    self._follow(connection)
            except psycopg.Error as error:
                _log.debug("%s", self._address.make_error("The queue of the sessions cannot be listened to", error))
                self._wait(None, retry)
                retry = min(_LONGEST_RETRY, retry * 2)

    def _end_if_unused(self) -> bool:
        """End it if no session is watched any more; returns whether it has ended."""
        with self._lock:
            if self._watches:
                return False
            self._is_over = True
            os.close(self._poked)
            os.close(self._poke)
            return True

    def _follow(self, connection: Connection) -> None:
        """Wake sessions as notifications come, until no session is watched any more."""
        while self._watches:
            if not self._wait(connection, _ALIVE):
                connection.execute("SELECT 1")  # raises if the connection is dead
            connection.pgconn.consume_input()
            places: set[Place] = set()
            while (notice := connection.pgconn.notifies()) is not None:
                places.add(notice.extra.decode())
            self._wake(places)

    def _wait(self, connection: Connection | None, seconds: float) -> bool:
        """Wait for a notification or a poke; whether one came."""
        files = [self._poked] if connection is None else [self._poked, connection.pgconn.socket]
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(1000 * seconds)}
        if self._poked in ready:
            os.read(self._poked, 4096)
        return bool(ready)

    def _wake(self, places: set[Place] | None = None) -> None:
        with self._lock:
            watches = list(self._watches)
        for place, wake in watches:
            if places is None or place in places:
                call_wake(wake)


class _Registry:
    """The listeners of this process by their databases; a forked child has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, _Listener] = {}

    def watch(self, address: ServerAddress, place: Place, wake: Callable[[], None]) -> Callable[[], None]:
        """Watch a session with the listener of its database; returns a function that ends this."""
        with self._lock:
            listener = self._listeners.get(address.dsn)
            stop = None if listener is None else listener.add(place, wake)
            if stop is None:
                listener = self._listeners[address.dsn] = _Listener(address)
                stop = listener.add(place, wake)
                listener.start()
            assert stop is not None
            return stop

    def renew(self) -> None:
        """In a forked child: begin anew."""
        for listener in self._listeners.values():
            listener.close_in_child()
        self._lock = threading.Lock()
        self._listeners = {}


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.renew)


def watch_session(address: ServerAddress, place: Place, wake: Callable[[], None]) -> Callable[[], None]:
    """Call `wake` in a thread when something was queued into a session; returns a function that ends this."""
    return _registry.watch(address, place, wake)
