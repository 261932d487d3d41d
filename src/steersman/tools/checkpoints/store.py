"""Where checkpoints are kept: one SQLite file for each workspace, readable only by its owner.

Each change of the store is one transaction with fsync, so that a kill at any moment leaves the old or the new state.
Contents are kept once, by their digest. A program holds a shared lock on a file beside the store while it uses it:
what tidies up takes the lock alone, and so never while another program runs.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steersman.tools.checkpoints.states import Change, Snapshot, State, encode_path
from steersman.tools.checkpoints.tables import DELETE_UNUSED, FORMAT, SCHEMA
from steersman.tools.confine.file_versions import digest
from steersman.tools.confine.own_files import protect_database

_BUSY_SECONDS = 30.0

_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(State)


class StoreError(Exception):
    """The store cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """The run that a call belongs to: its session, its id, and the last entry of the conversation before the call."""

    session: str
    run: str
    entry: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one prompt changed. It is `active` unless it was undone; `number` counts those of its session from 1."""

    id: int
    number: int
    place: Place
    time: float
    active: bool
    changes: Sequence[Change]
    unknown: Sequence[str]


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that was begun: of one path with its state before, or, without a path, of anything."""

    id: str
    place: Place
    path: str | None
    before: State | None


@dataclass(frozen=True, slots=True)
class Move:
    """Steps that take files from one state to another, begun and perhaps not finished."""

    id: int
    session: str
    targets: dict[int, bool]
    steps: Sequence[Change]


