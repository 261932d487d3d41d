"""Tells the processes that follow a session what happens in it: each record once it is saved, and deltas joined, 10 Hz.

What is not recorded has a position: the number of the record before it, and how many came since. One that follows and
sees by these numbers that it has missed something asks, and gets the answer so far as a snapshot. What is told is never
needed: the record of an answer has all of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from steersman.session.journal import JournalWriter
from steersman.session.stores.store import FollowedHandle
from steersman.tools.threads import call_soon_in
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    ApprovalRequested,
    ApprovalResolved,
    CompactionEnded,
    CompactionStarted,
    InputRejected,
    LoopDetected,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    PrunApplied,
    RetryScheduled,
    ToolExecutionEnd,
)
from steersman.types.stream import TextDelta, ThinkingDelta, ToolCallDelta
from steersman.types.wire import encode

RECORDED: Final = frozenset((
    AgentEnd, AgentStart, ApprovalRequested, ApprovalResolved, CompactionEnded, CompactionStarted, InputRejected,
    LoopDetected, MessageEnd, ModelFallback, PrunApplied, RetryScheduled, ToolExecutionEnd,
))  # fmt: skip
"""The events of a run that have a record: they are read from there."""
INTERVAL: Final = 0.1
"""Seconds between two messages with events that have no record."""

_JOINABLE = (TextDelta, ThinkingDelta, ToolCallDelta)
_MESSAGE_BYTES = 48 << 10
_encoder = msgspec.json.Encoder()


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """An event without a record, or `count` deltas that were joined; it is the `number`-th since the record.

    `serial` counts all events: a piece follows another one if nothing is missing between their serials.
    """

    record: int
    number: int
    serial: int
    count: int
    event: msgspec.Raw


class Snapshot(msgspec.Struct, frozen=True):
    """The answer so far."""

    record: int
    number: int
    serial: int
    loop_id: str
    message: msgspec.Raw


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message to those that follow; `saved` is the number of the last record."""

    saved: int = 0
    pieces: Sequence[Piece] = ()
    snapshot: Snapshot | None = None


_told: msgspec.json.Decoder[Told] = msgspec.json.Decoder(Told)


def read_told(data: bytes) -> Told | None:
    """The message; `None` for one of a version that speaks otherwise."""
    try:
        return _told.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@dataclass(slots=True)
class _Waiting:
    """An event that is to be sent, with the texts of those that were joined to it."""

    record: int
    number: int
    serial: int
    event: AgentEvent
    texts: list[str] | None

    def join(self, record: int, number: int, serial: int, event: AgentEvent) -> bool:
        """Join a delta of the same block that comes next; returns whether it could be."""
        mine = self.event.delta if type(self.event) is MessageUpdate else None
        other = event.delta if type(event) is MessageUpdate else None
        if self.texts is None or not isinstance(mine, _JOINABLE) or not isinstance(other, _JOINABLE):
            return False
        if record != self.record or type(mine) is not type(other) or mine.content_index != other.content_index:
            return False
        self.texts.append(other.delta)
        self.number, self.serial = number, serial
        return True

    def build(self) -> Piece:
        """The piece to send."""
        event: Any = self.event
        if self.texts is not None and len(self.texts) > 1:
            event = msgspec.structs.replace(
                event, delta=msgspec.structs.replace(event.delta, delta="".join(self.texts))
            )
        event = msgspec.structs.replace(event, seq=self.record)
        count = 1 if self.texts is None else len(self.texts)
        return Piece(self.record, self.number, self.serial, count, msgspec.Raw(encode(event)))


Feed: TypeAlias = "Callable[[Relay], Callable[[], None]]"
"""What gives a relay the events of runs, from now on; returns a function that ends this."""


