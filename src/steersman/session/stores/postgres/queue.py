"""The queue of one session of a PostgreSQL database, for processes that do not write the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from psycopg.errors import UniqueViolation

from steersman.session.stores.postgres.connection import Connection, ReconnectingConnection
from steersman.session.stores.postgres.tables import (
    QUEUE,
    QUEUED_KEY,
    WAITING,
    check_queued,
    compute_queue_checksum,
)
from steersman.session.stores.store import QUEUE_PAGE, SessionError, SessionNotFound

_T = TypeVar("_T")


class PostgresQueue:
    """The queue of one session. It may be used in any thread."""

    def __init__(self, link: ReconnectingConnection, session_id: str, number: int) -> None:
        self._link = link
        self._session_id = session_id
        self._number = number

    def add(self, key: str, data: bytes, /) -> tuple[int, bool]:
        """Queue data under a key and notify the writer, in one statement; a key is queued once."""
        name = key.encode()
        values = {
            "number": self._number,
            "key": name,
            "data": data,
            "checksum": compute_queue_checksum(self._number, name, data),
        }

        def work(connection: Connection) -> tuple[int, bool]:
            try:
                wake = connection.make_place(self._number)
                found = connection.execute(QUEUE, {**values, "wake": wake}).fetchone()
            except UniqueViolation:
                known = connection.execute(QUEUED_KEY, (self._number, name)).fetchone()
                return (0 if known is None else known[0]), False
            if found is None:
                raise SessionNotFound(f"The session {self._session_id!r} was removed.")
            return found[0], True

        return self._run(f"Nothing could be queued into the session {self._session_id!r}", work)

    def waiting(self) -> Sequence[tuple[int, bytes]]:
        """What is not in the log yet."""
        found: list[tuple[int, bytes]] = []
        while True:
            wanted = {"number": self._number, "after": found[-1][0] if found else 0, "rows": QUEUE_PAGE}
            rows = self._run(
                f"The queue of the session {self._session_id!r} could not be read",
                lambda connection, wanted=wanted: connection.execute(WAITING, wanted).fetchall(),
            )
            found.extend(check_queued(self._number, *row[1:]) for row in rows if row[1] is not None)
            if len(rows) < QUEUE_PAGE:
                return found

    def close(self) -> None:
        """Close it."""
        self._link.close()

    def _run(self, what: str, work: Callable[[Connection], _T]) -> _T:
        if self._link.closed:
            raise SessionError(f"The queue of the session {self._session_id!r} is closed.")
        return self._link.run(what, work)
