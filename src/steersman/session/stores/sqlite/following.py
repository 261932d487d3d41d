"""Follows a session of a SQLite file that another process writes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from steersman.session.stores.sqlite.access import Access
from steersman.session.stores.sqlite.queue_rows import read_epoch
from steersman.session.stores.sqlite.tables import SessionRow
from steersman.session.stores.sqlite.wake import FollowerWatch, start_watch


class SqliteFollowing:
    """Hears what the present writer of a session says. The thread of the sockets calls it."""

    def __init__(self, access: Access, row: SessionRow, hear: Callable[[bytes | None], None]) -> None:
        self._access = access
        self._number = row.number
        self._lock = threading.Lock()
        self._closed = False
        self._version = 0
        self._watch = FollowerWatch(access.file_id, row.number, hear, self._read_epoch, self._has_changed)
        self._stop = start_watch(self._watch)

    def ask(self) -> None:
        """Ask the writer where it is."""
        self._watch.ask()

    def close(self) -> None:
        """Hear nothing more."""
        self._stop()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._access.close()

    def _read_epoch(self) -> int | None:
        """The epoch of the present owner; `None` if that cannot be said."""
        with self._lock:
            try:
                return None if self._closed else read_epoch(self._access.connection, self._number)
            except sqlite3.Error:
                return None  # it is damaged, or has no epochs yet: what is there is read when it changes

    def _has_changed(self) -> bool:
        with self._lock:
            try:
                if self._closed:
                    return False
                (version,) = self._access.connection.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                return False  # the next reader reports it
        changed, self._version = version != self._version, version
        return changed
