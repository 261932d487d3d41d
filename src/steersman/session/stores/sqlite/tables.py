"""The tables of a file of sessions. Every row has a checksum and every session its last number, so loss is noticed.

The key of a record is made of the number of its session and its own. `link` is the checksum of the record before it:
where two histories of a session got mixed up, it says which record belongs to which. The queue has what other processes
want the writer of a session to hear; once that is in the log, its key and its number stay, and its data goes.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from steersman.session.stores.sqlite.wal import PAGE_SIZE
from steersman.session.stores.store import NewerFormat, Problem, SessionDamaged, StoreFailed, describe_range

MAJOR = 2
_MARK = 0x53544500  # "STE" and the major version, which user_version repeats: damage is not taken for a newer version
_BUSY_SECONDS = 30.0
_CHUNK = 256
ALWAYS = 0
ONCE = -1
_SHIFT = 32
_TABLES = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
    title TEXT NOT NULL, last INTEGER NOT NULL, checksum INTEGER NOT NULL, epoch INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE records (key INTEGER PRIMARY KEY, link INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE lost (number INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, text TEXT NOT NULL);
"""
_QUEUE = """
CREATE TABLE queue (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER NOT NULL, key TEXT NOT NULL, data BLOB,
    checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX queue_keys ON queue (session, key);
CREATE INDEX queue_waiting ON queue (session, number) WHERE data IS NOT NULL;
"""
# Format 1 had no queue and no epoch.
_MIGRATE = "ALTER TABLE sessions ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;\n"
_OBJECTS = {1: 4, MAJOR: 7}  # the tables and indexes above, and sqlite_sequence
_NUMBERS = """
WITH RECURSIVE used (number) AS (
    SELECT (SELECT key >> 32 FROM records ORDER BY key LIMIT 1)
    UNION
    SELECT (SELECT key >> 32 FROM records WHERE key >= (used.number + 1) << 32 ORDER BY key LIMIT 1)
    FROM used WHERE used.number IS NOT NULL
) SELECT number FROM used WHERE number IS NOT NULL
"""
"""The numbers of the sessions that have records. With UNION it ends also where the key after the last one overflows."""
# Error codes for trouble around the file; any other one means that the file is damaged.
_OUTSIDE = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    )
)


class Damage(Exception):
    """The file is not what was written."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session in its table; `last` is the number of its last record, `epoch` counts the takeovers."""

    number: int
    id: str
    created: float
    updated: float
    title: str
    last: int
    epoch: int = 0

    @property
    def checksum(self) -> int:
        """The checksum of the row; without a takeover it is that of format 1."""
        fields = (self.number, self.id, self.created, self.updated, self.title, self.last)
        return crc32(msgspec.json.encode((*fields, self.epoch) if self.epoch else fields))


@dataclass(frozen=True, slots=True)
class Lost:
    """Numbers of records that are known to be lost, or a note about the file, told `ALWAYS` or only `ONCE`."""

    first: int
    last: int
    text: str

    @property
    def problem(self) -> Problem:
        """The problem to report."""
        if self.last <= 0:
            return Problem("the file" if self.last == ALWAYS else "the end", self.text)
        return Problem(describe_range(self.first, self.last), self.text)


def make_key(number: int, seq: int) -> int:
    """The key of a record."""
    return number << _SHIFT | seq


def split_key(key: int) -> tuple[int, int]:
    """The number of the session and that of the record."""
    return key >> _SHIFT, key & (1 << _SHIFT) - 1


def compute_checksum(key: int, link: int, data: bytes) -> int:
    """The checksum of the row of a record."""
    return crc32(data, crc32(struct.pack(">QI", key, link)))


