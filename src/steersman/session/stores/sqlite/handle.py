"""One open session of a SQLite file. A write that the file refuses because of damage goes to a rescued copy instead."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from steersman.session.records import Record, encode, make_title
from steersman.session.stores.sqlite.access import Access, identify_file
from steersman.session.stores.sqlite.queue_rows import read_epoch, read_queued, remove_queued
from steersman.session.stores.sqlite.rescue import rescue
from steersman.session.stores.sqlite.sockets import make_address
from steersman.session.stores.sqlite.tables import (
    Damage,
    Lost,
    SessionRow,
    classify_errors,
    compute_checksum,
    connect,
    make_key,
    read_lost,
    read_valid_rows,
    transaction,
    update_session,
)
from steersman.session.stores.sqlite.wake import WriterWatch, start_watch
from steersman.session.stores.store import (
    Problem,
    SessionBusy,
    SessionDamaged,
    SessionError,
    StoreFailed,
    check_sequence,
    find_queue_numbers,
    make_read_only_error,
    make_taken_error,
)
from steersman.types.content import replace_lone_surrogates

_log = logging.getLogger("steersman")


class SqliteHandle:
    """One open session of a file."""

    def __init__(self, access: Access, row: SessionRow, lost: Sequence[Lost], link: int) -> None:
        self.session_id = row.id
        # The one who found a torn tail finds the note about it as well, and reports it once.
        self.problems: list[Problem] = list(dict.fromkeys([*access.problems, *(item.problem for item in lost)]))
        self._access = access
        self._row = row
        self._lost = lost
        self._link = link
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._damage = ""
        self._data_version = 0
        self._watches: list[Callable[[], None]] = []
        self._watch: WriterWatch | None = None
        self._reader = access.connection
        if access.is_writer:
            self._reader = self._open_reader()
        self._closed = False

    @property
    def writable(self) -> bool:
        """Whether this is the writer."""
        return self._access.is_writer

    @property
    def epoch(self) -> int:
        """How many times the session was taken over."""
        return self._row.epoch

    @property
    def last_seq(self) -> int:
        """The number of the last record; for a reader it grows with what another process writes."""
        if self._access.is_writer:
            return self._row.last
        self._check_open()
        with classify_errors(self._describe_failure("read")), self._borrow_reader() as reader:
            found = reader.execute("SELECT last FROM sessions WHERE number = ?", (self._row.number,)).fetchone()
        return self._row.last if found is None else found[0]

    def append(self, records: Sequence[Record], /) -> None:
        """Append these in one transaction; they follow `last_seq`."""
        rows = self._encode_rows(records)
        if not rows:
            return
        changed = replace(
            self._row,
            last=records[-1].seq,
            updated=max(self._row.updated, *(record.time for record in records)),
            title=self._row.title or make_title(records),
        )
        heard = find_queue_numbers(records)

        def work(connection: sqlite3.Connection) -> None:
            key = make_key(self._row.number, self._row.last)
            # A commit that failed may be in the file all the same: what is there is not written again.
            there = dict(
                connection.execute("SELECT key, checksum FROM records WHERE key > ? AND key <= ?", (key, rows[-1][0]))
            )
            if any(there.get(row[0], row[2]) != row[2] for row in rows):
                raise StoreFailed(f"{self._describe_failure('written')}: another program wrote to it.")
            connection.executemany(
                "INSERT INTO records VALUES (?, ?, ?, ?)", [row for row in rows if row[0] not in there]
            )
            update_session(connection, changed)
            if heard:
                remove_queued(connection, self._row.number, heard)

        self._write(work)
        self._row = changed
        self._link = rows[-1][2]

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number, in order, a few at a time; damage is reported in `problems`."""
        self._check_open()
        expected = after + 1
        try:
            with classify_errors(self._describe_failure("read")):
                for seq, _, data in read_valid_rows(self._borrow_reader, self._row.number, after):
                    if seq > expected:
                        self._report_gap(expected, seq - 1)
                    expected = seq + 1
                    yield seq, data
        except Damage as damage:
            self._report(Problem(f"records from {expected} on", f"They cannot be read: {damage}."))

    def read_queue(self, after: int = 0, /) -> Sequence[tuple[int, bytes]]:
        """The first of what waits in the queue after a number."""
        self._check_open()
        try:
            with classify_errors(self._describe_failure("read")), self._borrow_reader() as reader:
                if self.writable and read_epoch(reader, self._row.number) not in (self._row.epoch, None):
                    raise make_taken_error(self.session_id)
                return read_queued(reader, self._row.number, after)
        except Damage as damage:
            self._damage = str(damage)  # the next write rescues the file
            raise StoreFailed(f"{self._describe_failure('read')}: {damage}.") from damage

    def watch_queue(self, wake: Callable[[], None], /) -> Callable[[], None]:
        """Call `wake` in a thread when something may have been queued."""
        address = make_address(self._access.file_id, self._row.number, self._row.epoch)
        self._watch = WriterWatch(address, wake, self._has_changed)
        stop = start_watch(self._watch)
        self._watches.append(stop)
        return stop

    def watch_followers(self, came: Callable[[], None], /) -> Callable[[], None]:
        """Call `came` in a thread when a process begins to follow the session, or asks; its queue must be watched."""
        watch = self._watch
        if watch is None:
            raise SessionError(
                f"The queue of the session {self.session_id!r} is not watched: call watch_queue() first."
            )
        watch.came = came
        if watch.followers:
            came()

        def stop() -> None:
            watch.came = None

        return stop

    def broadcast(self, data: bytes, /) -> bool:
        """Send data to those that follow the session, through their sockets."""
        return self._watch is not None and self._watch.send(data)

    def set_title(self, title: str, /) -> None:
        """Set the title that a list shows."""
        changed = replace(self._row, title=replace_lone_surrogates(title))

        self._write(lambda connection: update_session(connection, changed))
        self._row = changed

    def erase(self) -> None:
        """Delete the session and its records; secure_delete overwrites their bytes."""
        number = self._row.number

        def work(connection: sqlite3.Connection) -> None:
            keys = (make_key(number, 0), make_key(number + 1, 0))
            connection.execute("DELETE FROM records WHERE key > ? AND key < ?", keys)
            connection.execute("DELETE FROM lost WHERE number = ?", (number,))
            connection.execute("DELETE FROM queue WHERE session = ?", (number,))
            connection.execute("DELETE FROM sessions WHERE number = ?", (number,))

        self._write(work)
        with classify_errors(self._describe_failure("removed")):
            self._access.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the session and release its lock."""
        for stop in self._watches:
            stop()
        with self._writing, self._reading:
            self._closed = True
            self._access.close()

    def call_on_close(self, do: Callable[[], object]) -> None:
        """Call this after the session is closed."""
        self._access.call_on_close(do)

    def _encode_rows(self, records: Sequence[Record]) -> list[tuple[int, int, int, bytes]]:
        rows: list[tuple[int, int, int, bytes]] = []
        link = self._link
        check_sequence(self.session_id, self._row.last, records)
        for record in records:
            data = encode(record)
            key = make_key(self._row.number, record.seq)
            checksum = compute_checksum(key, link, data)
            rows.append((key, link, checksum, data))
            link = checksum
        return rows

    @contextmanager
    def _borrow_reader(self) -> Generator[sqlite3.Connection]:
        """Lend the connection for reading; after a rescue it is another one."""
        with self._reading:
            yield self._reader

    def _has_changed(self) -> bool:
        """Whether the file was written to since the last look."""
        if self._closed or not self._reading.acquire(blocking=False):
            return False
        try:
            (version,) = self._reader.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return False  # it is closed or damaged, which the next write reports
        finally:
            self._reading.release()
        changed, self._data_version = version != self._data_version, version
        return changed

    def _open_reader(self) -> sqlite3.Connection:
        """A connection of its own for reading, so that readers never block the thread that writes."""
        reader = connect(self._access.path, write=False)
        self._access.closing.callback(reader.close)
        return reader

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do this in a transaction, and once more after a rescue if the file is damaged; raises `StoreFailed`."""
        self._check_writer()
        with self._writing:
            self._check_open()
            try:
                try:
                    self._write_once(work)
                except Damage as damage:
                    self._rescue(str(damage))
                    self._write_once(work)
            except OSError as error:
                raise StoreFailed(f"{self._describe_failure('written')}: {error.strerror}.") from error
            except Damage as damage:
                raise StoreFailed(f"{self._describe_failure('written')}: {damage}.") from damage
            except SessionDamaged as damage:
                raise StoreFailed(f"{self._describe_failure('written')}: {damage}") from damage

    def _write_once(self, work: Callable[[sqlite3.Connection], None]) -> None:
        if self._damage:
            raise Damage(self._damage)
        with classify_errors(self._describe_failure("written")):
            if identify_file(self._access.path) != self._access.file_id:
                raise StoreFailed(f"{self._describe_failure('written')}: its file was replaced.")
            with transaction(self._access.connection):
                if read_epoch(self._access.connection, self._row.number) not in (self._row.epoch, None):
                    raise make_taken_error(self.session_id)
                work(self._access.connection)

    def _rescue(self, reason: str) -> None:
        """Rescue the file and go on in the fresh one; until that succeeds, nothing is written."""
        self._damage = reason
        with self._reading, self._access.exclude_others(reason):
            self._reader.close()
            self._access.connection.close()
            try:
                rescue(self._access.path, reason, self._row)
            finally:
                # Also after a failure, such as a full disk: the damaged file can still be read.
                self._access.reconnect()
                self._reader = self._open_reader()
            with classify_errors(self._describe_failure("read")):
                self._lost = read_lost(self._access.connection, self._row.number)
        self._damage = ""
        for lost in self._lost:
            self._report(lost.problem)
            _log.warning("Session %r: %s: %s", self.session_id, lost.problem.where, lost.problem.text)

    def _check_writer(self) -> None:
        if not self._access.is_writer:
            raise make_read_only_error(self.session_id)
        if self._access.locks is None or (self._access.locks.closed and not self._closed):
            raise SessionBusy(f"The session {self.session_id!r} is written to by the process this one was forked from.")

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError(f"The session {self.session_id!r} is closed.")

    def _describe_failure(self, done: str) -> str:
        return f"The session {self.session_id!r} could not be {done}"

    def _report_gap(self, first: int, last: int) -> None:
        """Report records that are missing, unless that is known."""
        if not any(lost.first <= first and last <= lost.last for lost in self._lost):
            self._report(Lost(first, last, "Damaged, and left out.").problem)

    def _report(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
