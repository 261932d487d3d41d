"""Sessions in one SQLite file: a commit is one sync, a row has its checksum, a writer's lock dies with its process.

The file, its companions and the lock file can be read by their owner alone, whatever the umask says. A damaged file is
salvaged by the first writer that is alone with it; whoever only reads changes nothing, and works with a copy then.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from steersman.session.stores.sqlite.access import (
    EVERYBODY,
    Access,
    check_ordinary,
    checked_path,
    locks_of,
    outside,
    prepare,
    reading_locks_of,
)
from steersman.session.stores.sqlite.handle import SqliteHandle
from steersman.session.stores.sqlite.neighbours import undisturbed
from steersman.session.stores.sqlite.salvage import beside, duplicate, gaps, salvage
from steersman.session.stores.sqlite.tables import (
    ONCE,
    Damage,
    Lost,
    SessionRow,
    add,
    judged,
    lost_in,
    moment,
    sessions_in,
    transaction,
    warnings_in,
    whole_rows,
)
from steersman.session.stores.store import (
    SessionBusy,
    SessionDamaged,
    SessionError,
    SessionExists,
    SessionNotFound,
    StoreFailed,
    Summary,
    check_session_id,
)

_T = TypeVar("_T")


class SqliteStore:
    """Any number of sessions in one file, which several processes may use at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = checked_path(path)

    def create(self, session_id: str, /) -> SqliteHandle:
        """A new, empty session to write to."""
        check_session_id(session_id)
        prepare(self.path)

        def work(access: Access) -> SqliteHandle:
            connection = access.connection
            with judged(f"The session {session_id!r} could not be made in {str(self.path)!r}"), transaction(connection):
                if any(row.id == session_id for row in sessions_in(connection)):
                    raise SessionExists(f"There is a session {session_id!r} in {str(self.path)!r} already; open it.")
                (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
                now = time.time()
                row = SessionRow(last + 1, session_id, now, now, "", 0)
                with undisturbed(connection, row.number, 0, 0):
                    add(connection, row)
                access.take(row)
            return SqliteHandle(access, row, [], 0)

        return self._do(work, write=True)

    def open(self, session_id: str, /, *, write: bool = True) -> SqliteHandle:
        """A session that is there."""
        check_session_id(session_id)
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


def _judged(access: Access, row: SessionRow) -> tuple[list[Lost], int]:
    """What is missing of a session, and the checksum of its last record; `Damage` for what is new and can be cured."""
    known = lost_in(access.connection, row.number)
    seqs: list[int] = []
    link = 0
    for seq, checksum, _ in whole_rows(lambda: nullcontext(access.connection), row.number, 0):
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
