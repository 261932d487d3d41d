"""A file of sessions as a program leaves it that is killed, or that ends in good order; and what is in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steersman.session.records import Record
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import read_records
from steersman.testing.store_checks import make_record

NAME = "sessions.db"
WAL = f"{NAME}-wal"

Files = dict[str, bytes]


@dataclass(frozen=True)
class Snapshot:
    """The files, the records of each session, and how long the log was when each of them was acknowledged."""

    files: Files
    records: dict[str, list[Record]]
    acknowledged: list[tuple[int, str, int]]


def taken(folder: Path, *, killed: bool, groups: int) -> Snapshot:
    """Two sessions, written to in turns; long records now and then, which need pages of their own."""
    store = SqliteStore(folder / NAME)
    handles = {name: store.create(name) for name in ("a", "b")}
    records: dict[str, list[Record]] = {"a": [], "b": []}
    acknowledged: list[tuple[int, str, int]] = []
    for turn in range(groups):
        name = "ab"[turn % 2]
        first = len(records[name]) + 1
        group = [_record(name, seq, turn) for seq in range(first, first + 1 + turn % 3)]
        handles[name].append(group)
        records[name] += group
        acknowledged.append(((folder / WAL).stat().st_size, name, len(records[name])))
    files = contents(folder)
    for handle in handles.values():
        handle.close()
    return Snapshot(files if killed else contents(folder), records, acknowledged)


def _record(name: str, seq: int, turn: int) -> Record:
    if seq == 1:
        return make_record(1, type="session", session_id=name, format="1.0")
    return make_record(seq, session=name, text="word " * (2_000 if turn % 5 == 4 else 30))


def contents(folder: Path) -> Files:
    """The files that matter: not the lock, not what SQLite makes anew, and not an empty log."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-lock", "-shm"))}
    return {name: data for name, data in files.items() if data}


def laid_out(folder: Path, files: Files) -> SqliteStore:
    """A store of these files alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return SqliteStore(folder / NAME)


def found(store: SqliteStore, session_id: str, *, write: bool = True) -> tuple[list[Record], list[str]]:
    """The records of a session and what is told of it."""
    handle = store.open(session_id, write=write)
    try:
        return list(read_records(handle)), [f"{problem.where}: {problem.text}" for problem in handle.problems]
    finally:
        handle.close()


def appended(store: SqliteStore, session_id: str) -> Record:
    """One more record, after whatever is there."""
    handle = store.open(session_id)
    try:
        record = make_record(handle.last_seq + 1, later=True)
        handle.append([record])
        return record
    finally:
        handle.close()


@contextmanager
def quick_folder(tmp_path: Path) -> Generator[Path]:
    """A folder in memory where there is one: what is tried thousands of times need not reach a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)
