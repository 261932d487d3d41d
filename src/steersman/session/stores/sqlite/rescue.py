"""Rescues a damaged file of sessions: copies the rows that SQL can still read to a fresh file, and keeps the old one.

Every copied row has a right checksum, and each gap is noted in the fresh file. For more than that there is SQLite's own
`.recover` command. The caller holds the file exclusively: no process has it open.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from steersman.session.records import decode
from steersman.session.stores.sqlite.queue_rows import compute_queue_checksum
from steersman.session.stores.sqlite.tables import (
    ALWAYS,
    Damage,
    Lost,
    SessionRow,
    classify_errors,
    connect,
    create_tables,
    insert_lost,
    insert_session,
    is_valid_record,
    make_key,
    make_unreadable_error,
    split_key,
    transaction,
)
from steersman.session.stores.sqlite.wal import PAGE_SIZE, LogState, check_log
from steersman.session.stores.store import Problem, StoreFailed, is_session_id

_HEAD = b"SQLite format 3\0" + PAGE_SIZE.to_bytes(2, "big")
_FRACTIONS = bytes((0, 64, 32, 32))
# After so many keys in a row that SQLite cannot read, the rest of a session counts as lost.
_MAX_MISSES = 20_000
_SESSIONS = (
    "SELECT number, id, created, updated, title, last, {epoch}, checksum FROM sessions "
    "WHERE number >= ? AND number <= ? ORDER BY number"
)
_QUEUE = "SELECT number, session, key, data, checksum FROM queue WHERE number >= ? AND number <= ? ORDER BY number"
_RECORDS = "SELECT key, link, checksum, data FROM records WHERE key >= ? AND key <= ? ORDER BY key"
_FIRST_KEY = "SELECT key FROM records WHERE key >= ? ORDER BY key LIMIT 1"
_LAST_KEY = "SELECT key FROM records WHERE key < ? ORDER BY key DESC LIMIT 1"


def make_companion_path(path: Path, ending: str) -> Path:
    """The companion file with this ending."""
    return path.with_name(path.name + ending)


def find_free_name(path: Path, ending: str) -> Path:
    """A name beside a file that does not exist yet."""
    return next(
        name for count in itertools.count(1) if not (name := make_companion_path(path, f"{ending}-{count}")).exists()
    )


def examine_file(path: Path) -> LogState:
    """The state of the write-ahead log; raises `Damage` where the file's header or its log is not what was written."""
    if make_companion_path(path, "-ready").exists():
        raise Damage("a rescue was interrupted")
    log = check_log(_read_bytes(make_companion_path(path, "-wal")))
    with path.open("rb") as file:
        head = file.read(24)
    if head and (head[:18] != _HEAD or head[18:20] not in (b"\1\1", b"\2\2") or head[20:] != _FRACTIONS):
        raise Damage("its first bytes are not what was written")
    if not head and log.tail:
        # SQLite would delete the log of an empty file.
        raise Damage("it is empty, but its write-ahead log is not")
    if log.is_broken:
        raise Damage(f"its write-ahead log is broken, and {log.lost_commits} commits in it cannot be read")
    return log


def copy_file(path: Path, to: Path) -> None:
    """Copy a file and its write-ahead log; where a rescue was interrupted, copy the fresh file."""
    ready = make_companion_path(path, "-ready")
    if ready.exists():
        shutil.copyfile(ready, to)
        return
    shutil.copyfile(path, to)
    if make_companion_path(path, "-wal").exists():
        shutil.copyfile(make_companion_path(path, "-wal"), make_companion_path(to, "-wal"))


def set_torn_tail_aside(path: Path, log: LogState) -> Problem:
    """Cut a torn tail off the write-ahead log and keep it in a file of its own."""
    wal = make_companion_path(path, "-wal")
    kept = find_free_name(path, ".torn")
    _write(kept, _read_bytes(wal)[log.end : log.tail])
    os.truncate(wal, log.end)
    return describe_torn_tail(log, f"; they are kept in {kept.name!r}")


def describe_torn_tail(log: LogState, where: str = "") -> Problem:
    """The problem to report for a torn tail."""
    return Problem(
        "the end", f"{log.tail - log.end} bytes that were being written when the program ended are left out{where}."
    )


def finish_rescue(path: Path) -> None:
    """Finish a rescue that was interrupted: the fresh file is complete and only has to be renamed."""
    ready = make_companion_path(path, "-ready")
    if not ready.exists():
        return
    # The write-ahead log of the damaged file must never be applied to the fresh one, so it goes first.
    for ending in ("-wal", "-shm"):
        make_companion_path(path, ending).unlink(missing_ok=True)
    ready.replace(path)
    fsync_folder(path.parent)


