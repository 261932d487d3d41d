"""A damaged file of sessions is read page by page, what is whole is copied to a fresh one, and the damaged one is kept.

Whoever calls anything here is alone with the file: nobody in any process has it open.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from sqlite3 import Connection

from steersman.session.records import decode
from steersman.session.stores.sqlite.pages import PAGE, Frames, Pages, Row, Value, frames, rows
from steersman.session.stores.sqlite.tables import (
    ALWAYS,
    NUMBERS,
    Damage,
    Lost,
    SessionRow,
    add,
    connect,
    is_record,
    judged,
    make,
    note,
    nothing_left,
    record_key,
    record_of,
    transaction,
)
from steersman.session.stores.store import Problem, StoreFailed, is_session_id

_HEAD = b"SQLite format 3\0" + PAGE.to_bytes(2, "big")
_FRACTIONS = bytes((0, 64, 32, 32))


def beside(path: Path, ending: str) -> Path:
    """The file of this ending that belongs to a file."""
    return path.with_name(path.name + ending)


def free_name(path: Path, ending: str) -> Path:
    """A name beside a file that nothing has yet."""
    return next(name for count in itertools.count(1) if not (name := beside(path, f"{ending}-{count}")).exists())


def settle(path: Path) -> None:
    """Finish a salvage that was interrupted: its fresh file is whole, and only has to take its place."""
    ready = beside(path, "-ready")
    if not ready.exists():
        return
    # A log that belongs to the damaged file must never be applied to the fresh one, so it goes first.
    for ending in ("-wal", "-shm"):
        beside(path, ending).unlink(missing_ok=True)
    ready.replace(path)
    sync_folder(path.parent)


def examine(path: Path) -> Frames:
    """The log of a file, if the file and its log look like what was written; `Damage` if not."""
    if beside(path, "-ready").exists():
        raise Damage("a salvage was interrupted")
    log = frames(_bytes(beside(path, "-wal")))
    with path.open("rb") as file:
        head = file.read(24)
    if head and (head[:18] != _HEAD or head[18:20] not in (b"\1\1", b"\2\2") or head[20:] != _FRACTIONS):
        raise Damage("its first bytes are not what was written")
    if log.broken or (not head and log.tail):
        # SQLite would pass over a broken log, and throw away the log of an empty file.
        raise Damage("its write-ahead log is broken" if head else "it is empty, but its write-ahead log is not")
    return log


def duplicate(path: Path, to: Path) -> None:
    """Copy a file and its log, as a salvage that was interrupted left them."""
    ready = beside(path, "-ready")
    if ready.exists():
        shutil.copyfile(ready, to)
        return
    shutil.copyfile(path, to)
    if beside(path, "-wal").exists():
        shutil.copyfile(beside(path, "-wal"), beside(to, "-wal"))


def set_aside(path: Path, log: Frames) -> Problem:
    """Cut a torn tail off the log, and keep it in a file of its own."""
    wal = beside(path, "-wal")
    kept = free_name(path, ".torn")
    _write(kept, _bytes(wal)[log.end : log.tail])
    os.truncate(wal, log.end)
    return torn(log, f"; they are kept in {kept.name!r}")


def unfinished(log: Frames) -> dict[int, int]:
    """The sessions that were being written to where a log was torn, and how far they would have come; if it is sure."""
    found: dict[int, SessionRow] = {}
    for row in rows(log.beyond) if log.clean else ():
        session = _session_row(*row)
        if session is not None:
            found[session.number] = session
    return {number: session.last for number, session in found.items()}


def torn(log: Frames, where: str = "") -> Problem:
    """What is told of a torn tail."""
    return Problem(
        "the end", f"{log.tail - log.end} bytes that were being written when the program ended are left out{where}."
    )


def salvage(path: Path, reason: str, known: SessionRow | None = None) -> None:
    """Put a fresh file with all that can be read in the place of a damaged one; `SessionDamaged` if nothing can.

    Who has a session open knows its row, whatever the file says.
    """
    if beside(path, "-ready").exists():
        settle(path)
        return
    fresh = beside(path, "-fresh")
    for ending in ("", "-wal", "-shm"):
        beside(fresh, ending).unlink(missing_ok=True)
    kept = free_name(path, ".damaged")
    log = _bytes(beside(path, "-wal"))
    text = f"The file was damaged ({reason}). What can be read was copied; the damaged one is kept as {kept.name!r}."
    try:
        _copy(path, frames(log), fresh, text, known)
        shutil.copy2(path, kept)
        if log:
            shutil.copy2(beside(path, "-wal"), beside(kept, "-wal"))
        for file in (fresh, kept):
            _sync(file)
        fresh.replace(beside(path, "-ready"))
    except BaseException:
        # What is not whole keeps nothing, and would be in the way of the next one who tries.
        for ending in ("", "-wal"):
            beside(kept, ending).unlink(missing_ok=True)
        raise
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)
    settle(path)


def _copy(path: Path, log: Frames, fresh: Path, text: str, known: SessionRow | None) -> None:
    """Write every row that is whole to a new file."""
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with (
        judged(f"The file {str(path)!r} is damaged, and there is no place to copy it to"),
        closing(connect(fresh, write=True)) as connection,
    ):
        make(connection)
        with transaction(connection):
            sessions: dict[int, SessionRow] = {}
            for row in _rows(path, log):
                _take(connection, row, sessions)
            numbers = {number for (number,) in connection.execute(NUMBERS)}
            if not sessions and not numbers:
                raise nothing_left(path)
            if known is not None:
                sessions[known.number] = known
            for number in sorted(sessions.keys() | numbers):
                _finish(connection, number, sessions, text)
    if _bytes(beside(fresh, "-wal")):
        raise StoreFailed(f"The file {str(path)!r} is damaged, and its copy could not be finished.")


def _rows(path: Path, log: Frames) -> Iterator[Row]:
    """Every row in the file and its log, then those in what follows a break of the log."""
    with path.open("rb") as file, ExitStack() as stack:
        empty = file.seek(0, os.SEEK_END) == 0
        main = b"" if empty else stack.enter_context(mmap(file.fileno(), 0, access=ACCESS_READ))
        yield from rows(Pages(main, log.committed))
        if log.broken:
            yield from rows(Pages(main, log.committed, log.beyond))


def _take(connection: Connection, row: Row, sessions: dict[int, SessionRow]) -> None:
    """Of two rows of one session, and of two records of one number, the first was read from the better place."""
    key, columns = row
    session = _session_row(key, columns)
    if session is not None:
        sessions.setdefault(key, session)
    elif len(columns) == 4 and is_record(key, *columns[1:]):
        connection.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)", (key, *columns[1:]))


def _session_row(key: int, columns: list[Value]) -> SessionRow | None:
    match columns:
        case [None, str(id), int() | float() as created, int() | float() as updated, str(title), int(last), checksum]:
            row = SessionRow(key, id, float(created), float(updated), title, last)
            return row if row.checksum == checksum else None
        case _:
            return None


def _finish(connection: Connection, number: int, sessions: dict[int, SessionRow], text: str) -> None:
    """Leave one history of a session, give it its row, and note what is lost."""
    keys = (record_key(number, 0), record_key(number + 1, 0))
    found = connection.execute("SELECT key, link, checksum FROM records WHERE key > ? AND key < ? ORDER BY key", keys)
    kept, strange = _one_history(found.fetchall())
    connection.executemany("DELETE FROM records WHERE key = ?", ((key,) for key in strange))
    seqs = [record_of(key)[1] for key in kept]
    row = sessions.get(number)
    if row is None:
        taken = {other.id for other in sessions.values()}
        row = sessions[number] = _made_up(connection, number, record_key(number, seqs[0]), taken)
    row = replace(row, last=max([row.last, *seqs[-1:]]))
    add(connection, row)
    note(connection, number, Lost(ALWAYS, ALWAYS, text))
    for first, last in gaps(seqs, row.last):
        note(connection, number, Lost(first, last, "Lost when the file was damaged."))


def _one_history(rows: Iterable[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """The keys in order, and apart from them those of records that follow another one than the one that is there."""
    kept: list[int] = []
    strange: list[int] = []
    last: tuple[int, int] | None = None
    into = kept
    for key, link, checksum in rows:
        if last is None or last[0] != key - 1:
            into = kept
        elif into is kept:
            into = kept if link in (last[1], 0) else strange
        else:
            into = strange if link == last[1] else kept
        into.append(key)
        last = (key, checksum)
    return kept, strange


def _made_up(connection: Connection, number: int, key: int, taken: set[str]) -> SessionRow:
    """The row of a session that lost its own, from its first record."""
    (data,) = connection.execute("SELECT data FROM records WHERE key = ?", (key,)).fetchone()
    first = decode(data)
    id = first.payload.get("session_id")
    if first.type != "session" or not is_session_id(id) or id in taken:
        id = f"recovered-{number}"
    return SessionRow(number, str(id), first.time, first.time, "", 0)


def gaps(seqs: Iterable[int], last: int) -> Iterator[tuple[int, int]]:
    """The numbers from 1 to the last that are not among these, which are in order."""
    expected = 1
    for seq in seqs:
        if seq > expected:
            yield expected, seq - 1
        expected = seq + 1
    if expected <= last:
        yield expected, last


def sync_folder(folder: Path) -> None:
    """See to it that what was made or renamed in a folder stays so."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _bytes(path: Path) -> bytes:
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


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