@contextmanager
def classify_errors(what: str) -> Generator[None]:
    """Turn errors of SQLite into `StoreFailed` for trouble around the file, and into `Damage` for trouble in it."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise StoreFailed(f"{what}: {error}") from error
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _OUTSIDE:
            raise StoreFailed(f"{what}: {error}.") from error
        raise Damage(str(error)) from error
    except UnicodeDecodeError as error:  # the text of an error may quote bytes of the file
        raise Damage("its tables are not what was written") from error


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection to a file of sessions, or to an empty file, which still needs `create_tables`."""
    with classify_errors(f"The file {str(path)!r} cannot be opened"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _check_identity(connection, path)
            if write:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA secure_delete = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def _check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `Damage` unless the file is empty or is marked as a file of sessions, and `NewerFormat` for a newer one."""
    mark, version, objects = _read_identity(connection)
    if (mark, version, objects) == (0, 0, 0):
        return
    if mark != _MARK + version or objects != _OBJECTS.get(version, objects):
        raise Damage("it does not say what it is")
    if version not in _OBJECTS:
        raise NewerFormat(
            f"The file {str(path)!r} was written in format {version}, and this version reads {MAJOR}; update it."
        )


def has_tables(connection: sqlite3.Connection) -> bool:
    """Whether the file has its tables."""
    return _read_identity(connection)[2] != 0


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the file has the tables of this format."""
    return _read_identity(connection)[1] == MAJOR


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty file, or those that one of format 1 lacks.

    The caller holds a lock: only one process may do this at a time.
    """
    if is_current(connection):
        return
    script = (_MIGRATE if has_tables(connection) else _TABLES) + _QUEUE
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    with transaction(connection):
        for statement in script.strip().split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_MARK + MAJOR}")
        connection.execute(f"PRAGMA user_version = {MAJOR}")


def _read_identity(connection: sqlite3.Connection) -> tuple[int, int, int]:
    with read_transaction(connection):
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return mark, version, objects


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """A write transaction: all that is done inside is committed, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Generator[None]:
    """A read transaction: all that is read inside comes from one snapshot, whatever others write."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def read_sessions(connection: sqlite3.Connection) -> list[SessionRow]:
    """The sessions of a file; raises `Damage` for a wrong checksum, and for records without a session."""
    found: list[SessionRow] = []
    with read_transaction(connection):
        _, version, objects = _read_identity(connection)
        if not objects:
            return []
        epoch = "epoch" if version == MAJOR else "0"
        rows = connection.execute(
            f"SELECT number, id, created, updated, title, last, {epoch}, checksum FROM sessions"
        ).fetchall()
        numbers: set[int] = {number for (number,) in connection.execute(_NUMBERS)}
    for *fields, checksum in rows:
        row = SessionRow(*fields)
        if checksum != row.checksum:
            raise Damage(f"the row of session {row.number} is not what was written")
        found.append(row)
    strays = numbers - {row.number for row in found}
    if strays:
        raise Damage(f"there are records of sessions that are missing: {sorted(strays)}")
    return found


def insert_session(connection: sqlite3.Connection, row: SessionRow) -> None:
    """Insert the row of a new session."""
    connection.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (row.number, row.id, row.created, row.updated, row.title, row.last, row.checksum, row.epoch),
    )


def update_session(connection: sqlite3.Connection, row: SessionRow) -> None:
    """Update the row of a session."""
    connection.execute(
        "UPDATE sessions SET updated = ?, title = ?, last = ?, checksum = ?, epoch = ? WHERE number = ?",
        (row.updated, row.title, row.last, row.checksum, row.epoch, row.number),
    )


def insert_lost(connection: sqlite3.Connection, number: int, lost: Lost) -> None:
    """Note what is lost of a session."""
    connection.execute("INSERT INTO lost VALUES (?, ?, ?, ?)", (number, lost.first, lost.last, lost.text))


def read_lost(connection: sqlite3.Connection, number: int) -> list[Lost]:
    """What is known to be lost of a session."""
    rows = connection.execute("SELECT first, last, text FROM lost WHERE number = ? ORDER BY first", (number,))
    return [Lost(*row) for row in rows]


def read_warnings(connection: sqlite3.Connection) -> list[str]:
    """The notes about the whole file."""
    if not has_tables(connection):
        return []
    return [text for (text,) in connection.execute("SELECT DISTINCT text FROM lost WHERE last = 0 ORDER BY text")]


def read_valid_rows(
    turn: Callable[[], AbstractContextManager[sqlite3.Connection]], number: int, after: int
) -> Iterator[tuple[int, int, bytes]]:
    """The numbers, checksums and data of the records after a number, without those whose checksum is wrong.

    `turn` lends the connection for one short query at a time; no transaction is left open in between.
    """
    key = make_key(number, after)
    last = make_key(number + 1, 0)
    while True:
        with turn() as connection:
            rows: list[tuple[Any, ...]] = connection.execute(
                "SELECT key, link, checksum, data FROM records WHERE key > ? AND key < ? ORDER BY key LIMIT ?",
                (key, last, _CHUNK),
            ).fetchall()
        for found, link, checksum, data in rows:
            if not isinstance(found, int) or not key < found < last:
                raise Damage("its records are out of order")
            key = found
            if is_valid_record(key, link, checksum, data):
                yield split_key(key)[1], checksum, data
        if len(rows) < _CHUNK:
            return


def is_valid_record(key: object, link: object, checksum: object, data: object) -> bool:
    """Whether these are the columns of a record with the right checksum."""
    return (
        isinstance(key, int)
        and isinstance(link, int)
        and isinstance(data, bytes)
        and 0 <= link < 1 << 32
        and 0 <= key < 1 << 63
        and checksum == compute_checksum(key, link, data)
    )


def make_unreadable_error(path: Path) -> SessionDamaged:
    """The error for a file of which SQLite can read no session and no record."""
    return SessionDamaged(
        f"The file {str(path)!r} is no file of sessions, or so damaged that nothing of it can be read. It was left as "
        f"it is; if it was one, try `sqlite3 {path.name} .recover`."
    )
