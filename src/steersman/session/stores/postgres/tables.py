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
    SELECT to_regclass('steersman_records')::oid::bigint, to_regclass('steersman_queue') IS NOT NULL,
           set_config('application_name', left(current_setting('application_name'), 40) || %(token)s, false),
           set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
           set_config('statement_timeout', %(timeout)s, false),
           set_config('idle_session_timeout', '0', false),
           set_config('tcp_keepalives_idle', '30', false),
           set_config('tcp_keepalives_interval', '10', false),
           set_config('tcp_keepalives_count', '3', false)
"""
# With a table that is always there: a statement that locks none does not see what was made since its transaction began.
FIND_TABLES: Final[LiteralString] = """
    SELECT to_regclass('steersman_records')::oid::bigint, to_regclass('steersman_queue') IS NOT NULL
    FROM pg_namespace WHERE nspname = 'pg_catalog'
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
    # What the first versions lacked: the epoch of the owner, and the queue.
    """
    ALTER TABLE steersman_sessions
        ADD COLUMN IF NOT EXISTS epoch bigint NOT NULL DEFAULT 0,
        ADD COLUMN IF NOT EXISTS queued bigint NOT NULL DEFAULT 0
    """,
    """
    CREATE TABLE IF NOT EXISTS steersman_queue (
        session bigint NOT NULL REFERENCES steersman_sessions ON DELETE CASCADE,
        number bigint NOT NULL,
        key bytea NOT NULL,
        checksum bigint NOT NULL,
        data bytea,
        PRIMARY KEY (session, number),
        UNIQUE (session, key)
    )
    """,
    """
    CREATE INDEX IF NOT EXISTS steersman_queue_waiting ON steersman_queue (session, number) WHERE data IS NOT NULL
    """,
)
CHANNEL: Final = "steersman_queue"
WATCH_CHANNEL: Final = "steersman_watch"
"""The beginning of the channels of those that follow a session."""
NOTIFY: Final[LiteralString] = """
    SELECT pg_notify(channel, payload)
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS sent (channel, payload, at) ORDER BY at
"""
CREATE: Final[LiteralString] = """
    INSERT INTO steersman_sessions (id, created, updated, title, last, epoch) VALUES (%s, %s, %s, '', 0, 1)
    ON CONFLICT (id) DO NOTHING RETURNING number, to_regclass('steersman_records')::oid::bigint
"""
# A session that others are to open, with its first records and what it is to hear first: no one can know it before the
# commit, so it needs no lock. Checksums have its number, so it is taken before: each statement takes that of the next
# one. A number is only good for the tables that it was taken from, which have their own counter.
_COUNTER: Final[LiteralString] = """
    WITH counter AS MATERIALIZED (
        SELECT pg_get_serial_sequence('steersman_sessions', 'number')::regclass AS id
    )
"""
NEXT_NUMBER: Final[LiteralString] = f"{_COUNTER} SELECT nextval(id), id::oid::bigint FROM counter"
CREATE_AND_QUEUE: Final[LiteralString] = f"""
    {_COUNTER}, made AS (
        INSERT INTO steersman_sessions (number, id, created, updated, title, last, epoch, queued)
        OVERRIDING SYSTEM VALUE
        SELECT %(number)s::bigint, %(id)s::text, %(now)s::float8, %(now)s::float8, '', %(last)s::bigint, 1, 1
        FROM counter WHERE counter.id::oid::bigint = %(counter)s
        ON CONFLICT (id) DO NOTHING RETURNING number
    ), recorded AS (
        INSERT INTO steersman_records (session, seq, checksum, data)
        SELECT made.number, added.seq, added.checksum, added.data FROM made,
               unnest(%(seqs)s::bigint[], %(checksums)s::bigint[], %(lines)b::bytea[]) AS added (seq, checksum, data)
    ), queued AS (
        INSERT INTO steersman_queue (session, number, key, checksum, data)
        SELECT number, 1, %(key)b, %(checksum)s, %(data)b FROM made
    )
    SELECT EXISTS (SELECT FROM made), nextval(counter.id), counter.id::oid::bigint FROM counter
"""
LOCK_SESSIONS: Final[LiteralString] = "LOCK TABLE steersman_sessions IN SHARE ROW EXCLUSIVE MODE"
# The table of the records may have been made anew since the connection was opened.
FIND: Final[LiteralString] = """
    SELECT number, last, to_regclass('steersman_records')::oid::bigint FROM steersman_sessions WHERE id = %s
"""
LAST: Final[LiteralString] = "SELECT last FROM steersman_sessions WHERE number = %s"
# Those that follow the session hear of the new owner in the order of the commits, so nothing later of a former one.
OWN: Final[LiteralString] = """
    WITH owned AS (
        UPDATE steersman_sessions SET epoch = epoch + 1 WHERE id = %s RETURNING number, last, epoch
    )
    SELECT number, last, epoch, pg_notify('steersman_watch_' || %s || '_' || number, epoch::text) FROM owned
"""
# The lock if it is free, and with it the owner: what an earlier one has committed before it let go of it is seen, since
# an UPDATE takes the last version of a row.
LOCK_AND_OWN: Final[LiteralString] = """
    WITH locked AS MATERIALIZED (
        SELECT pg_try_advisory_lock(%(key)s) AS had
    ), owned AS (
        UPDATE steersman_sessions SET epoch = epoch + 1 FROM locked
        WHERE locked.had AND id = %(id)s RETURNING number, last, epoch
    )
    SELECT locked.had, owned.number, owned.last, owned.epoch,
           CASE WHEN locked.had AND owned.number IS NOT NULL
                THEN pg_notify('steersman_watch_' || %(tables)s || '_' || owned.number, owned.epoch::text) END
    FROM locked LEFT JOIN owned ON true
"""
# After a takeover: whether this is still the owner, the last record, and a notice to the former owner.
TAKEN: Final[LiteralString] = "SELECT epoch, last, pg_notify(%s, %s) FROM steersman_sessions WHERE number = %s"

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
_PAGES: Final[LiteralString] = """
    steersman_sessions AS sessions LEFT JOIN LATERAL (
        SELECT seq, checksum, data, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before FROM (
            SELECT seq, checksum, data FROM steersman_records
            WHERE session = sessions.number AND seq > %(after)s ORDER BY seq LIMIT %(rows)s
        ) AS found
    ) AS page ON page.before < %(bytes)s
"""
PAGE: Final[LiteralString] = f"""
    SELECT sessions.last, page.seq, page.checksum, page.data FROM {_PAGES}
    WHERE sessions.number = %(number)s ORDER BY page.seq
"""
# The same with what `FIND` finds, for one that is to read the session anyway.
FIND_AND_READ: Final[LiteralString] = f"""
    SELECT sessions.number, to_regclass('steersman_records')::oid::bigint,
           sessions.last, page.seq, page.checksum, page.data FROM {_PAGES}
    WHERE sessions.id = %(id)s ORDER BY page.seq
"""
# Only after the record it was meant to follow, and only by the owner: both are judged in the same statement.
_APPEND: Final[LiteralString] = """
    WITH changed AS (
        UPDATE steersman_sessions SET
            last = {last},
            updated = greatest(updated, {updated}),
            title = CASE title WHEN '' THEN {title} ELSE title END
        WHERE number = {number} AND last = {after} AND epoch = {epoch} RETURNING number
    ), heard AS (
        UPDATE steersman_queue SET data = NULL, checksum = 0 FROM changed
        WHERE session = changed.number AND steersman_queue.number = ANY({heard})
    )
    INSERT INTO steersman_records (session, seq, checksum, data)
    SELECT changed.number, added.seq, added.checksum, added.data
    FROM changed, unnest({seqs}, {checksums}, {data}) AS added (seq, checksum, data)
"""
APPEND: Final[LiteralString] = _APPEND.format(
    last="%(last)s", updated="%(updated)s", title="%(title)b", number="%(number)s", after="%(after)s",
    epoch="%(epoch)s", heard="%(heard)s::bigint[]", seqs="%(seqs)s::bigint[]", checksums="%(checksums)s::bigint[]",
    data="%(data)b::bytea[]",
)  # fmt: skip
PREPARED_APPEND: Final = "steersman_append"
PREPARE_APPEND: Final[LiteralString] = (
    "PREPARE steersman_append (bigint, bigint, bigint, bigint, float8, bytea, bigint[], bigint[], bigint[], bytea[]) AS"
    + _APPEND.format(
        number="$1", epoch="$2", after="$3", last="$4", updated="$5", title="$6", heard="$7", seqs="$8",
        checksums="$9", data="$10",
    )
)  # fmt: skip
WRITTEN: Final[LiteralString] = (
    "SELECT seq, checksum FROM steersman_records WHERE session = %s AND seq > %s ORDER BY seq"
)
SET_TITLE: Final[LiteralString] = "UPDATE steersman_sessions SET title = %b WHERE number = %s AND epoch = %s"
DELETE: Final[LiteralString] = "DELETE FROM steersman_sessions WHERE number = %s AND epoch = %s"
EPOCH: Final[LiteralString] = "SELECT epoch FROM steersman_sessions WHERE number = %s"
# The row of the session is locked until the commit, so that numbers are committed in their order.
QUEUE: Final[LiteralString] = """
    WITH counted AS (
        UPDATE steersman_sessions SET queued = queued + 1 WHERE number = %(number)s RETURNING queued
    )
    INSERT INTO steersman_queue (session, number, key, checksum, data)
    SELECT %(number)s, queued, %(key)b, %(checksum)s, %(data)b FROM counted
    RETURNING number, pg_notify('steersman_queue', %(wake)s)
"""
QUEUED_KEY: Final[LiteralString] = "SELECT number FROM steersman_queue WHERE session = %s AND key = %b"
WAITING: Final[LiteralString] = """
    SELECT sessions.epoch, queue.number, queue.key, queue.checksum, queue.data FROM steersman_sessions AS sessions
    LEFT JOIN LATERAL (
        SELECT number, key, checksum, data FROM steersman_queue
        WHERE session = %(number)s AND number > %(after)s AND data IS NOT NULL ORDER BY number LIMIT %(rows)s
    ) AS queue ON true WHERE sessions.number = %(number)s ORDER BY queue.number
"""
HOLDERS: Final[LiteralString] = """
    SELECT classid::bigint << 32 | objid::bigint FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (classid::bigint << 32 | objid::bigint) = ANY(%s::bigint[])
"""
# The connection that holds the advisory lock of a session, by the two halves of its key.
TERMINATE_HOLDER: Final[LiteralString] = """
    SELECT pg_terminate_backend(pid, 2000) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (classid::bigint << 32 | objid::bigint) = %s AND pid <> pg_backend_pid()
"""


