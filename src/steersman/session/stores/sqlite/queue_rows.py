"""The rows of the queue of a file of sessions: any process adds them, and the writer of a session takes them out.

A number is given inside of the transaction that inserts it, so numbers are committed in their order. What was taken out
leaves its key and its number behind: the same key is never queued twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from zlib import crc32

import msgspec

from steersman.session.stores.sqlite.tables import is_current
from steersman.session.stores.store import QUEUE_PAGE


def read_epoch(connection: sqlite3.Connection, session: int) -> int | None:
    """The epoch of the owner of a session; `None` if there is no such session."""
    found: tuple[int] | None = connection.execute("SELECT epoch FROM sessions WHERE number = ?", (session,)).fetchone()
    return None if found is None else found[0]


def insert_queued(connection: sqlite3.Connection, session: int, key: str, data: bytes) -> tuple[int, bool]:
    """Insert a row, unless there is one with this key; its number, and whether it is new."""
    known: tuple[int] | None = connection.execute(
        "SELECT number FROM queue WHERE session = ? AND key = ?", (session, key)
    ).fetchone()
    if known is not None:
        return known[0], False
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'queue'").fetchone()
    row = (last + 1, session, key, data, compute_queue_checksum(last + 1, session, key, data))
    connection.execute("INSERT INTO queue VALUES (?, ?, ?, ?, ?)", row)
    return last + 1, True


def read_queued(connection: sqlite3.Connection, session: int, after: int) -> list[tuple[int, bytes]]:
    """The first rows that wait after a number; a row with a wrong checksum has no data."""
    if not is_current(connection):
        return []  # a file of format 1 that only a reader has open
    rows = connection.execute(
        "SELECT number, key, data, checksum FROM queue "
        "WHERE session = ? AND number > ? AND data IS NOT NULL ORDER BY number LIMIT ?",
        (session, after, QUEUE_PAGE),
    )
    return [
        (number, data if checksum == compute_queue_checksum(number, session, key, data) else b"")
        for number, key, data, checksum in rows
    ]


def remove_queued(connection: sqlite3.Connection, session: int, numbers: Iterable[int]) -> None:
    """Take rows out of the queue, because they are in the log; key and number stay."""
    connection.executemany(
        "UPDATE queue SET data = NULL, checksum = 0 WHERE session = ? AND number = ?",
        [(session, number) for number in numbers],
    )


def compute_queue_checksum(number: int, session: int, key: object, data: object) -> int:
    """The checksum of a row of the queue; 0 where it has no data."""
    if not isinstance(key, str) or not isinstance(data, bytes):
        return 0
    return crc32(data, crc32(msgspec.json.encode((number, session, key))))
