"""The hub of a session: puts records and transient events in one order, for any number of watchers.

A record is shown once it is saved, so that a position a watcher has seen still exists after a crash; what follows the
record waits for it. Each event is encoded once. Watchers have no queues: each is a place in the one ring of recent
events (`watch.py`).
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

import msgspec

from steersman.server.log_events import RunSpans, encode_record
from steersman.server.one_line import escape_separators
from steersman.server.position import RECORD, Position
from steersman.session.journal import JournalWriter
from steersman.session.records import Record, decode
from steersman.session.relay import RECORDED, Relay, Snapshot
from steersman.session.stores.store import Handle, SessionError, SessionNotFound, Store
from steersman.types.events import AgentEvent, MessageEnd, MessageStart, MessageUpdate
from steersman.types.wire import encode

RING_BYTES: Final = 4 << 20
"""The most bytes of recent events that a hub keeps while a run goes on."""
IDLE_BYTES: Final = 256 << 10
"""The same between runs."""
STORE_BATCH: Final = 2_000
"""The most records that are read from a store at once."""
STORE_BYTES: Final = 1 << 20
"""About the most bytes that are read from a store at once: a watcher that never reads holds so many."""

_ITEM_OVERHEAD = 200


class Item:
    """One event as watchers get it; `frame` is the whole server-sent event, with its position as the id.

    `update` is kept where neighbours can be joined for a watcher that is behind. `in_answer` says whether an answer is
    arriving after it; `None` if that is as before it.
    """

    __slots__ = ("frame", "in_answer", "position", "update")

    def __init__(
        self,
        position: Position,
        data: bytes,
        update: MessageUpdate | None = None,
        *,
        in_answer: bool | None = None,
    ) -> None:
        self.position = position
        self.in_answer = True if update is not None else in_answer
        self.frame = b"id: %b\ndata: %b\n\n" % (str(position).encode(), escape_separators(data))
        self.update = update

    @property
    def data(self) -> bytes:
        """The event as JSON."""
        return self.frame[self.frame.index(b"\n") + 7 : -2]

    @property
    def is_record(self) -> bool:
        """Whether it is kept in the log."""
        return self.position.number == RECORD


class Leaving(Protocol):
    """Something that ends with the watchers."""

    def close(self) -> None: ...


class Hub:
    """The events of one session. All methods are for the server's event loop, except `scan`."""

    def __init__(self, session_id: str, store: Store, *, ring_bytes: int = RING_BYTES) -> None:
        self.session_id = session_id
        self.store = store
        self.spans = RunSpans()
        self.closed = False
        self.watchers = 0
        self._arriving = 0
        self.position = Position(0)
        # Everything after `floor` is in the ring; the first event of the ring has the number `first`.
        self.floor = self.position
        self.ring: list[Item] = []
        self._floor_in_answer = False
        self.first = 0
        self._bytes = 0
        self._ring_bytes = ring_bytes
        self._held: deque[tuple[int, AgentEvent]] = deque()
        self._update: MessageUpdate | None = None
        self._journal: JournalWriter | None = None
        self._relay: Relay | None = None
        self.follower: Leaving | None = None
        """What shows this hub a session that is open elsewhere; the last watcher closes it."""
        # A dict, since thousands of watchers may leave at once.
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._waking = False
        self._reader: Handle | None = None
        self._reading = threading.Lock()

    @property
    def last_record(self) -> int:
        """The number of the last record that was shown."""
        return self.position.record

    @property
    def end(self) -> int:
        """The number of the next event in the ring."""
        return self.first + len(self.ring)

    def scan(self, handle: Handle) -> None:
        """Begin after the records that are there. It reads them all, so call it in a thread."""
        self.position = self.floor = Position(self.spans.scan(handle.lines()))

    def attach(self, journal: JournalWriter) -> None:
        """Follow a live session: transient events come after the records of its journal."""
        self._journal = journal

    def detach(self) -> None:
        """Stop following: the session is closed here."""
        self._journal = None
        self._update = None

    def feed(self, relay: Relay) -> None:
        """Give what is shown here to those that follow the session in other processes as well."""
        self._relay = relay
        relay.set_place(self.last_record, max(self.position.number, 0), None if self._held else self._update)

    def stop_feeding(self, relay: Relay) -> None:
        """Give it to them no more."""
        if self._relay is relay:
            self._relay = None

    def unfollow(self) -> None:
        """Follow the session no more in another process: it is open here now, or has no watchers."""
        follower, self.follower = self.follower, None
        if follower is not None:
            follower.close()

    def close(self) -> None:
        """End all watches."""
        self.closed = True
        self.unfollow()
        self.wake()
        self._release_soon()

    def join(self) -> None:
        """Count one more watcher."""
        self.watchers += 1

    def leave(self) -> None:
        """Count one watcher less; the last one closes what was open to read for them."""
        self.watchers -= 1
        if not self.watchers and not self._arriving:
            self.unfollow()
        self._release_soon()

    @contextmanager
    def expect_watcher(self) -> Generator[None]:
        """Keep the follower while a watcher is on its way, which joins in the same step: the others may leave."""
        self._arriving += 1
        try:
            yield
        except BaseException:
            if not self.watchers and self._arriving == 1:
                self.unfollow()
            raise
        finally:
            self._arriving -= 1

    def _release_soon(self) -> None:
        if self._reader is not None and (self.closed or not self.watchers):
            asyncio.get_running_loop().run_in_executor(None, self.release_reader)

    # Events in

    def add_event(self, event: AgentEvent) -> None:
        """Take an event of a run; those that have a record come with the record."""
        if type(event) in RECORDED:
            if type(event) is MessageEnd:
                self._update = None
            return
        if type(event) is MessageUpdate:
            self._update = event
        journal = self._journal
        if journal is not None and journal.taken is not None:
            # Another process writes the session now, and what happens here is not in its log.
            self._held.clear()
            return
        base = self.last_record if journal is None else journal.seq
        if base <= self.last_record:
            self._show_event(event)
            return
        self._held.append((base, event))
        if journal is not None and journal.degraded is not None:
            # The store refuses records, as on a full disk: they are shown all the same, so that watchers can go on.
            self._show_lines(list(journal.lines(self.last_record)))

    def add_records(self, records: Sequence[Record]) -> None:
        """Take records that were saved, in order; those that were shown already are ignored."""
        for record in records:
            if record.seq > self.last_record:
                self._show_record(record)
        if self._relay is not None:
            self._relay.note_saved(self.last_record)

    async def refresh(self, last: int | None = None) -> None:
        """Show what another program has written to the session since, up to a record if there is a `last` one."""
        try:
            while last is None or last > self.last_record:
                lines = await asyncio.to_thread(self.read_lines, self.last_record)
                self._show_lines([line for line in lines if last is None or line[0] <= last])
                if not lines or lines[0][0] > (last or lines[0][0]):
                    return
        finally:
            self._release_soon()

    def show_piece(self, position: Position, data: bytes, event: AgentEvent) -> None:
        """Show an event without a record that was told by another process."""
        if position > self.position:
            update = event if type(event) is MessageUpdate else None
            self._update = update or self._update
            self._add(Item(position, data, update, in_answer=_begins_answer(event)))

    def show_snapshot(self, position: Position, snapshot: Snapshot) -> None:
        """Show the answer so far that was told by another process."""
        self._add(_make_snapshot(position, snapshot.loop_id, snapshot.message))

    def _show_lines(self, lines: Sequence[tuple[int, bytes]]) -> None:
        self.add_records([decode(line) for _, line in lines])

    def _show_record(self, record: Record) -> None:
        if record.type in ("run_start", "run_end"):
            self.spans.add(record.seq, record.type, str(record.payload.get("loop_id") or ""))
        in_answer = False if record.type in ("message", "run_end") else None
        self._add(Item(Position(record.seq), encode_record(record, self.spans), in_answer=in_answer))
        if self._journal is None and record.type == "message":
            self._update = None  # the answer that arrived elsewhere is complete
        if record.type == "run_end":
            self._trim(min(IDLE_BYTES, self._ring_bytes))
        while self._held and self._held[0][0] <= record.seq:
            self._show_event(self._held.popleft()[1])

    def _show_event(self, event: AgentEvent) -> None:
        record, number = self.position
        update = event if type(event) is MessageUpdate else None
        data = encode(msgspec.structs.replace(event, seq=record))
        number = 1 if number == RECORD else number + 1
        self._add(Item(Position(record, number), data, update, in_answer=_begins_answer(event)))
        if self._relay is not None:
            self._relay.add(record, number, event)

    def _add(self, item: Item) -> None:
        self.ring.append(item)
        self.position = item.position
        self._bytes += len(item.frame) + _ITEM_OVERHEAD
        if self._bytes > self._ring_bytes:
            self._trim(self._ring_bytes // 2)
        if self._waiters and not self._waking:
            # Events come in groups: the watchers are woken once for all events of this step.
            self._waking = True
            asyncio.get_running_loop().call_soon(self.wake)

    def _trim(self, most: int) -> None:
        gone = 0
        while self._bytes > most and gone < len(self.ring):
            self._bytes -= len(self.ring[gone].frame) + _ITEM_OVERHEAD
            gone += 1
        if gone:
            self._floor_in_answer = self._is_in_answer(gone)
            self.floor = self.ring[gone - 1].position
            self.first += gone
            del self.ring[:gone]

    def _is_in_answer(self, count: int) -> bool:
        """Whether an answer is arriving after so many events of the ring."""
        known = (item.in_answer for item in reversed(self.ring[:count]) if item.in_answer is not None)
        return next(known, self._floor_in_answer)

    def find_place(self, position: Position, *, has_gap: bool) -> int | None:
        """The number of the event after a position; `None` if the ring does not have all that is needed.

        A watcher with a gap has not seen what came before the ring, so it needs the beginning of an answer around it.
        Deltas that another process has told are joined, and one who has seen a part of them elsewhere gets the whole
        answer: as its record, or with a snapshot.
        """
        ring = self.ring
        at = bisect_right(ring, position, key=_get_position)
        if position < self.floor or (has_gap and self._is_in_answer(at)):
            return None
        is_known = position == (ring[at - 1].position if at else self.floor)
        if not is_known and at < len(ring) and ring[at].update is not None:
            at = self._find_end(at)
        return None if at is None else self.first + at

    def find_place_outside(self, position: Position) -> int:
        """The number of the first event after a position that is not inside of an answer which began before it."""
        at = bisect_right(self.ring, position, key=_get_position)
        end = self._find_end(at) if self._is_in_answer(at) else at
        return self.end if end is None else self.first + end

    def _find_end(self, at: int) -> int | None:
        """Where the answer ends in the ring that is arriving at a place."""
        return next((end for end in range(at, len(self.ring)) if self.ring[end].in_answer is False), None)

    def wake(self) -> None:
        """Wake all watchers: there are new events, or it is time for a sign of life."""
        self._waking = False
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Events out

    async def wait(self) -> None:
        """Wait for the next event."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def wait_for_held(self) -> None:
        """Wait until no event is held back, so that the answer so far ends where the shown events end."""
        while self._held and not self.closed:
            await self.wait()

    def make_snapshot(self) -> Item | None:
        """The answer that is arriving, as far as it was shown; `None` if there is none."""
        message = None if self._update is None else self._update.message
        if message is None:
            return None
        record, number = self.position
        return _make_snapshot(Position(record, max(number, 0)), self.spans.find(record), message)

    def read_lines(self, after: int, most: int = STORE_BATCH) -> Sequence[tuple[int, bytes]]:
        """Encoded records from the store, after a number. It blocks, so call it in a thread.

        Raises `SessionError` if the store cannot be read; a session that was deleted has no more records.
        """
        found: list[tuple[int, bytes]] = []
        size = 0
        with self._reading:
            try:
                if self._reader is None:
                    self._reader = self.store.open(self.session_id, write=False)
                for seq, line in islice(self._reader.lines(after), most):
                    found.append((seq, line))
                    size += len(line)
                    if size >= STORE_BYTES:
                        break
            except SessionNotFound:
                self._close_reader()
            except SessionError:
                self._close_reader()
                raise
            if self.closed or not self.watchers:
                self._close_reader()  # no watcher is there to close it later
        return found

    def release_reader(self) -> None:
        """Close the store's handle, which a store opens only after a look at the whole session. Call it in a thread."""
        with self._reading:
            self._close_reader()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _get_position(item: Item) -> Position:
    return item.position


def _begins_answer(event: AgentEvent) -> bool | None:
    return True if type(event) is MessageStart and event.message.role == "assistant" else None


def _make_snapshot(position: Position, loop_id: str, message: object) -> Item:
    fields = {"type": "snapshot", "loop_id": loop_id, "seq": position.record, "message": message}
    return Item(position, msgspec.json.encode(fields), in_answer=True)
