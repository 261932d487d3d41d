"""One open session of a PostgreSQL database.

The connection that writes holds the lock, so the next holder knows that no write of another one is under way. Each
writer has a higher epoch than the one before, and each statement that writes says it: after a lost connection a writer
takes the lock again, and writes nothing more if another one has opened the session in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from steersman.session.records import Record, encode
from steersman.session.stores.postgres.append import Origin, UnexpectedLastSeq, add_lines, pack_append
from steersman.session.stores.postgres.tables import (
    CHANNEL,
    COUNT,
    DELETE,
    EPOCH,
    GAPS,
    LAST,
    NOTIFY,
    OWN,
    PAGE,
    SET_TITLE,
    TAKEN,
    WAITING,
    WRITTEN,
    Line,
    check_queued,
    compute_checksum,
)
from steersman.session.stores.store import (
    QUEUE_PAGE,
    Problem,
    SessionBusy,
    SessionError,
    SessionNotFound,
    check_sequence,
    describe_range,
    make_busy_error,
    make_read_only_error,
    make_taken_error,
)
from steersman.types.content import replace_lone_surrogates

if TYPE_CHECKING:
    from steersman.session.stores.postgres.connection import Connection, ReconnectingConnection, Row
    from steersman.session.stores.postgres.follow import Followers
    from steersman.session.stores.store import Finishing

_T = TypeVar("_T")

PAGE_ROWS: Final = 1000
PAGE_BYTES: Final = 1_000_000
_ATTEMPTS = 5


class PostgresHandle:
    """One open session of a database."""

    def __init__(self, link: ReconnectingConnection, session_id: str, number: int, *, epoch: int = 0) -> None:
        self.session_id = session_id
        self._problems: list[Problem] = []
        self._is_checked = False  # whether the missing records are known
        self._link = link
        self._number = number
        self._last = 0
        self._expected: tuple[int, Sequence[Line]] | None = None
        self._lost: list[tuple[int, int]] = []
        self._token: str | None = None
        self._place = ""
        self._watches: list[Callable[[], None]] = []
        self._followers: Followers | None = None
        self._opened = time.monotonic()
        self.epoch = epoch  # 0 until it is the owner

    @property
    def problems(self) -> Sequence[Problem]:
        """What was found damaged; before all records were read, what is missing is looked for."""
        if not self._is_checked and not self._link.closed:
            self._find_gaps()
        return self._problems

    @property
    def writable(self) -> bool:
        """Whether this is the writer."""
        return self._link.write

    @property
    def last_seq(self) -> int:
        """The number of the last record; for a reader it grows with what another process writes."""
        if self.writable:
            return self._last
        return self._run("read", self._read_last_seq)

    def lock(self, connection: Connection) -> None:
        """Take the lock of the session on this connection, unless it has it."""
        if self._token == connection.token:
            return
        if self._token is not None:
            self._check_epoch(connection)  # another one may have it by now, and for good
        if not connection.lock_session(self._number, self._token):
            raise make_busy_error(self.session_id)
        self._note_lock(connection)

    def lock_and_own(self, connection: Connection) -> None:
        """Take the lock and become the owner, in one statement if the lock is free."""
        had, number, last, epoch = connection.lock_and_own(self._number, self.session_id)
        if not had:
            self.lock(connection)
            # Between the query and the lock, another writer may have added records or deleted the session.
            self.own(connection)
            return
        self._note_lock(connection)
        self._become_owner(number, last, epoch)

    def own(self, connection: Connection) -> None:
        """Become the owner: no statement of an earlier one is accepted any more."""
        values = (self.session_id, str(connection.tables))
        number, last, epoch, _ = connection.execute(OWN, values).fetchone() or self._raise_not_found()
        self._become_owner(number, last, epoch)

    def _note_lock(self, connection: Connection) -> None:
        self._token, self._place = connection.token, connection.make_place(self._number)
        connection.prepare_append()

    def _become_owner(self, number: int | None, last: int, epoch: int) -> None:
        if number is None:
            self._raise_not_found()
        if number != self._number:
            raise SessionBusy(f"The session {self.session_id!r} was just deleted and created again elsewhere.")
        self._last, self.epoch = last, epoch

    def take_over(self, connection: Connection) -> None:
        """Become the owner although another one has the lock."""
        for _ in range(_ATTEMPTS):
            # Its transaction goes first: one that was stopped in the middle may hold the row of the session.
            connection.terminate_holder(self._number)
            self.own(connection)
            if connection.lock_session(self._number):
                self._note_lock(connection)
                values = (CHANNEL, self._place, self._number)
                epoch, self._last, _ = connection.execute(TAKEN, values).fetchone() or self._raise_not_found()
                if epoch != self.epoch:
                    raise make_taken_error(self.session_id)
                return
        raise make_busy_error(self.session_id)

    def read_queue(self, after: int = 0, /) -> Sequence[tuple[int, bytes]]:
        """The first of what waits in the queue after a number."""
        wanted = {"number": self._number, "after": after, "rows": QUEUE_PAGE}
        found = self._run("read", lambda connection: connection.execute(WAITING, wanted).fetchall())
        if not found:
            self._raise_not_found()
        if self.writable and found[0][0] != self.epoch:
            raise make_taken_error(self.session_id)
        return [check_queued(self._number, *row[1:]) for row in found if row[1] is not None]

    def watch_queue(self, wake: Callable[[], None], /) -> Callable[[], None]:
        """Call `wake` in a thread when something may have been queued."""
        from steersman.session.stores.postgres.listen import watch_session

        stop = watch_session(self._link.address, self._place, wake)
        self._watches.append(stop)
        return stop

    def watch_followers(self, came: Callable[[], None], /) -> Callable[[], None]:
        """Call `came` in a thread when a process begins to follow the session, or asks."""
        from steersman.session.stores.postgres.follow import Followers

        self._followers = Followers(self._link.address, self._place, self.epoch, came, self._opened)
        self._watches.append(self._followers.stop)
        return self._followers.stop

    def broadcast(self, data: bytes, /) -> bool:
        """Send data to those that follow the session, by notifications."""
        return self._followers is not None and self._followers.send(data)

    def set_last_seq(self, last: int) -> None:
        """Set the number of the last record."""
        self._last = last

    def expect(self, last: int, lines: Sequence[Line]) -> None:
        """Give it the first records, which were read before it had the lock: good if the last is still this one."""
        self._expected = last, lines

    def _find_gaps(self) -> None:
        """Find the missing records. If the table is too damaged for that, they are reported when they are read."""
        from steersman.session.stores.postgres.connection import DataCorrupted

        self._is_checked = True
        if self._last == 0:
            return
        wanted = {"number": self._number, "last": self._last}

        def work(connection: Connection) -> list[tuple[int, int]]:
            if connection.execute(COUNT, wanted).fetchone() == (self._last,):
                return []
            return [(first, last) for first, last in connection.execute(GAPS, wanted)]

        try:
            found = self._run("read", work)
        except DataCorrupted:
            return
        for first, last in found:
            self._report_lost(first, last)

    def append(self, records: Sequence[Record], /) -> None:
        """Append these, which follow `last_seq`."""
        lines = self._encode_lines(records)
        if lines:
            self._write(lambda connection: self._append(connection, lines, records))
            self._last = lines[-1].seq

    def begin_append(self, records: Sequence[Record], tell: Callable[[bool], None], /) -> Finishing | None:
        """Send these from the running event loop, which reads the answer."""
        lines = self._encode_lines(records)
        packed = pack_append(Origin.of(self._number, self.epoch, records), self._last, lines)

        def take(added: int) -> None:
            if added == len(lines):
                self._last = lines[-1].seq
            tell(added == len(lines))

        return None if packed is None or self._token is None else self._link.send(self._token, packed, take)

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number, in order, a page at a time; damage is reported in `problems`."""
        expected = after + 1
        while True:
            last, page = self._read_page(expected)
            for line in page:
                if line.seq > expected:
                    self._report_lost(expected, line.seq - 1)
                expected = line.seq + 1
                if line.checksum == compute_checksum(self._number, line.seq, line.data):
                    yield line.seq, line.data
                else:
                    self._report_lost(line.seq, line.seq)
            if not page and expected <= last:
                self._report_lost(expected, last)
            if not page or expected > last:
                self._is_checked = self._is_checked or after == 0
                return

    def set_title(self, title: str, /) -> None:
        """Set the title that a list shows."""
        words = replace_lone_surrogates(title).encode()
        self._write(
            lambda connection: (
                connection.execute(SET_TITLE, (words, self._number, self.epoch)).rowcount
                or self._raise_refused(connection)
            )
        )

    def erase(self) -> None:
        """Remove the session and its records."""
        self._write(
            lambda connection: (
                connection.execute(DELETE, (self._number, self.epoch)).rowcount or self._check_epoch(connection)
            )
        )

    def close(self) -> None:
        """Close the session and release its lock at once."""
        self._close(None)

    def close_and_look(self) -> Sequence[tuple[int, bytes]] | None:
        """Close the session, and read its queue after its lock is released; `None` if that was not possible."""
        found: list[Row] = []
        wanted = {"number": self._number, "after": 0, "rows": QUEUE_PAGE}
        self._close(lambda connection: found.extend(connection.execute(WAITING, wanted)))
        return [check_queued(self._number, *row[1:]) for row in found if row[1] is not None] if found else None

    def _close(self, last: Callable[[Connection], object] | None) -> None:
        # Those that follow read the last records then, and see that there is no writer.
        farewell = None if self._followers is None else self._followers.make_farewell()
        for stop in self._watches:
            stop()

        def finish(connection: Connection) -> None:
            if farewell is not None:
                connection.execute(NOTIFY, ([farewell[0]], [farewell[1]]))
            if last is not None:
                last(connection)

        self._link.close(has_locks=self._token is not None, last=finish)

    def _encode_lines(self, records: Sequence[Record]) -> list[Line]:
        lines: list[Line] = []
        check_sequence(self.session_id, self._last, records)
        for record in records:
            data = encode(record)
            lines.append(Line(record.seq, compute_checksum(self._number, record.seq, data), data))
        return lines

    def _append(self, connection: Connection, lines: Sequence[Line], records: Sequence[Record]) -> None:
        """Add these in one transaction, without those of a commit that succeeded although its answer was lost."""
        origin = Origin.of(self._number, self.epoch, records)
        try:
            add_lines(connection, origin, self._last, lines)
        except UnexpectedLastSeq:
            known = self._count_written_lines(connection, lines)
            add_lines(connection, origin, self._last + known, lines[known:])

    def _count_written_lines(self, connection: Connection, lines: Sequence[Line]) -> int:
        """Count those that are stored already; raises `SessionBusy` if other records are stored there."""
        self._check_epoch(connection)
        there = connection.execute(WRITTEN, (self._number, self._last)).fetchall()
        if not there or there != [(line.seq, line.checksum) for line in lines[: len(there)]]:
            raise SessionBusy(
                f"The session {self.session_id!r} was written to by another program since this connection "
                f"was lost. The records from {self._last + 1} on are its own and were left as they are: open it again."
            )
        return len(there)

    def _read_page(self, first: int) -> tuple[int, Sequence[Line]]:
        """One page of records from a number on, and the number of the last record of the session."""
        from steersman.session.stores.postgres.connection import DataCorrupted

        expected, self._expected = self._expected, None
        if expected is not None and (first, self._last) == (1, expected[0]):
            return expected
        try:
            return self._run("read", lambda connection: self._select_page(connection, first, PAGE_ROWS))
        except DataCorrupted:
            pass  # one of them is damaged: read them one by one
        try:
            return self._run("read", lambda connection: self._select_page(connection, first, 1))
        except DataCorrupted:
            return self._run("read", self._read_last_seq), [Line(first, 0, b"")]

    def _select_page(self, connection: Connection, first: int, rows: int) -> tuple[int, list[Line]]:
        wanted = {"number": self._number, "after": first - 1, "rows": rows, "bytes": PAGE_BYTES}
        found = connection.execute(PAGE, wanted, binary=True).fetchall() or self._raise_not_found()
        return found[0][0], [Line(*row[1:]) for row in found if row[1] is not None]

    def _read_last_seq(self, connection: Connection) -> int:
        (last,) = connection.execute(LAST, (self._number,)).fetchone() or self._raise_not_found()
        return last

    def _check_epoch(self, connection: Connection) -> None:
        """Raise `SessionTaken` if there is a later owner, and `SessionNotFound` if there is no session any more."""
        (epoch,) = connection.execute(EPOCH, (self._number,)).fetchone() or self._raise_not_found()
        if self.epoch not in (0, epoch):
            raise make_taken_error(self.session_id)

    def _raise_refused(self, connection: Connection) -> NoReturn:
        self._check_epoch(connection)
        self._raise_not_found()

    def _write(self, work: Callable[[Connection], object]) -> None:
        """Do this with the lock, which is taken again after a lost connection."""

        def lock_and_work(connection: Connection) -> None:
            self.lock(connection)
            work(connection)

        if not self.writable:
            raise make_read_only_error(self.session_id)
        if self._link.forked:
            raise SessionBusy(f"The session {self.session_id!r} is written to by the process this one was forked from.")
        self._run("written", lock_and_work)

    def _run(self, done: str, work: Callable[[Connection], _T]) -> _T:
        if self._link.closed:
            raise SessionError(f"The session {self.session_id!r} is closed.")
        return self._link.run(f"The session {self.session_id!r} could not be {done}", work)

    def _raise_not_found(self) -> NoReturn:
        raise SessionNotFound(f"The session {self.session_id!r} was removed.")

    def _report_lost(self, first: int, last: int) -> None:
        if any(start <= first and last <= end for start, end in self._lost):
            return
        self._lost.append((first, last))
        self._problems.append(Problem(describe_range(first, last), "Damaged, and left out."))
