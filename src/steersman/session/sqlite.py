"""Sessions in one SQLite file: a commit is one sync, a row has its checksum, a writer's lock dies with its process.

The file, its companions and the lock file can be read by their owner alone, whatever the umask says. A damaged file is
salvaged by the first writer that is alone with it; whoever only reads changes nothing, and works with a copy then.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from steersman.session.access import (
    EVERYBODY,
    Access,
    check_ordinary,
    checked_path,
    locks_of,
    outside,
    place_of,
    prepare,
    reading_locks_of,
)
from steersman.session.records import Record, encode, title_in
from steersman.session.salvage import beside, duplicate, gaps, salvage
from steersman.session.store import (
    Problem,
    SessionBusy,
    SessionDamaged,
    SessionError,
    SessionExists,
    SessionNotFound,
    StoreFailed,
    Summary,
    checked_id,
)
from steersman.session.tables import (
    ONCE,
    Damage,
    Lost,
    SessionRow,
    add,
    change,
    connect,
    judged,
    lost_in,
    moment,
    record_checksum,
    record_key,
    sessions_in,
    transaction,
    warnings_in,
    whole_rows,
)
from steersman.types.content import well_formed

_T = TypeVar("_T")


class SqliteStore:
    """Any number of sessions in one file, which several processes may use at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = checked_path(path)

    def create(self, session_id: str, /) -> SqliteHandle:
        """A new, empty session to write to."""
        checked_id(session_id)
        prepare(self.path)

        def work(access: Access) -> SqliteHandle:
            connection = access.connection
            with judged(f"The session {session_id!r} could not be made in {str(self.path)!r}"), transaction(connection):
                if any(row.id == session_id for row in sessions_in(connection)):
                    raise SessionExists(f"There is a session {session_id!r} in {str(self.path)!r} already; open it.")
                (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
                now = time.time()
                row = SessionRow(last + 1, session_id, now, now, "", 0)
                add(connection, row)
                access.take(row)
            return SqliteHandle(access, row, [], 0)

        return self._do(work, write=True)

    def open(self, session_id: str, /, *, write: bool = True) -> SqliteHandle:
        """A session that is there."""
        checked_id(session_id)
        if not self._there():
            raise SessionNotFound(f"No session {session_id!r}: there is no file {str(self.path)!r}.")

        def work(access: Access) -> SqliteHandle:
            with judged(f"The file {str(self.path)!r} cannot be read"):
                row = self._row(session_id, access)
                if write:
                    access.take(row)
                # Its last words may have been written since, and whoever reads wants all of one moment.
                with nullcontext() if write else moment(access.connection):
                    row = self._row(session_id, access)
                    return SqliteHandle(access, row, *_judged(access, row))

        return self._do(work, write=write)

    def list(self) -> Sequence[Summary]:
        """The sessions, the last used first."""

        def work(access: Access) -> list[Summary]:
            with access, judged(f"The file {str(self.path)!r} cannot be read"), moment(access.connection):
                rows = sessions_in(access.connection)
                return [_summary(access.connection, row) for row in sorted(rows, key=_use, reverse=True)]

        return self._do(work, write=False) if self._there() else []

    def delete(self, session_id: str, /) -> None:
        """Remove a session for good."""
        handle = self.open(session_id)
        try:
            handle.erase()
        finally:
            handle.close()

    def _row(self, session_id: str, access: Access) -> SessionRow:
        for row in sessions_in(access.connection):
            if row.id == session_id:
                return row
        # One that is not there may have been, so whatever is wrong with the file is told.
        told = [*(problem.text for problem in access.problems), *warnings_in(access.connection)]
        raise SessionNotFound(" ".join([f"No session {session_id!r} in {str(self.path)!r}.", *told]))

    def _there(self) -> bool:
        try:
            if self.path.exists():
                check_ordinary(self.path)
                return True
            return beside(self.path, "-ready").exists()
        except OSError as error:
            raise StoreFailed(f"The file {str(self.path)!r} cannot be used: {error.strerror}.") from error

    def _do(self, work: Callable[[Access], _T], *, write: bool) -> _T:
        """Do it; where the file turns out damaged, do it again with what can be salvaged of it."""
        try:
            return self._once(work, write=write)
        except Damage as damage:
            reason = str(damage)
        with self._alone(reason, write=write):
            if not write:
                return self._with_copy(work)
            outside(self.path, salvage, self.path, reason)
        try:
            return self._once(work, write=True)
        except Damage as damage:
            raise SessionDamaged(f"The file {str(self.path)!r} is damaged: {damage}.") from damage

    @contextmanager
    def _alone(self, reason: str, *, write: bool) -> Generator[None]:
        """Nobody has the file open: the locks of SQLite would not outlive that the file is read beside it."""
        locks = locks_of(self.path) if write else reading_locks_of(self.path)
        try:
            if locks is not None and locks.writable and not locks.take(EVERYBODY):
                raise SessionBusy(
                    f"The file {str(self.path)!r} is damaged ({reason}), and others use it. It is salvaged when it is "
                    "opened by one alone: let them close it first."
                )
            yield
        finally:
            if locks is not None:
                locks.close()

    def _once(self, work: Callable[[Access], _T], *, write: bool) -> _T:
        try:
            access = Access(self.path, write=write)
        except StoreFailed:
            if write or not os.access(self.path, os.R_OK) or os.access(self.path.parent, os.W_OK):
                raise
            return self._with_copy(work)  # SQLite needs to write beside a file, even to read it
        try:
            return work(access)
        except BaseException:
            access.close()
            raise

    def _with_copy(self, work: Callable[[Access], _T]) -> _T:
        """Read from a copy, with which anything may be done."""
        folder = tempfile.TemporaryDirectory(prefix="steersman-")
        copy = Path(folder.name) / self.path.name
        try:
            outside(self.path, duplicate, self.path, copy)
            given = SqliteStore(copy)._do(work, write=True)
        except SessionError as error:
            folder.cleanup()
            # The copy is nobody's business.
            raise type(error)(str(error).replace(str(copy), str(self.path))) from error
        except BaseException:
            folder.cleanup()
            raise
        if isinstance(given, SqliteHandle):
            given.afterwards(folder.cleanup)
        else:
            folder.cleanup()
        return given


class SqliteHandle:
    """One open session of a file."""

    def __init__(self, access: Access, row: SessionRow, lost: Sequence[Lost], link: int) -> None:
        self.session_id = row.id
        # Who found a torn tail and finds the word that was left about it is told of it once.
        self.problems: list[Problem] = list(dict.fromkeys([*access.problems, *(item.problem for item in lost)]))
        self._access = access
        self._row = row
        self._lost = lost
        self._link = link
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._reader = access.connection
        if access.taken:
            # Whoever reads has a connection of its own, and is never in the way of the thread that writes.
            self._reader = connect(access.path, write=False)
            access.leave.callback(self._reader.close)
        self._closed = False

    @property
    def writable(self) -> bool:
        """Whether this is the writer."""
        return self._access.taken

    @property
    def last_seq(self) -> int:
        """The number of the last record; whoever only reads sees it grow."""
        if self._access.taken:
            return self._row.last
        self._check_open()
        with judged(self._cannot("read")), self._reading:
            found = self._reader.execute("SELECT last FROM sessions WHERE number = ?", (self._row.number,)).fetchone()
        return self._row.last if found is None else found[0]

    def append(self, records: Sequence[Record], /) -> None:
        """Keep these, which go on from `last_seq`."""
        rows = self._rows(records)
        if not rows:
            return
        changed = replace(
            self._row,
            last=records[-1].seq,
            updated=max(self._row.updated, *(record.time for record in records)),
            title=self._row.title or title_in(records),
        )
        with self._written() as connection:
            key = record_key(self._row.number, self._row.last)
            # A commit that failed may have been kept all the same: what is there is not written again.
            there = dict(
                connection.execute("SELECT key, checksum FROM records WHERE key > ? AND key <= ?", (key, rows[-1][0]))
            )
            if any(there.get(row[0], row[2]) != row[2] for row in rows):
                raise StoreFailed(f"{self._cannot('written')}: somebody else wrote to it.")
            connection.executemany(
                "INSERT INTO records VALUES (?, ?, ?, ?)", [row for row in rows if row[0] not in there]
            )
            change(connection, changed)
        self._row = changed
        self._link = rows[-1][2]

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number, in order, without holding them all; damage is told in `problems`."""
        self._check_open()
        expected = after + 1
        try:
            with judged(self._cannot("read")):
                for seq, _, data in whole_rows(self._reader, self._row.number, after, self._reading):
                    if seq > expected:
                        self._miss(expected, seq - 1)
                    expected = seq + 1
                    yield seq, data
        except Damage as damage:
            self._tell(Problem(f"records from {expected} on", f"They cannot be read: {damage}."))

    def entitle(self, title: str, /) -> None:
        """What the session is called in a list."""
        changed = replace(self._row, title=well_formed(title))
        with self._written() as connection:
            change(connection, changed)
        self._row = changed

    def erase(self) -> None:
        """Remove the session and its records, so that no byte of them is left."""
        number = self._row.number
        with self._written() as connection:
            keys = (record_key(number, 0), record_key(number + 1, 0))
            connection.execute("DELETE FROM records WHERE key > ? AND key < ?", keys)
            connection.execute("DELETE FROM lost WHERE number = ?", (number,))
            connection.execute("DELETE FROM sessions WHERE number = ?", (number,))
        with judged(self._cannot("removed")):
            self._access.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Let go of the session."""
        with self._writing, self._reading:
            self._closed = True
            self._access.close()

    def afterwards(self, do: Callable[[], object]) -> None:
        """Do this when the session is closed."""
        self._access.afterwards(do)

    def _rows(self, records: Sequence[Record]) -> list[tuple[int, int, int, bytes]]:
        rows: list[tuple[int, int, int, bytes]] = []
        link = self._link
        for expected, record in enumerate(records, self._row.last + 1):
            if record.seq != expected:
                raise ValueError(f"Expected the record {expected} of {self.session_id!r}, got {record.seq}.")
            data = encode(record)
            key = record_key(self._row.number, record.seq)
            checksum = record_checksum(key, link, data)
            rows.append((key, link, checksum, data))
            link = checksum
        return rows

    @contextmanager
    def _written(self) -> Generator[sqlite3.Connection]:
        """A transaction, and `StoreFailed` for whatever stops it."""
        self._check_writer()
        with self._writing:
            self._check_open()
            try:
                with judged(self._cannot("written")):
                    if place_of(self._access.path) != self._access.place:
                        raise StoreFailed(f"{self._cannot('written')}: its file was replaced.")
                    with transaction(self._access.connection):
                        yield self._access.connection
            except OSError as error:
                raise StoreFailed(f"{self._cannot('written')}: {error.strerror}.") from error
            except Damage as damage:
                raise StoreFailed(f"{self._cannot('written')}: {damage}.") from damage

    def _check_writer(self) -> None:
        if not self._access.taken:
            raise SessionBusy(f"The session {self.session_id!r} was opened to be read.")
        if self._access.locks is None or (self._access.locks.closed and not self._closed):
            raise SessionBusy(f"The session {self.session_id!r} is written to by the process this one was forked from.")

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError(f"The session {self.session_id!r} is closed.")

    def _cannot(self, done: str) -> str:
        return f"The session {self.session_id!r} could not be {done}"

    def _miss(self, first: int, last: int) -> None:
        """Tell of records that are not there, unless that is known."""
        if not any(lost.first <= first and last <= lost.last for lost in self._lost):
            self._tell(Lost(first, last, "Damaged, and left out.").problem)

    def _tell(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _judged(access: Access, row: SessionRow) -> tuple[list[Lost], int]:
    """What is missing of a session, and the checksum of its last record; `Damage` for what is new and can be cured."""
    known = lost_in(access.connection, row.number)
    seqs: list[int] = []
    link = 0
    for seq, checksum, _ in whole_rows(access.connection, row.number, 0, nullcontext()):
        seqs.append(seq)
        link = checksum if seq == row.last else 0
    found = [
        Lost(first, last, "Damaged, and left out.")
        for first, last in gaps(seqs, row.last)
        if not any(lost.first <= first and last <= lost.last for lost in known)
    ]
    if found and access.alone():
        raise Damage(", ".join(f"{lost.problem.where} of session {row.id!r}" for lost in found))
    if seqs[-1:] > [row.last]:
        raise Damage(f"session {row.id!r} has more records than it should")
    if access.taken and any(lost.last == ONCE for lost in known):
        with transaction(access.connection):
            access.connection.execute("DELETE FROM lost WHERE number = ? AND last = ?", (row.number, ONCE))
    return [*known, *found], link


def _summary(connection: sqlite3.Connection, row: SessionRow) -> Summary:
    lost = sum(lost.last - lost.first + 1 for lost in lost_in(connection, row.number) if lost.last > 0)
    return Summary(row.id, row.title, row.created, row.updated, row.last - lost)


def _use(row: SessionRow) -> tuple[float, int]:
    return row.updated, row.number
