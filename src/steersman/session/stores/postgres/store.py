"""Sessions in a PostgreSQL database: one statement is one commit, and an advisory lock ends with its connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from steersman.session.records import Record, encode
from steersman.session.stores.postgres.handle import PAGE_BYTES, PAGE_ROWS, PostgresHandle
from steersman.session.stores.postgres.idle import keep_for
from steersman.session.stores.postgres.tables import (
    CREATE,
    CREATE_AND_QUEUE,
    FIND,
    LIST,
    LOCK_SESSIONS,
    Line,
    compute_checksum,
    compute_queue_checksum,
)
from steersman.session.stores.store import SessionExists, SessionNotFound, Summary, check_sequence, check_session_id
from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.session.stores.postgres.connection import Connection, ReconnectingConnection, ServerAddress
    from steersman.session.stores.postgres.follow import PostgresFollowing
    from steersman.session.stores.postgres.queue import PostgresQueue

_T = TypeVar("_T")
_TIMEOUT = 30.0


class PostgresStore:
    """Any number of sessions in one database, which several processes and machines may use at once.

    `dsn` is a connection string as libpq takes it, `timeout` the most seconds to wait for any one answer. The tables
    `steersman_sessions`, `steersman_records` and `steersman_queue` are made with the first session. Up to 4 connections
    that are not in use are kept for the next sessions, by a worker more; they are closed with the store.
    """

    def __init__(self, dsn: str, *, timeout: float = _TIMEOUT) -> None:
        try:
            from steersman.session.stores.postgres import connection as link
        except ImportError as error:
            raise MissingExtra("PostgresStore needs psycopg 3: pip install 'steersman[postgres]'.") from error
        if not timeout > 0:
            raise ValueError(f"timeout is a number of seconds above 0, got {timeout!r}.")
        self._link = link.ReconnectingConnection
        self._address: ServerAddress = link.ServerAddress(dsn, timeout)

    def create(self, session_id: str, /, *, first: bool = False) -> PostgresHandle:
        """A new, empty session to write to; with `first`, only if the database has none."""
        check_session_id(session_id)
        link = self._link(self._address, write=True)

        def work(connection: Connection) -> PostgresHandle:
            if not connection.has_queue:
                connection.make_tables()
            with connection.transaction():
                if first:
                    connection.execute(LOCK_SESSIONS)
                    if (other := connection.execute(LIST).fetchone()) is not None:
                        raise SessionExists(
                            f"There is a session {other[0]!r} in {self._address.name!r} already; open it."
                        )
                now = time.time()
                found = connection.execute(CREATE, (session_id, now, now)).fetchone()
                if found is None:
                    raise SessionExists(
                        f"There is a session {session_id!r} in {self._address.name!r} already; open it."
                    )
                number, connection.tables = found
                handle = PostgresHandle(link, session_id, number, epoch=1)
                handle.expect(0, ())
                handle.lock(connection)
            return handle

        return self._open_handle(link, f"The session {session_id!r} could not be made in {self._address.name!r}", work)

    def create_and_queue(self, session_id: str, records: Sequence[Record], key: str, data: bytes, /) -> None:
        """A new session for others to open, with its first records, and with something in its queue as number 1."""
        check_session_id(session_id)
        check_sequence(session_id, 0, records)
        link, name = self._link(self._address, write=True), key.encode()

        def work(connection: Connection) -> None:
            if not connection.has_queue:
                connection.make_tables()
            lines = [encode(record) for record in records]
            while True:
                number, counter = connection.take_number()
                values = {
                    "number": number,
                    "counter": counter,
                    "id": session_id,
                    "now": time.time(),
                    "last": len(records),
                    "seqs": [record.seq for record in records],
                    "checksums": [compute_checksum(number, seq, line) for seq, line in enumerate(lines, 1)],
                    "lines": lines,
                    "key": name,
                    "checksum": compute_queue_checksum(number, name, data),
                    "data": data,
                }
                is_made, *following = connection.execute(CREATE_AND_QUEUE, values).fetchone() or (False, 0, counter)
                connection.next_number = following[0], following[1]
                if is_made:
                    return
                if following[1] == counter:  # else the tables were made anew since the number was taken
                    raise SessionExists(
                        f"There is a session {session_id!r} in {self._address.name!r} already; open it."
                    )

        try:
            link.run(f"The session {session_id!r} could not be made in {self._address.name!r}", work)
        finally:
            link.close()

    def open(self, session_id: str, /, *, write: bool = True) -> PostgresHandle:
        """Open an existing session."""
        check_session_id(session_id)
        link = self._link(self._address, write=write)

        def work(connection: Connection) -> PostgresHandle:
            if write:
                handle = self._find_with_records(connection, link, session_id)
                handle.lock_and_own(connection)
            else:
                number, last = self._find(connection, session_id, write=False)
                handle = PostgresHandle(link, session_id, number)
                handle.set_last_seq(last)
            return handle

        return self._open_handle(
            link, f"The session {session_id!r} could not be opened in {self._address.name!r}", work
        )

    def take_over(self, session_id: str, /) -> PostgresHandle:
        """Open an existing session although another one may write to it, whose connection is ended."""
        check_session_id(session_id)
        link = self._link(self._address, write=True)

        def work(connection: Connection) -> PostgresHandle:
            number, _ = self._find(connection, session_id, write=True)
            handle = PostgresHandle(link, session_id, number)
            handle.take_over(connection)
            return handle

        return self._open_handle(
            link, f"The session {session_id!r} could not be taken over in {self._address.name!r}", work
        )

    def open_queue(self, session_id: str, /) -> PostgresQueue:
        """The queue of an existing session."""
        from steersman.session.stores.postgres.queue import PostgresQueue  # it needs the driver

        check_session_id(session_id)
        link = self._link(self._address, write=True)
        what = f"The queue of the session {session_id!r} could not be opened in {self._address.name!r}"
        try:
            number, _ = link.run(what, lambda connection: self._find(connection, session_id, write=True))
        except BaseException:
            link.close()
            raise
        return PostgresQueue(link, session_id, number)

    def follow(self, session_id: str, hear: Callable[[bytes | None], None], /) -> PostgresFollowing:
        """Hear what the present writer of an existing session broadcasts."""
        from steersman.session.stores.postgres.follow import PostgresFollowing  # it needs the driver

        place = self._look(session_id, "followed", lambda connection, number: connection.make_place(number), write=True)
        return PostgresFollowing(self._address, place, hear)

    def keep_ready(self, sessions: int, /) -> Callable[[], None]:
        """Listen also while no session is open, and keep connections for so many; returns a function that ends this."""
        from steersman.session.stores.postgres.listen import listen_always  # it needs the driver

        stops = (listen_always(self._address), keep_for(sessions))

        def stop() -> None:
            for each in stops:
                each()

        return stop

    def has_writer(self, session_id: str, /) -> bool:
        """Whether a connection holds the lock of the session."""

        def look(connection: Connection, number: int) -> bool:
            return bool(connection.find_held([connection.make_place(number)]))

        return self._look(session_id, "read", look, write=False)

    def _look(self, session_id: str, done: str, look: Callable[[Connection, int], _T], *, write: bool) -> _T:
        """What a function finds about an existing session."""
        check_session_id(session_id)
        link = self._link(self._address, write=write)

        def work(connection: Connection) -> _T:
            return look(connection, self._find(connection, session_id, write=write)[0])

        try:
            return link.run(f"The session {session_id!r} could not be {done} in {self._address.name!r}", work)
        finally:
            link.close()

    def list(self) -> Sequence[Summary]:
        """The sessions, the last used first."""

        def work(connection: Connection) -> list[Summary]:
            rows = [] if connection.tables is None else connection.execute(LIST).fetchall()
            return [Summary(id, title.decode(), created, updated, last) for id, title, created, updated, last in rows]

        link = self._link(self._address, write=False)
        try:
            return link.run(f"The sessions in {self._address.name!r} could not be listed", work)
        finally:
            link.close()

    def delete(self, session_id: str, /) -> None:
        """Remove a session for good."""
        handle = self.open(session_id)
        try:
            handle.erase()
        finally:
            handle.close()

    def _find(self, connection: Connection, session_id: str, *, write: bool) -> tuple[int, int]:
        if write:
            _complete_tables(connection)
        found = None if connection.tables is None else connection.execute(FIND, (session_id,)).fetchone()
        if found is None:
            raise self._make_not_found_error(session_id)
        number, last, connection.tables = found
        return number, last

    def _find_with_records(
        self, connection: Connection, link: ReconnectingConnection, session_id: str
    ) -> PostgresHandle:
        """A handle that knows the first records: whoever writes a session reads it first."""
        _complete_tables(connection)
        wanted = {"id": session_id, "after": 0, "rows": PAGE_ROWS, "bytes": PAGE_BYTES}
        found = None if connection.tables is None else connection.find_and_read(wanted)
        if found is None:
            return PostgresHandle(link, session_id, self._find(connection, session_id, write=True)[0])
        if not found:
            raise self._make_not_found_error(session_id)
        number, connection.tables, last = found[0][:3]
        handle = PostgresHandle(link, session_id, number)
        handle.expect(last, [Line(*row[3:]) for row in found if row[3] is not None])
        return handle

    def _make_not_found_error(self, session_id: str) -> SessionNotFound:
        return SessionNotFound(f"No session {session_id!r} in {self._address.name!r}.")

    def _open_handle(
        self, link: ReconnectingConnection, what: str, work: Callable[[Connection], PostgresHandle]
    ) -> PostgresHandle:
        try:
            return link.run(what, work)
        except BaseException:
            link.close(has_locks=True)
            raise

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.name!r})"


def _complete_tables(connection: Connection) -> None:
    """Make what the tables of an older version lack."""
    if connection.tables is not None and not connection.has_queue:
        connection.make_tables()
