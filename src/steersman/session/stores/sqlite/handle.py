"""One open session of a SQLite file. What a damaged file will not take is written to what can be salvaged of it."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from steersman.session.records import Record, encode, make_title
from steersman.session.stores.sqlite.access import Access, place_of
from steersman.session.stores.sqlite.neighbours import LEAST, REACH, undisturbed
from steersman.session.stores.sqlite.salvage import salvage
from steersman.session.stores.sqlite.tables import (
    Damage,
    Lost,
    SessionRow,
    change,
    connect,
    judged,
    lost_in,
    record_checksum,
    record_key,
    transaction,
    whole_rows,
)
from steersman.session.stores.store import Problem, SessionBusy, SessionDamaged, SessionError, StoreFailed
from steersman.types.content import replace_lone_surrogates

_LAST = (1 << 32) - 1  # no record has a higher number
_log = logging.getLogger("steersman")


class SqliteHandle:
    """One open session of a file."""

    def __init__(self, access: Access, row: SessionRow, lost: Sequence[Lost], link: int) -> None:
        self.session_id = row.id
        # Who found a torn tail and finds the word that was left about it is told of it once.
        self.problems: list[Problem] = list(dict.fromkeys([*access.problems, *(item.problem for item in lost)]))
        self._access = access
        self._row = row
        self._lost = lost
        self._link = link
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._damage = ""
        self._doubt = REACH
        self._reader = access.connection
        if access.taken:
            self._reader = self._own_reader()
        self._closed = False

    @property
    def writable(self) -> bool:
        """Whether this is the writer."""
        return self._access.taken

    @property
    def last_seq(self) -> int:
        """The number of the last record; whoever only reads sees it grow."""
        if self._access.taken:
            return self._row.last
        self._check_open()
        with judged(self._cannot("read")), self._read() as reader:
            found = reader.execute("SELECT last FROM sessions WHERE number = ?", (self._row.number,)).fetchone()
        return self._row.last if found is None else found[0]

    def append(self, records: Sequence[Record], /) -> None:
        """Keep these, which go on from `last_seq`."""
        rows = self._rows(records)
        if not rows:
            return
        changed = replace(
            self._row,
            last=records[-1].seq,
            updated=max(self._row.updated, *(record.time for record in records)),
            title=self._row.title or make_title(records),
        )

        def work(connection: sqlite3.Connection) -> None:
            key = record_key(self._row.number, self._row.last)
            # A commit that failed may have been kept all the same: what is there is not written again.
            there = dict(
                connection.execute("SELECT key, checksum FROM records WHERE key > ? AND key <= ?", (key, rows[-1][0]))
            )
            if any(there.get(row[0], row[2]) != row[2] for row in rows):
                raise StoreFailed(f"{self._cannot('written')}: somebody else wrote to it.")
            with self._others_kept(connection, changed):
                connection.executemany(
                    "INSERT INTO records VALUES (?, ?, ?, ?)", [row for row in rows if row[0] not in there]
                )
                change(connection, changed)

        self._write(work)
        self._row = changed
        self._link = rows[-1][2]
        self._doubt -= sum(min(len(data), LEAST) for *_, data in rows)

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number, in order, without holding them all; damage is told in `problems`."""
        self._check_open()
        expected = after + 1
        try:
            with judged(self._cannot("read")):
                for seq, _, data in whole_rows(self._read, self._row.number, after):
                    if seq > expected:
                        self._miss(expected, seq - 1)
                    expected = seq + 1
                    yield seq, data
        except Damage as damage:
            self._tell(Problem(f"records from {expected} on", f"They cannot be read: {damage}."))

    def entitle(self, title: str, /) -> None:
        """What the session is called in a list."""
        changed = replace(self._row, title=replace_lone_surrogates(title))

        def work(connection: sqlite3.Connection) -> None:
            with self._others_kept(connection, changed):
                change(connection, changed)

        self._write(work)
        self._row = changed

    def erase(self) -> None:
        """Remove the session and its records, so that no byte of them is left."""
        number = self._row.number

        def work(connection: sqlite3.Connection) -> None:
            with undisturbed(connection, number, 0, _LAST):
                keys = (record_key(number, 0), record_key(number + 1, 0))
                connection.execute("DELETE FROM records WHERE key > ? AND key < ?", keys)
                connection.execute("DELETE FROM lost WHERE number = ?", (number,))
                connection.execute("DELETE FROM sessions WHERE number = ?", (number,))

        self._write(work)
        with judged(self._cannot("removed")):
            self._access.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Let go of the session."""
        with self._writing, self._reading:
            self._closed = True
            self._access.close()

    def afterwards(self, do: Callable[[], object]) -> None:
        """Do this when the session is closed."""
        self._access.afterwards(do)

    def _rows(self, records: Sequence[Record]) -> list[tuple[int, int, int, bytes]]:
        rows: list[tuple[int, int, int, bytes]] = []
        link = self._link
        for expected, record in enumerate(records, self._row.last + 1):
            if record.seq != expected:
                raise ValueError(f"Expected the record {expected} of {self.session_id!r}, got {record.seq}.")
            data = encode(record)
            key = record_key(self._row.number, record.seq)
            checksum = record_checksum(key, link, data)
            rows.append((key, link, checksum, data))
            link = checksum
        return rows

    @contextmanager
    def _read(self) -> Generator[sqlite3.Connection]:
        """A turn with the connection to read; after a salvage it is another one."""
        with self._reading:
            yield self._reader

    def _own_reader(self) -> sqlite3.Connection:
        """A connection that is never in the way of the thread that writes."""
        reader = connect(self._access.path, write=False)
        self._access.leave.callback(reader.close)
        return reader

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do this in a transaction, a second time if the file had to be salvaged; `StoreFailed` for what stops it."""
        self._check_writer()
        with self._writing:
            self._check_open()
            try:
                try:
                    self._write_once(work)
                except Damage as damage:
                    self._mend(str(damage))
                    self._write_once(work)
            except OSError as error:
                raise StoreFailed(f"{self._cannot('written')}: {error.strerror}.") from error
            except Damage as damage:
                raise StoreFailed(f"{self._cannot('written')}: {damage}.") from damage
            except SessionDamaged as damage:
                raise StoreFailed(f"{self._cannot('written')}: {damage}") from damage

    def _write_once(self, work: Callable[[sqlite3.Connection], None]) -> None:
        if self._damage:
            raise Damage(self._damage)
        with judged(self._cannot("written")):
            if place_of(self._access.path) != self._access.place:
                raise StoreFailed(f"{self._cannot('written')}: its file was replaced.")
            with transaction(self._access.connection):
                work(self._access.connection)

    def _others_kept(self, connection: sqlite3.Connection, changed: SessionRow) -> AbstractContextManager[None]:
        """See to it that other rows stay as they are, where the page that is written to may be as the file had it."""
        row = self._row
        moves = changed.title != row.title or changed.last.bit_length() // 8 != row.last.bit_length() // 8
        if self._doubt <= 0 and not moves:
            return nullcontext()
        return undisturbed(connection, row.number, row.last, changed.last)

    def _mend(self, reason: str) -> None:
        """Have the file salvaged and go on in the fresh one; until that succeeds, nothing is written."""
        self._damage = reason
        with self._reading, self._access.secluded(reason):
            self._reader.close()
            self._access.connection.close()
            try:
                salvage(self._access.path, reason, self._row)
            finally:
                # Where there is no room for a copy, what can be read of the damaged file can still be read.
                self._access.connect()
                self._reader = self._own_reader()
            with judged(self._cannot("read")):
                self._lost = lost_in(self._access.connection, self._row.number)
        self._damage = ""
        for lost in self._lost:
            self._tell(lost.problem)
            _log.warning("Session %r: %s: %s", self.session_id, lost.problem.where, lost.problem.text)

    def _check_writer(self) -> None:
        if not self._access.taken:
            raise SessionBusy(f"The session {self.session_id!r} was opened to be read.")
        if self._access.locks is None or (self._access.locks.closed and not self._closed):
            raise SessionBusy(f"The session {self.session_id!r} is written to by the process this one was forked from.")

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError(f"The session {self.session_id!r} is closed.")

    def _cannot(self, done: str) -> str:
        return f"The session {self.session_id!r} could not be {done}"

    def _miss(self, first: int, last: int) -> None:
        """Tell of records that are not there, unless that is known."""
        if not any(lost.first <= first and last <= lost.last for lost in self._lost):
            self._tell(Lost(first, last, "Damaged, and left out.").problem)

    def _tell(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