def rescue(path: Path, reason: str, known: SessionRow | None = None) -> None:
    """Replace a damaged file by a fresh one with all rows that SQL can read; raises `SessionDamaged` if it reads none.

    `known` is the row of the session that the caller has open: it counts more than the row in the file.
    """
    if make_companion_path(path, "-ready").exists():
        finish_rescue(path)
        return
    fresh = make_companion_path(path, "-fresh")
    for ending in ("", "-wal", "-shm"):
        make_companion_path(fresh, ending).unlink(missing_ok=True)
    kept = find_free_name(path, ".damaged")
    text = (
        f"The file was damaged ({reason}). What SQLite can still read was copied to a fresh file; the damaged one is "
        f"kept as {kept.name!r}. To look for more in it, use `sqlite3 {kept.name} .recover`."
    )
    try:
        shutil.copy2(path, kept)
        if make_companion_path(path, "-wal").exists():
            shutil.copy2(make_companion_path(path, "-wal"), make_companion_path(kept, "-wal"))
        _copy_rows(path, fresh, text, known)
        for file in (fresh, kept):
            _fsync(file)
        fresh.replace(make_companion_path(path, "-ready"))
    except BaseException:
        # An incomplete copy is of no use, and would be in the way of the next attempt.
        for ending in ("", "-wal"):
            make_companion_path(kept, ending).unlink(missing_ok=True)
        raise
    finally:
        fresh.unlink(missing_ok=True)
    fsync_folder(path.parent)
    finish_rescue(path)


def _copy_rows(path: Path, fresh: Path, text: str, known: SessionRow | None) -> None:
    """Write every valid row that SQL can read to a new file."""
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with (
        classify_errors(f"The file {str(path)!r} is damaged, and there is no place to copy it to"),
        closing(connect(fresh, write=True)) as target,
        closing(_open_damaged(path)) as source,
    ):
        create_tables(target)
        with transaction(target):
            highest = _find_highest_number(source)
            sessions = _read_sessions(source, highest)
            is_ours = bool(sessions)
            if known is not None:
                sessions[known.number] = known
            numbers = _find_numbers(source, highest) | sessions.keys()
            copied = {number for number in numbers if _copy_records(source, target, number, sessions.get(number))}
            if not is_ours and not copied:
                raise make_unreadable_error(path)
            for number in sorted(sessions.keys() | copied):
                _finish_session(target, number, sessions, text)
            _copy_queue(source, target)
    if _read_bytes(make_companion_path(fresh, "-wal")):
        raise StoreFailed(f"The file {str(path)!r} is damaged, and its copy could not be finished.")


def _open_damaged(path: Path) -> sqlite3.Connection:
    """A connection to a damaged file that changes nothing in it.

    No row can be longer than the file, so SQLite does not reserve memory for a length that damage made up.
    """
    if not path.stat().st_size:
        raise make_unreadable_error(path)  # SQLite would delete the log of an empty file
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    longest = path.stat().st_size + len(_read_bytes(make_companion_path(path, "-wal")))
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(longest, 1_000_000))
    return connection


def _try_query(source: sqlite3.Connection, query: str, *values: int) -> int | None:
    """The one number that a query gives; `None` where SQLite cannot read it."""
    try:
        with classify_errors("The damaged file cannot be read"):
            row: tuple[Any] | None = source.execute(query, values).fetchone()
    except Damage:
        return None
    return row[0] if row is not None and isinstance(row[0], int) else None