class Store:
    """The checkpoints of one workspace. All methods block, and may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        protect_database(path)
        self.lock = threading.RLock()
        self._guard = _open_private(path.with_name(f"{path.name}-lock"))
        self._depth = 0
        try:
            _create_private(path)
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            os.close(self._guard)
            raise

    def _prepare(self) -> None:
        try:
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA secure_delete=ON")  # what is removed may be a secret
            found: int = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, FORMAT):
                raise StoreError(f"{str(self.path)!r} was made by another version of this program ({found}).")
            if found == 0:
                self._db.execute("PRAGMA auto_vacuum=FULL")
                self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version={FORMAT}; COMMIT;")
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{str(self.path)!r} cannot be used: {error}.") from error
        self.is_alone = self._take_lock(exclusive=True)
        if not self.is_alone:
            self._take_lock(exclusive=False)

    def share(self) -> None:
        """Let other programs use the store, after tidying up alone."""
        self._take_lock(exclusive=False)
        self.is_alone = False

    def _take_lock(self, *, exclusive: bool) -> bool:
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError:
            return False
        except OSError:
            return False  # a file system without locks: nothing is tidied up there
        return True

    def close(self) -> None:
        """Close the store."""
        with self.lock:
            self._db.close()
            if self._guard >= 0:
                os.close(self._guard)
                self._guard = -1

    @contextmanager
    def write(self) -> Generator[None]:
        """Do what is written inside as one transaction: all of it, or nothing. It may be nested."""
        with self.lock:
            if self._depth == 0:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0 and self._db.in_transaction:  # a full disk ends it without our help
                    self._db.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._commit()

    def _commit(self) -> None:
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # Contents

    def has(self, name: str) -> bool:
        """Whether the store has a content."""
        with self.lock:
            return self._db.execute("SELECT 1 FROM contents WHERE digest=?", (name,)).fetchone() is not None

    def keep(self, name: str, data: bytes) -> None:
        """Store a content, unless it is there already."""
        self._db.execute("INSERT OR IGNORE INTO contents VALUES (?, ?, ?)", (name, len(data), data))

    def read(self, name: str) -> bytes | None:
        """Read a content; `None` if it is missing or damaged."""
        with self.lock:
            row = self._db.execute("SELECT data FROM contents WHERE digest=?", (name,)).fetchone()
        return row[0] if row is not None and digest(row[0]) == name else None

    def count_bytes(self) -> int:
        """How many bytes all contents have together."""
        with self.lock:
            return int(self._db.execute("SELECT coalesce(sum(size), 0) FROM contents").fetchone()[0])

    # The last look at the workspace

    def load_snapshot(self) -> Snapshot:
        """Load the last look at the workspace."""
        found = Snapshot()
        with self.lock:
            for path, stamp, state in self._db.execute("SELECT path, stamp, state FROM files"):
                found.states[os.fsdecode(path)] = _decoder.decode(state)
                if stamp is not None:
                    found.stamps[os.fsdecode(path)] = stamp
            found.skipped = {os.fsdecode(path): stamp for path, stamp in self._db.execute("SELECT * FROM skipped")}
        return found

    def save_snapshot(self, old: Snapshot, new: Snapshot) -> None:
        """Save a look at the workspace in place of the one before."""
        gone = [(encode_path(path),) for path in old.states if path not in new.states]
        fresh = [
            (encode_path(path), new.stamps.get(path), _encoder.encode(state).decode())
            for path, state in new.states.items()
            if old.states.get(path) != state or old.stamps.get(path) != new.stamps.get(path)
        ]
        with self.write():
            self._db.executemany("DELETE FROM files WHERE path=?", gone)
            self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", fresh)
            if old.skipped != new.skipped:
                self._db.execute("DELETE FROM skipped")
                rows = [(encode_path(path), stamp) for path, stamp in new.skipped.items()]
                self._db.executemany("INSERT INTO skipped VALUES (?, ?)", rows)

    # Calls that are open

    def open_call(self, call: OpenCall) -> None:
        """Note that a call begins, so that a kill does not lose what it changed."""
        at = call.place
        path = None if call.path is None else encode_path(call.path)
        row = (call.id, at.session, at.run, at.entry, path, _encode(call.before))
        with self.write():
            self._db.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?)", row)

    def close_call(self, id: str) -> None:
        """Note that a call has ended."""
        with self.write():
            self._db.execute("DELETE FROM calls WHERE id=?", (id,))

    def list_calls(self) -> list[OpenCall]:
        """The calls that were begun and have not ended."""
        with self.lock:
            rows = self._db.execute("SELECT id, session, run, entry, path, old FROM calls ORDER BY rowid")
            return [
                OpenCall(id, Place(*place), None if path is None else os.fsdecode(path), _decode(old))
                for id, *place, path, old in rows
            ]

    # Checkpoints

    def find(self, place: Place, now: float) -> int:
        """Find the checkpoint of a run, or make it; return its id."""
        with self.write():
            row = (place.session, place.run, place.entry, now)
            self._db.execute(
                "INSERT OR IGNORE INTO checkpoints (number, session, run, entry, time, active) "
                "SELECT coalesce(max(number), 0) + 1, ?, ?, ?, ?, 1 FROM checkpoints WHERE session=?",
                (*row, place.session),
            )
            found = self._db.execute("SELECT id FROM checkpoints WHERE session=? AND run=?", row[:2]).fetchone()
        return int(found[0])

    def read_changes(self, checkpoint: int) -> dict[str, Change]:
        """Read the changes of a checkpoint, by path."""
        with self.lock:
            rows = self._db.execute(
                "SELECT path, old, new FROM changes WHERE checkpoint=? ORDER BY path", (checkpoint,)
            )
            return {change.path: change for change in map(_to_change, rows)}

    def write_changes(self, checkpoint: int, changes: Iterable[tuple[str, Change | None]]) -> None:
        """Write changes of a checkpoint; `None` removes one."""
        with self.write():
            for path, change in changes:
                self._db.execute("DELETE FROM changes WHERE checkpoint=? AND path=?", (checkpoint, encode_path(path)))
                if change is not None:
                    row = (checkpoint, encode_path(path), _encode(change.before), _encode(change.after))
                    self._db.execute("INSERT INTO changes VALUES (?, ?, ?, ?)", row)

    def write_unknown(self, checkpoint: int, paths: Iterable[str]) -> None:
        """Note paths that changed and cannot be taken back."""
        rows = [(checkpoint, encode_path(path)) for path in paths]
        with self.write():
            self._db.executemany("INSERT OR IGNORE INTO unknown VALUES (?, ?)", rows)

    def list_checkpoints(self, session: str) -> list[Checkpoint]:
        """The checkpoints of a session with changes, or with paths that cannot be taken back, the oldest first."""
        with self.lock:
            rows = self._db.execute(
                "SELECT id, number, session, run, entry, time, active FROM checkpoints WHERE session=? ORDER BY id",
                (session,),
            ).fetchall()
            found: list[Checkpoint] = []
            for id, number, *place, when, active in rows:
                unknown = self._db.execute("SELECT path FROM unknown WHERE checkpoint=? ORDER BY path", (id,))
                paths = [os.fsdecode(path) for (path,) in unknown]
                changes = [*self.read_changes(id).values()]
                if changes or paths:
                    found.append(Checkpoint(id, number, Place(*place), when, bool(active), changes, paths))
            return found

    # Moves

    def begin_move(self, session: str, targets: dict[int, bool], steps: Sequence[Change]) -> Move:
        """Note what is going to be done to files, before any of it is done."""
        with self.write():
            added = self._db.execute(
                "INSERT INTO moves (session, targets) VALUES (?, ?)", (session, _encoder.encode(targets).decode())
            )
            move = Move(int(added.lastrowid or 0), session, targets, steps)
            rows = [(move.id, encode_path(step.path), _encode(step.before), _encode(step.after)) for step in steps]
            self._db.executemany("INSERT INTO steps VALUES (?, ?, ?, ?)", rows)
        return move

    def finish_move(self, move: Move) -> None:
        """Note that it is done: which checkpoints are active changes with it."""
        with self.write():
            for id, active in move.targets.items():
                self._db.execute("UPDATE checkpoints SET active=? WHERE id=?", (active, id))
            self._db.execute("DELETE FROM steps WHERE move=?", (move.id,))
            self._db.execute("DELETE FROM moves WHERE id=?", (move.id,))

    def list_moves(self) -> list[Move]:
        """The moves that were begun and not finished."""
        with self.lock:
            found: list[Move] = []
            for id, session, targets in self._db.execute("SELECT id, session, targets FROM moves").fetchall():
                rows = self._db.execute("SELECT path, old, new FROM steps WHERE move=? ORDER BY path", (id,))
                steps = [_to_change(row) for row in rows]
                found.append(Move(id, session, msgspec.json.decode(targets, type=dict[int, bool]), steps))
            return found

    # Tidying up

    def remove_session(self, session: str) -> None:
        """Remove the checkpoints of a session; `prune` removes their contents."""
        with self.write():
            ids = self._db.execute("SELECT id FROM checkpoints WHERE session=?", (session,)).fetchall()
            self._remove(ids)

    def prune(self, *, before: float, most_bytes: int) -> None:
        """Remove checkpoints that are older than a time, then the oldest until the rest fits; needs the lock alone."""
        with self.write():
            self._remove(self._db.execute("SELECT id FROM checkpoints WHERE time < ?", (before,)).fetchall())
            if self.count_bytes() > most_bytes:
                self._set_unused()
            while self._db.execute("PRAGMA application_id").fetchone()[0]:
                self._db.execute(DELETE_UNUSED)
                self._db.execute("PRAGMA application_id=0")
                oldest = self._db.execute("SELECT id FROM checkpoints ORDER BY id LIMIT 1").fetchall()
                if self.count_bytes() > most_bytes:
                    self._remove(oldest)

    def _set_unused(self) -> None:
        """Note that there may be contents without use. To look for them takes a while."""
        self._db.execute("PRAGMA application_id=1")

    def _remove(self, ids: Sequence[tuple[int]]) -> None:
        if ids:
            self._set_unused()
        for (id,) in ids:
            for table, column in (("changes", "checkpoint"), ("unknown", "checkpoint"), ("checkpoints", "id")):
                self._db.execute(f"DELETE FROM {table} WHERE {column}=?", (id,))


def _open_private(path: Path) -> int:
    """Open a file, and make it if it is missing, readable only by its owner; not through a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _create_private(path: Path) -> None:
    """Make a file if it is missing. One that exists is not opened: to close it would drop SQLite's locks on it."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return


def _encode(state: State | None) -> str | None:
    return None if state is None else _encoder.encode(state).decode()


def _decode(text: str | None) -> State | None:
    return None if text is None else _decoder.decode(text)


def _to_change(row: tuple[bytes, str | None, str | None]) -> Change:
    path, old, new = row
    return Change(os.fsdecode(path), _decode(old), _decode(new))
