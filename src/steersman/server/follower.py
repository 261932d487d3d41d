"""Follows a session that is open in another process: shows its records at once, and what its run does between them.

Nothing is shown twice and nothing in the wrong order: records come from the store alone, and what comes between them
only if it follows the last record that is shown here. Where a delta is missing, those after it are left out until the
writer has sent the answer so far, or the answer has its record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from steersman.provider.streaming.partial import GrowingAnswer
from steersman.server.hub import Hub
from steersman.server.position import Position
from steersman.session.relay import Piece, Snapshot, Told, read_told
from steersman.session.stores.store import FollowedStore, Following, SessionError
from steersman.tools.threads import call_soon_in
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.events import MessageStart, MessageUpdate
from steersman.types.messages import PartialMessage
from steersman.types.stream import (
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.wire import decode

# After so many more messages with deltas the answer so far is asked for again.
_PATIENCE = 10
# Seconds until the next look after the store could not be read.
_PAUSE = 1.0

_log = logging.getLogger("steersman.server")


class Answer:
    """An answer that arrives elsewhere, put together from what is told of it."""

    def __init__(self, message: PartialMessage) -> None:
        self._deltas: list[StreamEvent] = []
        self._growing = GrowingAnswer(self._deltas, msgspec.structs.replace(message, content=()))
        for at, block in enumerate(message.content):
            self._deltas += _make_deltas(at, block)

    def add(self, update: MessageUpdate) -> None:
        """Add what is new; from then on the update knows the whole answer so far."""
        self._deltas.append(update.delta)
        force_setattr(update, "_source", (self._growing.read, update.seq - len(self._deltas)))


def _make_deltas(at: int, block: object) -> list[StreamEvent]:
    """The deltas that make a block of content."""
    match block:
        case TextContent():
            return [TextDelta(block.text, at)]
        case ThinkingContent():
            return [ThinkingDelta(block.thinking, at)]
        case ToolCall(complete=True):
            return [ToolCallEnd(at, block)]
        case ToolCall():
            return [ToolCallStart(at, block.id, block.name), ToolCallDelta(block.raw_arguments or "", at)]
        case _:
            return []


class Follower:
    """Shows a hub what happens to its session elsewhere; `end` is called when the process that ran it is gone."""

    def __init__(
        self,
        hub: Hub,
        store: FollowedStore,
        end: Callable[[Hub], None],
        start_task: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._hub = hub
        self._start_task = start_task
        self._store = store
        self._end = end
        # Whether a process was seen that writes the session.
        self._had_writer = False
        self._loop = asyncio.get_running_loop()
        self._following: Following | None = None
        self._heard: deque[bytes | None] = deque()
        self._is_showing = False
        self._closed = False
        # The answers whose beginnings are known, by the ids of their runs, and the last event that was told.
        self._answers: dict[str, Answer] = {}
        self._serial = 0
        self._missed = 0

    async def open(self) -> None:
        """Begin to listen; raises `SessionError`."""
        following = await asyncio.to_thread(self._store.follow, self._hub.session_id, self._hear)
        if self._closed:
            await asyncio.to_thread(following.close)
        self._following = following

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        following, self._following = self._following, None
        self._heard.clear()
        if following is not None:
            self._loop.run_in_executor(None, following.close)

    def _hear(self, data: bytes | None) -> None:
        call_soon_in(self._loop, self._take, data)

    def _take(self, data: bytes | None) -> None:
        if self._closed or (data is None and self._heard and self._heard[-1] is None):
            return
        self._heard.append(data)
        if not self._is_showing:
            self._is_showing = True
            self._start_task(self._show_all())

    async def _show_all(self) -> None:
        try:
            while self._heard:
                data = self._heard.popleft()
                try:
                    if data is None:
                        await self._hub.refresh()
                        await self._check_writer()
                    elif (told := read_told(data)) is not None:
                        self._had_writer = True
                        await self._show(told)
                except SessionError as error:
                    _log.error("The events of %r could not be read: %s", self._hub.session_id, error)
                    self._loop.call_later(_PAUSE, self._take, None)
        finally:
            self._is_showing = False

    async def _check_writer(self) -> None:
        """Find out whether the process is gone that ran the session."""
        hub = self._hub
        if not hub.spans.find(hub.last_record) or self._closed:
            return  # no run goes on
        has_writer = await asyncio.to_thread(self._store.has_writer, hub.session_id)
        if self._had_writer and not has_writer:
            await hub.refresh()  # it may have ended its run and closed the session since the last look
            if hub.spans.find(hub.last_record) and not self._closed:
                self._end(hub)
        self._had_writer = has_writer

    async def _show(self, told: Told) -> None:
        if told.saved:
            await self._show_records(told.saved)
        for piece in told.pieces:
            await self._show_records(piece.record)
            self._show_piece(piece)
        if told.snapshot is not None:
            await self._show_records(told.snapshot.record)
            self._show_snapshot(told.snapshot)

    async def _show_records(self, last: int) -> None:
        if last > self._hub.last_record and not self._closed:
            await self._hub.refresh(last)

    def _show_piece(self, piece: Piece) -> None:
        """Show an event, unless there are records after it, or it is of an answer of which something is missing."""
        position = Position(piece.record, piece.number)
        is_next, self._serial = self._serial == piece.serial - piece.count, piece.serial
        is_late = piece.record != self._hub.last_record or position <= self._hub.position
        if is_late or not is_next:
            self._answers.clear()
        if is_late or self._closed:
            return
        event: Any = decode(bytes(piece.event))
        if type(event) is MessageStart and event.message.role == "assistant":
            message = event.message
            head = PartialMessage(model=message.model, provider=message.provider, timestamp=message.timestamp)
            self._answers[event.loop_id] = Answer(head)
        elif type(event) is MessageUpdate:
            answer = self._answers.get(event.loop_id)
            if answer is None:
                self._ask()
                return
            answer.add(event)
        self._hub.show_piece(position, bytes(piece.event), event)

    def _show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the answer so far, if something of it is missing here."""
        position = Position(snapshot.record, snapshot.number)
        is_late = snapshot.record != self._hub.last_record or position <= self._hub.position
        if snapshot.loop_id in self._answers or is_late or self._closed:
            return
        message = decode(bytes(snapshot.message))
        if isinstance(message, PartialMessage):
            self._serial, self._missed = snapshot.serial, 0
            self._answers[snapshot.loop_id] = Answer(message)
            self._hub.show_snapshot(position, snapshot)

    def _ask(self) -> None:
        """Ask for the answer so far, and again where it does not come."""
        if self._missed % _PATIENCE == 0 and self._following is not None:
            self._following.ask()
        self._missed += 1