def _scan(source: sqlite3.Connection, query: str, first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """The rows with keys from `first` to `last` in order; keys that SQLite cannot read are passed over one by one."""
    misses = 0
    while first <= last and misses < _MAX_MISSES:
        try:
            with classify_errors("The damaged file cannot be read"):
                for row in source.execute(query, (first, last)):
                    if not isinstance(row[0], int) or not first <= row[0] <= last:
                        raise Damage("its rows are out of order")
                    first, misses = row[0] + 1, 0
                    yield row
            return
        except Damage:
            first += 1
            misses += 1


def _find_highest_number(source: sqlite3.Connection) -> int:
    """The highest number that a session can have."""
    counted = _try_query(source, "SELECT seq FROM sqlite_sequence WHERE name = 'sessions'")
    stored = _try_query(source, "SELECT number FROM sessions ORDER BY number DESC LIMIT 1")
    used = _try_query(source, _LAST_KEY, (1 << 63) - 1)
    return max(counted or 0, stored or 0, split_key(used or 0)[0])


def _read_sessions(source: sqlite3.Connection, highest: int) -> dict[int, SessionRow]:
    """The valid rows of the table of sessions by their numbers."""
    # Format 1 has no epoch.
    epoch = (
        "0" if _try_query(source, "SELECT count(epoch) FROM (SELECT epoch FROM sessions LIMIT 0)") is None else "epoch"
    )
    rows = map(_parse_session_row, _scan(source, _SESSIONS.format(epoch=epoch), 1, highest))
    return {row.number: row for row in rows if row is not None}


def _parse_session_row(columns: tuple[Any, ...]) -> SessionRow | None:
    match columns:
        case (
            int(number),
            str(id),
            int() | float() as created,
            int() | float() as updated,
            str(title),
            int(last),
            int(epoch),
            _,
        ):
            row = SessionRow(number, id, float(created), float(updated), title, last, epoch)
            return row if row.checksum == columns[-1] else None
        case _:
            return None


def _find_numbers(source: sqlite3.Connection, highest: int) -> set[int]:
    """The numbers of the sessions that have records."""
    found: set[int] = set()
    number, misses = 1, 0
    while number <= highest and misses < _MAX_MISSES:
        # From both ends: one of them may be on a page that SQLite cannot read.
        first = _try_query(source, _FIRST_KEY, make_key(number, 0)) or 0
        last = _try_query(source, _LAST_KEY, make_key(number + 1, 0)) or 0
        next_number = max(split_key(first)[0], split_key(last)[0])
        if next_number < number:
            number, misses = number + 1, misses + 1
            continue
        found.add(next_number)
        number, misses = next_number + 1, 0
    return found


def _copy_records(source: sqlite3.Connection, target: sqlite3.Connection, number: int, row: SessionRow | None) -> bool:
    """Copy the valid records of a session; whether there is at least one."""
    end = _try_query(source, _LAST_KEY, make_key(number + 1, 0)) or 0
    if row is not None:
        end = max(end, make_key(number, row.last))
    rows = (found for found in _scan(source, _RECORDS, make_key(number, 1), end) if is_valid_record(*found))
    return target.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", rows).rowcount > 0


def _copy_queue(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy the valid rows of the queue: what waits, and the keys of what was heard."""
    last = _try_query(source, "SELECT seq FROM sqlite_sequence WHERE name = 'queue'") or 0
    stored = _try_query(source, "SELECT number FROM queue ORDER BY number DESC LIMIT 1") or 0
    for number, session, key, data, checksum in _scan(source, _QUEUE, 1, max(last, stored)):
        if isinstance(session, int) and checksum == compute_queue_checksum(number, session, key, data):
            target.execute("INSERT OR IGNORE INTO queue VALUES (?, ?, ?, ?, ?)", (number, session, key, data, checksum))


def _finish_session(connection: sqlite3.Connection, number: int, sessions: dict[int, SessionRow], text: str) -> None:
    """Leave one history of a session, insert its row, and note what is lost."""
    keys = (make_key(number, 0), make_key(number + 1, 0))
    found = connection.execute("SELECT key, link, checksum FROM records WHERE key > ? AND key < ? ORDER BY key", keys)
    kept, foreign = _split_histories(found.fetchall())
    connection.executemany("DELETE FROM records WHERE key = ?", ((key,) for key in foreign))
    seqs = [split_key(key)[1] for key in kept]
    row = sessions.get(number)
    if row is None:
        used_ids = {other.id for other in sessions.values()}
        row = sessions[number] = _make_session_row(connection, number, make_key(number, seqs[0]), used_ids)
    row = replace(row, last=max([row.last, *seqs[-1:]]))
    insert_session(connection, row)
    insert_lost(connection, number, Lost(ALWAYS, ALWAYS, text))
    for first, last in find_gaps(seqs, row.last):
        insert_lost(connection, number, Lost(first, last, "Lost when the file was damaged."))


def _split_histories(rows: Iterable[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """The keys in order, and separately the keys of records that follow another record than the one that is there."""
    kept: list[int] = []
    foreign: list[int] = []
    last: tuple[int, int] | None = None
    into = kept
    for key, link, checksum in rows:
        if last is None or last[0] != key - 1:
            into = kept
        elif into is kept:
            into = kept if link in (last[1], 0) else foreign
        else:
            into = foreign if link == last[1] else kept
        into.append(key)
        last = (key, checksum)
    return kept, foreign


def _make_session_row(connection: sqlite3.Connection, number: int, key: int, used_ids: set[str]) -> SessionRow:
    """The row of a session that lost its own, from its first record."""
    (data,) = connection.execute("SELECT data FROM records WHERE key = ?", (key,)).fetchone()
    first = decode(data)
    id = first.payload.get("session_id")
    if first.type != "session" or not is_session_id(id) or id in used_ids:
        id = f"recovered-{number}"
    return SessionRow(number, str(id), first.time, first.time, "", 0)


def find_gaps(seqs: Iterable[int], last: int, after: int = 0) -> Iterator[tuple[int, int]]:
    """The ranges of numbers behind `after`, up to `last`, that are not among these, which are in order."""
    expected = after + 1
    for seq in seqs:
        if seq > expected:
            yield expected, seq - 1
        expected = seq + 1
    if expected <= last:
        yield expected, last


def fsync_folder(folder: Path) -> None:
    """Make sure that files created or renamed in a folder stay so after a crash."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(file)


def _fsync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