class Relay:
    """The writer's side. It is fed only while a process follows the session."""

    def __init__(self, handle: FollowedHandle, journal: JournalWriter, feed: Feed) -> None:
        self._handle = handle
        self._journal = journal
        self._feed = feed
        self._lock = threading.RLock()
        self._stop: Callable[[], None] | None = None
        self._waiting: list[_Waiting] = []
        self._record = self._number = self._serial = 0
        self._update: tuple[int, MessageUpdate] | None = None
        self._is_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0

    def join(self) -> None:
        """A process has begun to follow, or asks where the run is. For any thread."""
        with self._lock:
            self._is_asked = True
            if self._stop is None:
                self._stop = self._feed(self)
        if self._loop is not None:
            call_soon_in(self._loop, self._flush)

    def stop(self) -> None:
        """Send nothing until another process follows."""
        with self._lock:
            stop, self._stop = self._stop, None
            self._waiting.clear()
            self._update = None
            self._is_asked = False
            self._serial += 1  # what happens until then is missing
        if stop is not None:
            stop()

    def change_feed(self, feed: Feed) -> None:
        """Get the events from another source."""
        with self._lock:
            was_fed = self._stop is not None
            self.stop()
            self._feed = feed
        if was_fed:
            self.join()

    def add_event(self, event: AgentEvent) -> None:
        """Take an event of the agent that has the session."""
        if type(event) not in RECORDED:
            record = self._journal.seq
            self.add(record, self._number + 1 if record == self._record else 1, event)

    def add(self, record: int, number: int, event: AgentEvent) -> None:
        """Take an event without a record, the `number`-th since a record; in the event loop of the run."""
        with self._lock:
            self._record, self._number = record, number
            if type(event) is MessageUpdate:
                self._update = record, event
            elif type(event) is MessageStart:
                self._is_asked = False  # those that follow see the answer from its beginning
            self._serial = serial = self._serial + 1
            if not self._waiting or not self._waiting[-1].join(record, number, serial, event):
                delta = event.delta if type(event) is MessageUpdate else None
                texts = [delta.delta] if isinstance(delta, _JOINABLE) else None
                self._waiting.append(_Waiting(record, number, serial, event, texts))
        self._schedule()

    def note_saved(self, seq: int) -> None:
        """Tell at once that records up to a number are saved, after what came before them. For any thread."""
        with self._lock:
            self._send_waiting(seq - 1)
            self._send(Told(saved=seq))

    def set_place(self, record: int, number: int, update: MessageUpdate | None) -> None:
        """Set where the run is, for a source that knows it; in the event loop of the run."""
        with self._lock:
            self._record, self._number = record, number
            self._update = None if update is None else (record, update)
            self._loop = asyncio.get_running_loop()
        self._flush()

    def _schedule(self) -> None:
        if self._timer is None:
            self._loop = loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._sent_at + INTERVAL), self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._sent_at = asyncio.get_running_loop().time()
        with self._lock:
            self._send_waiting(self._journal.last_saved)
            if self._is_asked:
                self._send_snapshot()
            if self._waiting:
                self._schedule()  # they wait for their record

    def _send_snapshot(self) -> None:
        """Send the answer so far. One that began before this was fed is known with its next delta."""
        record, update = self._update or (0, None)
        message = None if update is None else update.message
        # An answer goes on as long as it has no record; with other records in between, its next delta says so.
        if update is None or message is None or self._waiting or self._journal.seq != record:
            return
        self._is_asked = False
        snapshot = Snapshot(record, self._number, self._serial, update.loop_id, msgspec.Raw(encode(message)))
        self._send(Told(snapshot=snapshot))

    def _send_waiting(self, last: int) -> None:
        """Send what waits and follows a record up to this one."""
        count = next((at for at, one in enumerate(self._waiting) if one.record > last), len(self._waiting))
        pieces, size = list[Piece](), 0
        for one in self._waiting[:count]:
            piece = one.build()
            if pieces and size + len(bytes(piece.event)) > _MESSAGE_BYTES:
                self._send(Told(pieces=pieces))
                pieces, size = [], 0
            pieces.append(piece)
            size += len(bytes(piece.event))
        if pieces:
            self._send(Told(pieces=pieces))
        del self._waiting[:count]

    def _send(self, told: Told) -> None:
        if self._stop is not None and not self._handle.broadcast(_encoder.encode(told)):
            self.stop()
