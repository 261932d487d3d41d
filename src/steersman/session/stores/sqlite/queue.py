"""The queue of one session of a SQLite file, for processes that do not write the session."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from steersman.session.stores.sqlite.access import Access
from steersman.session.stores.sqlite.queue_rows import insert_queued, read_epoch, read_queued
from steersman.session.stores.sqlite.sockets import wake_writer
from steersman.session.stores.sqlite.tables import SessionRow, classify_errors, transaction
from steersman.session.stores.store import SessionError, SessionNotFound


class SqliteQueue:
    """The queue of one session. It may be used in any thread."""

    def __init__(self, access: Access, row: SessionRow) -> None:
        self._access = access
        self._row = row
        self._lock = threading.Lock()
        self._closed = False

    def add(self, key: str, data: bytes, /) -> tuple[int, bool]:
        """Queue data under a key in one transaction, and wake the writer; a key is queued once."""
        connection, session = self._access.connection, self._row.number
        with self._lock:
            self._check_open()
            with classify_errors(f"Nothing could be queued into the session {self._row.id!r}"), transaction(connection):
                epoch = read_epoch(connection, session)
                if epoch is None:
                    raise SessionNotFound(f"The session {self._row.id!r} was removed.")
                number, is_new = insert_queued(connection, session, key, data)
        wake_writer(self._access.file_id, session, epoch)
        return number, is_new

    def waiting(self) -> Sequence[tuple[int, bytes]]:
        """What is not in the log yet."""
        found: list[tuple[int, bytes]] = []
        with self._lock, classify_errors(f"The queue of the session {self._row.id!r} could not be read"):
            self._check_open()
            while more := read_queued(self._access.connection, self._row.number, found[-1][0] if found else 0):
                found.extend(more)
        return found

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._closed = True
            self._access.close()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError(f"The queue of the session {self._row.id!r} is closed.")
