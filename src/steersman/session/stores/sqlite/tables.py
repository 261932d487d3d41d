"""The tables of a file of sessions. Every row has a checksum and every session its last number, so no loss goes unseen.

A record's key is the number of its session and its own. `link` is the checksum of the record before it: where two
histories of a session got mixed up, it says which record belongs to which.
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

from steersman.session.stores.sqlite.pages import PAGE
from steersman.session.stores.store import NewerFormat, Problem, SessionDamaged, StoreFailed

MAJOR = 1
_MARK = 0x53544500  # "STE", and the major version: it stands beside SQLite's own, so that damage is not taken for news
_BUSY_SECONDS = 30.0
_CHUNK = 256
ALWAYS = 0
ONCE = -1
_SHIFT = 32
_TABLES = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
    title TEXT NOT NULL, last INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE records (key INTEGER PRIMARY KEY, link INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE lost (number INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, text TEXT NOT NULL);
"""
_THINGS = 4  # the tables above, and the one in which SQLite counts
NUMBERS = """
WITH RECURSIVE used (number) AS (
    SELECT (SELECT key >> 32 FROM records ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (SELECT key >> 32 FROM records WHERE key >= (used.number + 1) << 32 ORDER BY key LIMIT 1)
    FROM used WHERE used.number IS NOT NULL
) SELECT number FROM used WHERE number IS NOT NULL
"""
"""The numbers of the sessions that have records."""
# What SQLite says when the world around the file is at fault; anything else means the file is.
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
    """The file cannot be what was written."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session in its table; `last` is the number of its last record."""

    number: int
    id: str
    created: float
    updated: float
    title: str
    last: int

    @property
    def checksum(self) -> int:
        """What its row has to say of it."""
        return crc32(msgspec.json.encode((self.number, self.id, self.created, self.updated, self.title, self.last)))


@dataclass(frozen=True, slots=True)
class Lost:
    """Numbers of records that are known to be gone, or a word about the whole file: `ALWAYS`, or `ONCE` to the next."""

    first: int
    last: int
    text: str

    @property
    def problem(self) -> Problem:
        """What is told of it."""
        if self.last <= 0:
            return Problem("the file" if self.last == ALWAYS else "the end", self.text)
        where = f"record {self.first}" if self.first == self.last else f"records {self.first} to {self.last}"
        return Problem(where, self.text)


def record_key(number: int, seq: int) -> int:
    """The key of a record."""
    return number << _SHIFT | seq


def record_of(key: int) -> tuple[int, int]:
    """The number of the session and of the record."""
    return key >> _SHIFT, key & (1 << _SHIFT) - 1


def record_checksum(key: int, link: int, data: bytes) -> int:
    """What the row of a record has to say of it."""
    return crc32(data, crc32(struct.pack(">QI", key, link)))


