"""Sessions in one SQLite file: a commit is one fsync, each row has a checksum, a writer's lock ends with its process.

Only their owner can read the file, its companions and the lock file. A damaged file is rescued by the first writer that
has it exclusively; a reader changes nothing, and works on a copy instead.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from steersman.session.stores.sqlite.access import (
    SHARED_LOCK,
    Access,
    check_path,
    check_regular_file,
    create_file,
    open_locks,
    open_reader_locks,
    translate_os_errors,
)
from steersman.session.stores.sqlite.following import SqliteFollowing
from steersman.session.stores.sqlite.handle import SqliteHandle
from steersman.session.stores.sqlite.queue import SqliteQueue
from steersman.session.stores.sqlite.rescue import copy_file, find_gaps, make_companion_path, rescue
from steersman.session.stores.sqlite.sockets import wake_writer
from steersman.session.stores.sqlite.tables import (
    ONCE,
    Damage,
    Lost,
    SessionRow,
    classify_errors,
    insert_session,
    read_lost,
    read_sessions,
    read_transaction,
    read_valid_rows,
    read_warnings,
    transaction,
    update_session,
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
    make_busy_error,
)
from steersman.tools.confine.own_files import protect_database

_T = TypeVar("_T")
# By file and session: up to which record readers of this process have found nothing damaged.
_sound: dict[tuple[object, int, str, float], int] = {}
_MOST_SOUND = 10_000
_LAST_NUMBER = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'sessions'"


class SqliteStore:
    """Any number of sessions in one file, which several processes may use at once."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_path(path)
        protect_database(self.path)

    def create(self, session_id: str, /, *, first: bool = False) -> SqliteHandle:
        """A new, empty session to write to; with `first`, only if the file has none."""
        check_session_id(session_id)
        create_file(self.path)

        def work(access: Access) -> SqliteHandle:
            connection = access.connection
            with (
                classify_errors(f"The session {session_id!r} could not be made in {str(self.path)!r}"),
                transaction(connection),
            ):
                for row in read_sessions(connection):
                    if first or row.id == session_id:
                        raise SessionExists(f"There is a session {row.id!r} in {str(self.path)!r} already; open it.")
                (last,) = connection.execute(_LAST_NUMBER).fetchone()
                now = time.time()
                row = SessionRow(last + 1, session_id, now, now, "", 0)
                insert_session(connection, row)
                access.lock_session(row)
            return SqliteHandle(access, row, [], 0)

        return self._run(work, write=True)

    def open(self, session_id: str, /, *, write: bool = True) -> SqliteHandle:
        """Open an existing session."""
        self._check_there(session_id)

        def work(access: Access) -> SqliteHandle:
            with classify_errors(f"The file {str(self.path)!r} cannot be read"):
                row = self._find_row(session_id, access)
                if write:
                    access.lock_session(row)
                # Records may have been added before the lock was ours, and a reader wants all of one snapshot.
                with nullcontext() if write else read_transaction(access.connection):
                    before, row = row, self._find_row(session_id, access)
                    if write and before.epoch != row.epoch:
                        raise make_busy_error(session_id)  # taken over meanwhile
                    return SqliteHandle(access, row, *_check_session(access, row))

        return self._run(work, write=write)

    def take_over(self, session_id: str, /) -> SqliteHandle:
        """Open an existing session although another one may write to it, which is refused from here on."""
        self._check_there(session_id)

        def work(access: Access) -> SqliteHandle:
            with classify_errors(f"The session {session_id!r} could not be taken over in {str(self.path)!r}"):
                with transaction(access.connection):
                    former = self._find_row(session_id, access)
                    row = replace(former, epoch=former.epoch + 1)
                    access.lock_session(row)
                    update_session(access.connection, row)
                # The former owner may be waiting for a tool: it learns at once that it is the owner no more.
                wake_writer(access.file_id, row.number, former.epoch)
                return SqliteHandle(access, row, *_check_session(access, row))

        return self._run(work, write=True)

    def open_queue(self, session_id: str, /) -> SqliteQueue:
        """The queue of an existing session."""
        self._check_there(session_id)

        def work(access: Access) -> SqliteQueue:
            with classify_errors(f"The file {str(self.path)!r} cannot be read"):
                return SqliteQueue(access, self._find_row(session_id, access))

        return self._run(work, write=True)

    def follow(self, session_id: str, hear: Callable[[bytes | None], None], /) -> SqliteFollowing:
        """Hear what the present writer of an existing session broadcasts."""
        self._check_there(session_id)

        def work(access: Access) -> SqliteFollowing:
            with classify_errors(f"The file {str(self.path)!r} cannot be read"):
                return SqliteFollowing(access, self._find_row(session_id, access), hear)

        return self._run(work, write=False)

    def has_writer(self, session_id: str, /) -> bool:
        """Whether a process has the lock of the session."""
        self._check_there(session_id)

        def work(access: Access) -> bool:
            with access, classify_errors(f"The file {str(self.path)!r} cannot be read"):
                return access.is_locked(self._find_row(session_id, access))

        return self._run(work, write=False)

    def list(self) -> Sequence[Summary]:
        """The sessions, the last used first."""

        def work(access: Access) -> list[Summary]:
            with (
                access,
                classify_errors(f"The file {str(self.path)!r} cannot be read"),
                read_transaction(access.connection),
            ):
                rows = read_sessions(access.connection)
                return [_make_summary(access.connection, row) for row in sorted(rows, key=_get_recency, reverse=True)]

        return self._run(work, write=False) if self._exists() else []

    def delete(self, session_id: str, /) -> None:
        """Remove a session for good."""
        handle = self.open(session_id)
        try:
            handle.erase()
        finally:
            handle.close()

    def _check_there(self, session_id: str) -> None:
        check_session_id(session_id)
        if not self._exists():
            raise SessionNotFound(f"No session {session_id!r}: there is no file {str(self.path)!r}.")

    def _find_row(self, session_id: str, access: Access) -> SessionRow:
        for row in read_sessions(access.connection):
            if row.id == session_id:
                return row
        # The session may have been lost, so the message says what is wrong with the file.
        problems = [*(problem.text for problem in access.problems), *read_warnings(access.connection)]
        raise SessionNotFound(" ".join([f"No session {session_id!r} in {str(self.path)!r}.", *problems]))

    def _exists(self) -> bool:
        try:
            if self.path.exists():
                check_regular_file(self.path)
                return True
            return make_companion_path(self.path, "-ready").exists()
        except OSError as error:
            raise StoreFailed(f"The file {str(self.path)!r} cannot be used: {error.strerror}.") from error

    def _run(self, work: Callable[[Access], _T], *, write: bool) -> _T:
        """Call `work` on the open file; where the file is damaged, rescue it and call `work` again."""
        try:
            return self._run_once(work, write=write)
        except Damage as damage:
            reason = str(damage)
        with self._exclude_others(reason, write=write):
            if not write:
                return self._run_on_copy(work)
            translate_os_errors(self.path, rescue, self.path, reason)
        try:
            return self._run_once(work, write=True)
        except Damage as damage:
            raise SessionDamaged(f"The file {str(self.path)!r} is damaged: {damage}.") from damage

    @contextmanager
    def _exclude_others(self, reason: str, *, write: bool) -> Generator[None]:
        """Hold the file exclusively: SQLite would lose its own locks if the file were read beside it."""
        locks = open_locks(self.path) if write else open_reader_locks(self.path)
        try:
            if locks is not None and locks.writable and not locks.try_lock(SHARED_LOCK):
                raise SessionBusy(
                    f"The file {str(self.path)!r} is damaged ({reason}), and others use it. It is rescued when it is "
                    "opened by one program alone: close it in the others first."
                )
            yield
        finally:
            if locks is not None:
                locks.close()

    def _run_once(self, work: Callable[[Access], _T], *, write: bool) -> _T:
        try:
            access = Access(self.path, write=write)
        except StoreFailed:
            if write or not os.access(self.path, os.R_OK) or os.access(self.path.parent, os.W_OK):
                raise
            return self._run_on_copy(work)  # SQLite needs to write beside a file, even to read it
        try:
            return work(access)
        except BaseException:
            access.close()
            raise

    def _run_on_copy(self, work: Callable[[Access], _T]) -> _T:
        """Call `work` on a copy, which may be changed and rescued."""
        folder = tempfile.TemporaryDirectory(prefix="steersman-")
        copy = Path(folder.name) / self.path.name
        try:
            translate_os_errors(self.path, copy_file, self.path, copy)
            given = SqliteStore(copy)._run(work, write=True)
        except SessionError as error:
            folder.cleanup()
            # The path of the copy would mean nothing to the caller.
            raise type(error)(str(error).replace(str(copy), str(self.path))) from error
        except BaseException:
            folder.cleanup()
            raise
        if isinstance(given, SqliteHandle):
            given.call_on_close(folder.cleanup)
        else:
            folder.cleanup()
        return given


