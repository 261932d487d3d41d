"""Sessions in a PostgreSQL database: one statement is one commit, and an advisory lock ends with its connection.

The connection that writes holds the lock, so the next holder knows that no write of another one is under way. After a
lost connection the writer takes the lock again, and writes nothing more if another writer wrote in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn, TypeVar

from steersman.session.records import Record, encode, make_title
from steersman.session.stores.postgres.tables import (
    APPEND,
    COUNT,
    CREATE,
    DELETE,
    FIND,
    GAPS,
    LAST,
    LIST,
    LOCK_SESSIONS,
    PAGE,
    SET_TITLE,
    WRITTEN,
    Line,
    compute_checksum,
    split_groups,
)
from steersman.session.stores.store import (
    Problem,
    SessionBusy,
    SessionError,
    SessionExists,
    SessionNotFound,
    Summary,
    check_sequence,
    check_session_id,
    describe_range,
    make_busy_error,
    make_read_only_error,
)
from steersman.types.content import replace_lone_surrogates
from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.session.stores.postgres.connection import Connection, ReconnectingConnection, ServerAddress

_T = TypeVar("_T")

_TIMEOUT = 30.0
_PAGE_ROWS = 1000
_PAGE_BYTES = 1_000_000


class PostgresStore:
    """Any number of sessions in one database, which several processes and machines may use at once.

    `dsn` is a connection string as libpq takes it, `timeout` the most seconds to wait for any one answer. The tables
    `steersman_sessions` and `steersman_records` are made with the first session.
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
            if connection.tables is None:
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
                handle = PostgresHandle(link, session_id, found[0])
                handle.lock(connection)
            return handle

        return self._open_handle(link, f"The session {session_id!r} could not be made in {self._address.name!r}", work)

    def open(self, session_id: str, /, *, write: bool = True) -> PostgresHandle:
        """Open an existing session."""
        check_session_id(session_id)
        link = self._link(self._address, write=write)

        def work(connection: Connection) -> PostgresHandle:
            number, last = self._find(connection, session_id)
            handle = PostgresHandle(link, session_id, number)
            if write:
                handle.lock(connection)
                # Between the query and the lock, another writer may have added records or deleted the session.
                again, last = self._find(connection, session_id)
                if again != number:
                    raise SessionBusy(f"The session {session_id!r} was just deleted and created again elsewhere.")
            handle.set_last_seq(last)
            return handle

        return self._open_handle(
            link, f"The session {session_id!r} could not be opened in {self._address.name!r}", work
        )

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

    def _find(self, connection: Connection, session_id: str) -> tuple[int, int]:
        found = None if connection.tables is None else connection.execute(FIND, (session_id,)).fetchone()
        if found is None:
            raise SessionNotFound(f"No session {session_id!r} in {self._address.name!r}.")
        return found[0], found[1]

    def _open_handle(
        self, link: ReconnectingConnection, what: str, work: Callable[[Connection], PostgresHandle]
    ) -> PostgresHandle:
        try:
            handle = link.run(what, work)
            handle.find_gaps()
            return handle
        except BaseException:
            link.close()
            raise

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.name!r})"