@contextmanager
def judged(what: str) -> Generator[None]:
    """Tell trouble around the file, `StoreFailed`, from trouble in it, `Damage`."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise StoreFailed(f"{what}: {error}") from error
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _OUTSIDE:
            raise StoreFailed(f"{what}: {error}.") from error
        raise Damage(str(error)) from error
    except UnicodeDecodeError as error:  # the message of an error, with a piece of the file inside
        raise Damage("its tables are not what was written") from error


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection to a file that is ours, or empty: then somebody has to `make` its tables."""
    with judged(f"The file {str(path)!r} cannot be opened"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _check(connection, path)
            if write:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA secure_delete = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """An empty file is as good as one with tables; any other one has to say that it is ours."""
    mark, version, things = _identity(connection)
    if (mark, version, things) == (0, 0, 0):
        return
    if mark != _MARK + version or (version == MAJOR and things != _THINGS):
        raise Damage("it does not say what it is")
    if version != MAJOR:
        raise NewerFormat(
            f"The file {str(path)!r} was written in format {version}, and this version reads {MAJOR}; update it."
        )


def is_made(connection: sqlite3.Connection) -> bool:
    """Whether the file has its tables."""
    return _identity(connection)[2] != 0


def make(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file; two at once would be in each other's way."""
    if is_made(connection):
        return
    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA journal_mode = WAL")
    with transaction(connection):
        for statement in _TABLES.strip().split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_MARK + MAJOR}")
        connection.execute(f"PRAGMA user_version = {MAJOR}")


def _identity(connection: sqlite3.Connection) -> tuple[int, int, int]:
    with moment(connection):
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (things,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return mark, version, things


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All that is done inside, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def moment(connection: sqlite3.Connection) -> Generator[None]:
    """All that is read inside is of one moment, whatever others write."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def sessions_in(connection: sqlite3.Connection) -> list[SessionRow]:
    """The sessions of a file; `Damage` if one is not whole, or if there are records of none."""
    if not is_made(connection):
        return []
    found: list[SessionRow] = []
    with moment(connection):
        rows = connection.execute("SELECT number, id, created, updated, title, last, checksum FROM sessions").fetchall()
        numbers: set[int] = {number for (number,) in connection.execute(NUMBERS)}
    for *fields, checksum in rows:
        row = SessionRow(*fields)
        if checksum != row.checksum:
            raise Damage(f"the row of session {row.number} is not what was written")
        found.append(row)
    strays = numbers - {row.number for row in found}
    if strays:
        raise Damage(f"there are records of sessions that are not there: {sorted(strays)}")
    return found


def add(connection: sqlite3.Connection, row: SessionRow) -> None:
    """Write a new session's row."""
    connection.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row.number, row.id, row.created, row.updated, row.title, row.last, row.checksum),
    )


def change(connection: sqlite3.Connection, row: SessionRow) -> None:
    """Write what changed in a session's row."""
    connection.execute(
        "UPDATE sessions SET updated = ?, title = ?, last = ?, checksum = ? WHERE number = ?",
        (row.updated, row.title, row.last, row.checksum, row.number),
    )


def note(connection: sqlite3.Connection, number: int, lost: Lost) -> None:
    """Keep in mind what is gone of a session."""
    connection.execute("INSERT INTO lost VALUES (?, ?, ?, ?)", (number, lost.first, lost.last, lost.text))


def lost_in(connection: sqlite3.Connection, number: int) -> list[Lost]:
    """What is known to be gone of a session."""
    rows = connection.execute("SELECT first, last, text FROM lost WHERE number = ? ORDER BY first", (number,))
    return [Lost(*row) for row in rows]


def warnings_in(connection: sqlite3.Connection) -> list[str]:
    """What is to be said about the whole file."""
    if not is_made(connection):
        return []
    return [text for (text,) in connection.execute("SELECT DISTINCT text FROM lost WHERE last = 0 ORDER BY text")]


def whole_rows(
    turn: Callable[[], AbstractContextManager[sqlite3.Connection]], number: int, after: int
) -> Iterator[tuple[int, int, bytes]]:
    """The numbers, checksums and data of the records after one, without those whose checksum is wrong.

    The connection is used in short turns, and no transaction is left open in between.
    """
    key = record_key(number, after)
    last = record_key(number + 1, 0)
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
            if is_record(key, link, checksum, data):
                yield record_of(key)[1], checksum, data
        if len(rows) < _CHUNK:
            return


def is_record(key: object, link: object, checksum: object, data: object) -> bool:
    """Whether these are the columns of a record that is whole."""
    return (
        isinstance(key, int)
        and isinstance(link, int)
        and isinstance(data, bytes)
        and 0 <= link < 1 << 32
        and 0 <= key < 1 << 63
        and checksum == record_checksum(key, link, data)
    )


def nothing_left(path: Path) -> SessionDamaged:
    """What is raised when there is not a single row."""
    return SessionDamaged(
        f"The file {str(path)!r} is no file of sessions, or so damaged that nothing of it can be read."
    )