def _check_session(access: Access, row: SessionRow) -> tuple[list[Lost], int]:
    """What is missing of a session, and the checksum of its last record; `Damage` for a loss that is new."""
    known = read_lost(access.connection, row.number)
    checked = (access.file_id, row.number, row.id, row.created)
    # A reader gets no record without its checksum anyway, so it need not look again at what was sound before.
    start = 0 if access.is_writer else min(_sound.get(checked, 0), row.last)
    seqs: list[int] = []
    link = 0
    for seq, checksum, _ in read_valid_rows(lambda: nullcontext(access.connection), row.number, start):
        seqs.append(seq)
        link = checksum if seq == row.last else 0
    found = [
        Lost(first, last, "Damaged, and left out.")
        for first, last in find_gaps(seqs, row.last, start)
        if not any(lost.first <= first and last <= lost.last for lost in known)
    ]
    if found and access.is_alone():
        raise Damage(", ".join(f"{lost.problem.where} of session {row.id!r}" for lost in found))
    if seqs[-1:] > [row.last]:
        raise Damage(f"session {row.id!r} has more records than it should")
    if access.is_writer and any(lost.last == ONCE for lost in known):
        with transaction(access.connection):
            access.connection.execute("DELETE FROM lost WHERE number = ? AND last = ?", (row.number, ONCE))
    if not found and not access.is_writer:
        _sound[checked] = row.last
        if len(_sound) > _MOST_SOUND:
            _sound.clear()
    return [*known, *found], link


def _make_summary(connection: sqlite3.Connection, row: SessionRow) -> Summary:
    lost = sum(lost.last - lost.first + 1 for lost in read_lost(connection, row.number) if lost.last > 0)
    return Summary(row.id, row.title, row.created, row.updated, row.last - lost)


def _get_recency(row: SessionRow) -> tuple[float, int]:
    return row.updated, row.number