class PostgresHandle:
    """One open session of a database."""

    def __init__(self, link: ReconnectingConnection, session_id: str, number: int) -> None:
        self.session_id = session_id
        self.problems: list[Problem] = []
        self._link = link
        self._number = number
        self._last = 0
        self._lost: list[tuple[int, int]] = []
        self._token: str | None = None

    @property
    def writable(self) -> bool:
        """Whether this is the writer."""
        return self._link.write

    @property
    def last_seq(self) -> int:
        """The number of the last record; for a reader it grows with what another process writes."""
        if self.writable:
            return self._last
        return self._run("read", self._read_last_seq)

    def lock(self, connection: Connection) -> None:
        """Take the lock of the session on this connection, unless it has it."""
        if self._token == connection.token:
            return
        if not connection.lock_session(self._number, self._token):
            raise make_busy_error(self.session_id)
        self._token = connection.token

    def set_last_seq(self, last: int) -> None:
        """Set the number of the last record."""
        self._last = last

    def find_gaps(self) -> None:
        """Find the missing records. If the table is too damaged for that, they are reported when they are read."""
        from steersman.session.stores.postgres.connection import DataCorrupted

        wanted = {"number": self._number, "last": self._last}

        def work(connection: Connection) -> list[tuple[int, int]]:
            if connection.execute(COUNT, wanted).fetchone() == (self._last,):
                return []
            return [(first, last) for first, last in connection.execute(GAPS, wanted)]

        try:
            found = self._run("read", work)
        except DataCorrupted:
            return
        for first, last in found:
            self._report_lost(first, last)

    def append(self, records: Sequence[Record], /) -> None:
        """Append these, which follow `last_seq`."""
        lines = self._encode_lines(records)
        if lines:
            self._write(lambda connection: self._append(connection, lines, records))
            self._last = lines[-1].seq

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number, in order, a page at a time; damage is reported in `problems`."""
        expected = after + 1
        while True:
            last, page = self._read_page(expected)
            for line in page:
                if line.seq > expected:
                    self._report_lost(expected, line.seq - 1)
                expected = line.seq + 1
                if line.checksum == compute_checksum(self._number, line.seq, line.data):
                    yield line.seq, line.data
                else:
                    self._report_lost(line.seq, line.seq)
            if not page and expected <= last:
                self._report_lost(expected, last)
            if not page or expected > last:
                return

    def set_title(self, title: str, /) -> None:
        """Set the title that a list shows."""
        words = replace_lone_surrogates(title).encode()
        self._write(
            lambda connection: connection.execute(SET_TITLE, (words, self._number)).rowcount or self._raise_not_found()
        )

    def erase(self) -> None:
        """Remove the session and its records."""
        self._write(lambda connection: connection.execute(DELETE, (self._number,)))

    def close(self) -> None:
        """Close the session and release its lock at once."""
        held = self._token is not None
        self._link.close((lambda connection: connection.unlock_session(self._number)) if held else None)

    def _encode_lines(self, records: Sequence[Record]) -> list[Line]:
        lines: list[Line] = []
        check_sequence(self.session_id, self._last, records)
        for record in records:
            data = encode(record)
            lines.append(Line(record.seq, compute_checksum(self._number, record.seq, data), data))
        return lines

    def _append(self, connection: Connection, lines: Sequence[Line], records: Sequence[Record]) -> None:
        """Add these in one transaction, without those of a commit that succeeded although its answer was lost."""
        values = {
            "number": self._number,
            "title": make_title(records).encode(),
            "updated": max(record.time for record in records),
        }
        try:
            self._add(connection, self._last, lines, values)
        except _UnexpectedLastSeq:
            known = self._count_written_lines(connection, lines)
            self._add(connection, self._last + known, lines[known:], values)

    def _add(self, connection: Connection, after: int, lines: Sequence[Line], values: Mapping[str, object]) -> None:
        groups = list(split_groups(lines))
        with connection.transaction() if len(groups) > 1 else nullcontext():
            for group in groups:
                seqs, checksums, data = zip(*group, strict=True)
                added = connection.execute(
                    APPEND,
                    {
                        **values,
                        "after": after,
                        "last": seqs[-1],
                        "seqs": list(seqs),
                        "checksums": list(checksums),
                        "data": list(data),
                    },
                ).rowcount
                if added != len(group):
                    raise _UnexpectedLastSeq
                after = seqs[-1]

    def _count_written_lines(self, connection: Connection, lines: Sequence[Line]) -> int:
        """Count those that are stored already; raises `SessionBusy` if other records are stored there."""
        self._read_last_seq(connection)
        there = connection.execute(WRITTEN, (self._number, self._last)).fetchall()
        if not there or there != [(line.seq, line.checksum) for line in lines[: len(there)]]:
            raise SessionBusy(
                f"The session {self.session_id!r} was written to by another program since this connection "
                f"was lost. The records from {self._last + 1} on are its own and were left as they are: open it again."
            )
        return len(there)

    def _read_page(self, first: int) -> tuple[int, list[Line]]:
        """One page of records from a number on, and the number of the last record of the session."""
        from steersman.session.stores.postgres.connection import DataCorrupted

        try:
            return self._run("read", lambda connection: self._select_page(connection, first, _PAGE_ROWS))
        except DataCorrupted:
            pass  # one of them is damaged: read them one by one
        try:
            return self._run("read", lambda connection: self._select_page(connection, first, 1))
        except DataCorrupted:
            return self._run("read", self._read_last_seq), [Line(first, 0, b"")]

    def _select_page(self, connection: Connection, first: int, rows: int) -> tuple[int, list[Line]]:
        wanted = {"number": self._number, "after": first - 1, "rows": rows, "bytes": _PAGE_BYTES}
        found = connection.execute(PAGE, wanted, binary=True).fetchall() or self._raise_not_found()
        return found[0][0], [Line(*row[1:]) for row in found if row[1] is not None]

    def _read_last_seq(self, connection: Connection) -> int:
        (last,) = connection.execute(LAST, (self._number,)).fetchone() or self._raise_not_found()
        return last

    def _write(self, work: Callable[[Connection], object]) -> None:
        """Do this with the lock, which is taken again after a lost connection."""

        def lock_and_work(connection: Connection) -> None:
            self.lock(connection)
            work(connection)

        if not self.writable:
            raise make_read_only_error(self.session_id)
        if self._link.forked:
            raise SessionBusy(f"The session {self.session_id!r} is written to by the process this one was forked from.")
        self._run("written", lock_and_work)

    def _run(self, done: str, work: Callable[[Connection], _T]) -> _T:
        if self._link.closed:
            raise SessionError(f"The session {self.session_id!r} is closed.")
        return self._link.run(f"The session {self.session_id!r} could not be {done}", work)

    def _raise_not_found(self) -> NoReturn:
        raise SessionNotFound(f"The session {self.session_id!r} was removed.")

    def _report_lost(self, first: int, last: int) -> None:
        if any(start <= first and last <= end for start, end in self._lost):
            return
        self._lost.append((first, last))
        self.problems.append(Problem(describe_range(first, last), "Damaged, and left out."))


class _UnexpectedLastSeq(Exception):
    """The last number of the session is not the expected one."""
