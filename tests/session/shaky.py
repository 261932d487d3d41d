"""A store to write to that can be held up, and that can be made to refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from steersman.session.records import Record, encode
from steersman.session.stores.store import Problem


class ShakyHandle:
    """One session in memory.

    `error` is raised by every append while it is set; with `late` the records are kept first, as by a server that is
    cut off before it can say so. An append waits until `free` is set, and `began` is set once it does.
    """

    def __init__(self, session_id: str = "shaky") -> None:
        self.session_id = session_id
        self.writable = True
        self.problems: Sequence[Problem] = ()
        self.records: list[Record] = []
        self.groups: list[int] = []
        self.tries = 0
        self.error: Callable[[], BaseException] | None = None
        self.late = False
        self.free = threading.Event()
        self.free.set()
        self.began = threading.Event()
        self.closed = 0
        self.during: Callable[[], object] | None = None
        self._kept = threading.Condition()

    @property
    def last_seq(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[Record], /) -> None:
        assert not self.closed, "Nothing is written once the handle is closed."
        assert records, "A group has at least one record."
        self.began.set()
        assert self.free.wait(30)
        if self.during is not None:
            self.during()
        with self._kept:
            self.tries += 1
            if self.error is not None and not self.late:
                raise self.error()
            # What was kept when it was refused comes again, and is kept once.
            known = self.last_seq - records[0].seq + 1
            assert [record.seq for record in records] == [*range(records[0].seq, records[0].seq + len(records))]
            assert known >= 0, f"Records {self.last_seq + 1} to {records[0].seq - 1} were left out."
            assert list(records[:known]) == self.records[records[0].seq - 1 :], (
                "Not the records that were given before."
            )
            self.records.extend(records[known:])
            self.groups.append(len(records))
            self._kept.notify_all()
            if self.error is not None:
                raise self.error()

    def wait_for(self, count: int) -> None:
        """Wait until so many records are kept."""
        with self._kept:
            assert self._kept.wait_for(lambda: len(self.records) >= count, 30)

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        for record in self.records[after:]:
            yield record.seq, encode(record)

    def set_title(self, title: str, /) -> None:
        del title

    def close(self) -> None:
        self.closed += 1
