"""The tables of sessions in a PostgreSQL database, and every statement about them.

Texts are kept as bytes: they do not depend on the encoding of the database, and no text type accepts all of them (NUL).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, LiteralString, NamedTuple

_STATEMENT_BYTES = 16_000_000

CONFIGURE: Final[LiteralString] = """
    SELECT to_regclass('steersman_records')::oid::bigint,
           set_config('application_name', left(current_setting('application_name'), 40) || %(token)s, false),
           set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
           set_config('statement_timeout', %(timeout)s, false),
           set_config('idle_session_timeout', '0', false),
           set_config('tcp_keepalives_idle', '30', false),
           set_config('tcp_keepalives_interval', '10', false),
           set_config('tcp_keepalives_count', '3', false)
"""
LOCK_TIMEOUT: Final[LiteralString] = (
    "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', '0', true)"
)
TABLES: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE IF NOT EXISTS steersman_sessions (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text COLLATE "C" NOT NULL UNIQUE,
        created double precision NOT NULL,
        updated double precision NOT NULL,
        title bytea NOT NULL,
        last bigint NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS steersman_records (
        session bigint NOT NULL REFERENCES steersman_sessions ON DELETE CASCADE,
        seq bigint NOT NULL,
        checksum bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (session, seq)
    )
    """,
)
CREATE: Final[LiteralString] = """
    INSERT INTO steersman_sessions (id, created, updated, title, last) VALUES (%s, %s, %s, '', 0)
    ON CONFLICT (id) DO NOTHING RETURNING number
"""
LOCK_SESSIONS: Final[LiteralString] = "LOCK TABLE steersman_sessions IN SHARE ROW EXCLUSIVE MODE"
FIND: Final[LiteralString] = "SELECT number, last FROM steersman_sessions WHERE id = %s"
LAST: Final[LiteralString] = "SELECT last FROM steersman_sessions WHERE number = %s"
LIST: Final[LiteralString] = """
    SELECT id, title, created, updated, last FROM steersman_sessions ORDER BY updated DESC, number DESC
"""
COUNT: Final[LiteralString] = "SELECT count(*) FROM steersman_records WHERE session = %(number)s AND seq <= %(last)s"
GAPS: Final[LiteralString] = """
    SELECT previous + 1, seq - 1 FROM (
        SELECT seq, lag(seq, 1, 0::bigint) OVER (ORDER BY seq) AS previous FROM (
            SELECT seq FROM steersman_records WHERE session = %(number)s
            UNION ALL SELECT %(last)s::bigint + 1
        ) AS numbers
    ) AS pairs WHERE seq > previous + 1 ORDER BY seq
"""
# The rows and their number in one look: what is added in between is not missing. The first row always comes, however
# long it is.
PAGE: Final[LiteralString] = """
    SELECT sessions.last, page.seq, page.checksum, page.data FROM steersman_sessions AS sessions LEFT JOIN LATERAL (
        SELECT seq, checksum, data, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before FROM (
            SELECT seq, checksum, data FROM steersman_records
            WHERE session = %(number)s AND seq > %(after)s ORDER BY seq LIMIT %(rows)s
        ) AS found
    ) AS page ON page.before < %(bytes)s WHERE sessions.number = %(number)s ORDER BY page.seq
"""
# Only after the record it was meant to follow; whether there is one is judged in the same statement.
APPEND: Final[LiteralString] = """
    WITH changed AS (
        UPDATE steersman_sessions SET
            last = %(last)s,
            updated = greatest(updated, %(updated)s),
            title = CASE title WHEN '' THEN %(title)b ELSE title END
        WHERE number = %(number)s AND last = %(after)s RETURNING number
    )
    INSERT INTO steersman_records (session, seq, checksum, data)
    SELECT changed.number, added.seq, added.checksum, added.data
    FROM changed, unnest(%(seqs)s::bigint[], %(checksums)s::bigint[], %(data)b::bytea[]) AS added (seq, checksum, data)
"""
WRITTEN: Final[LiteralString] = (
    "SELECT seq, checksum FROM steersman_records WHERE session = %s AND seq > %s ORDER BY seq"
)
SET_TITLE: Final[LiteralString] = "UPDATE steersman_sessions SET title = %b WHERE number = %s"
DELETE: Final[LiteralString] = "DELETE FROM steersman_sessions WHERE number = %s"


class Line(NamedTuple):
    """A record as it is kept."""

    seq: int
    checksum: int
    data: bytes


def compute_checksum(number: int, seq: int, data: bytes) -> int:
    """The checksum of a record, as its row holds it."""
    return int.from_bytes(blake2b(data, digest_size=8, key=struct.pack(">qq", number, seq)).digest(), signed=True)


def split_groups(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Split the lines into groups that fit into one statement."""
    start = size = 0
    for index, line in enumerate(lines):
        if size and size + len(line.data) > _STATEMENT_BYTES:
            yield lines[start:index]
            start, size = index, 0
        size += len(line.data)
    yield lines[start:]
