"""The rows beside those that are written: a write that would spoil one of them is taken back.

SQLite looks at the free space of a page only when it writes there, and believes what the page says about it. Whoever
reads a file sees nothing of damage in there, and the next row could be written over one that is whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from steersman.session.stores.sqlite.pages import PAGE
from steersman.session.stores.sqlite.tables import Damage, judged, record_key

REACH = 3 * PAGE
"""A page that overflows shares its rows with two others at most."""
LEAST = 489
"""So many bytes of a long row stay in its page, or more."""
_RECORDS = f"SELECT key, link, checksum, length(data), CASE WHEN length(data) < {PAGE} THEN data END FROM records"
_SESSIONS = "SELECT * FROM sessions"
_Rows: TypeAlias = list[tuple[Any, ...]]


@contextmanager
def undisturbed(connection: sqlite3.Connection, number: int, after: int, last: int) -> Generator[None]:
    """Write the row of a session and its records after a number up to another; `Damage` if others are not as before."""
    keys = record_key(number, after), record_key(number, last)
    before = _others(connection, number, *keys)
    yield
    if before != _others(connection, number, *keys):
        raise Damage("there are rows in what should be free space")


def _others(connection: sqlite3.Connection, number: int, first: int, last: int) -> _Rows:
    """The rows that can be in a page with these, as far as they are in that page."""
    return [
        *_reached(connection, f"{_RECORDS} WHERE key <= {first} ORDER BY key DESC"),
        *_reached(connection, f"{_RECORDS} WHERE key > {last} ORDER BY key"),
        *_reached(connection, f"{_SESSIONS} WHERE number < {number} ORDER BY number DESC"),
        *_reached(connection, f"{_SESSIONS} WHERE number > {number} ORDER BY number"),
    ]


def _reached(connection: sqlite3.Connection, select: str) -> Iterator[tuple[Any, ...]]:
    left = REACH
    try:
        with judged("The rows beside what is written cannot be read"):
            for found in connection.execute(select):
                row = found if found[-1] is not None else (*found, _start(connection, found[0]))
                yield row
                left -= min(sum(len(value) if isinstance(value, (str, bytes)) else 4 for value in row), LEAST)
                if left < 0:
                    return
    except Damage:
        return  # known or not, it was there before, and is for whoever opens that session


def _start(connection: sqlite3.Connection, key: int) -> bytes:
    """What a page has of a long record: reading all of it could take long."""
    with connection.blobopen("records", "data", key, readonly=True) as blob:
        return blob.read(PAGE)