class Line(NamedTuple):
    """A record as it is kept."""

    seq: int
    checksum: int
    data: bytes


def hash_to_int64(text: str) -> int:
    """64 bits for a text, as PostgreSQL has them."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


def make_lock_key(place: str) -> int:
    """The key of the advisory lock of a session, by what a notification about it says."""
    return hash_to_int64(f"steersman {place}")


def compute_checksum(number: int, seq: int, data: bytes) -> int:
    """The checksum of a record, as its row holds it."""
    return int.from_bytes(blake2b(data, digest_size=8, key=struct.pack(">qq", number, seq)).digest(), signed=True)


def compute_queue_checksum(number: int, key: bytes, data: bytes) -> int:
    """The checksum of a queued row of the session with this number."""
    return int.from_bytes(
        blake2b(
            data, digest_size=8, key=struct.pack(">q", number), salt=blake2b(key, digest_size=16).digest()
        ).digest(),
        signed=True,
    )


def check_queued(session: int, number: int, key: bytes, checksum: int, data: bytes) -> tuple[int, bytes]:
    """A row of the queue; one with a wrong checksum has no data."""
    return number, data if checksum == compute_queue_checksum(session, key, data) else b""


def split_groups(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Split the lines into groups that fit into one statement."""
    start = size = 0
    for index, line in enumerate(lines):
        if size and size + len(line.data) > _STATEMENT_BYTES:
            yield lines[start:index]
            start, size = index, 0
        size += len(line.data)
    if start < len(lines):
        yield lines[start:]
