"""How activities read and write a session, for which several of them may be at work at once, on several machines.

Each one opens the session for as long as it writes. A writer that does not give it back in time is fenced: the store
refuses whatever it still writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from steersman.context.entries import MessageEntry
from steersman.context.repair import NOT_STARTED, UNKNOWN, Recovery, find_open_calls
from steersman.durable.workflow_agent.values import Json, NewEntry
from steersman.loop.inbox import QueuedMessage, Receipt
from steersman.provider.models.registry import find_known_keys
from steersman.session.records import Payload, Record, redact_values, to_json_value
from steersman.session.restore import read_message, read_waiting
from steersman.session.session import Session
from steersman.session.stores.store import (
    Handle,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    SharedStore,
    Store,
    read_records,
)
from steersman.tools.threads import call_in_thread
from steersman.types.content import TextContent, ToolCall
from steersman.types.ids import new_id
from steersman.types.messages import AssistantMessage, ToolResultMessage

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds to wait for another writer before the session is taken over from it."""

_PAUSE = 0.02


async def open_session(
    store: Store, session_id: str, clock: Callable[[], float], *, take_over: bool = False
) -> Session:
    """The session, open for writing; it is created if there is none."""
    handle = await _open_handle(store, session_id, create=True, take_over=take_over)
    return await call_in_thread(Session, handle, clock=clock)


async def _open_handle(store: Store, session_id: str, *, create: bool, take_over: bool = False) -> Handle:
    deadline = asyncio.get_running_loop().time() + (0 if take_over else PATIENCE)
    while True:
        try:
            return await call_in_thread(store.open, session_id)
        except SessionNotFound:
            if not create:
                raise
        except SessionBusy:
            if asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(_PAUSE)
                continue
            if not isinstance(store, SharedStore):
                raise
            return await call_in_thread(store.take_over, session_id)
        try:
            return await call_in_thread(store.create, session_id)
        except SessionExists:
            continue  # made by another one meanwhile


class CallRecords:
    """The records of one tool call: whether it was begun, and how it ended."""

    def __init__(self, store: Store, session_id: str, answer: int, call_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._answer = answer
        self._call_id = call_id

    async def read_call(self) -> ToolCall:
        """The call, as the answer in that record has it; raises `LookupError` if it is not there."""
        records = await call_in_thread(self._read_first)
        message = read_message(records.payload.get("message")) if records is not None else None
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.id == self._call_id:
                    return call
        raise LookupError(f"Record {self._answer} of session {self._session_id!r} has no call {self._call_id!r}.")

    def _read_first(self) -> Record | None:
        handle = self._store.open(self._session_id, write=False)
        try:
            return next(read_records(handle, self._answer - 1), None)
        finally:
            handle.close()

    async def begin(self, call: ToolCall, entry_id: str, now: float) -> Begun:
        """Record that the call is about to start, unless it was begun before; the two are one step under the lock."""

        def work(handle: Handle) -> Begun:
            begun = self._find(handle)
            if not begun.was_begun:
                arguments = to_json_value(call.arguments)
                payload = {"tool_call_id": call.id, "tool_name": call.name, "arguments": arguments}
                _append(handle, "intent", payload, entry_id, now)
            return begun

        return await self._write(work)

    async def end(self, result: ToolResultMessage, duration: float, entry_id: str, now: float) -> None:
        """Record the result of the call."""

        def work(handle: Handle) -> None:
            if self._find(handle).result is None:
                message = to_json_value(result)
                payload = {"tool_call_id": self._call_id, "message": message, "duration": duration}
                _append(handle, "result", payload, entry_id, now)

        await self._write(work)

    async def _write(self, work: Callable[[Handle], T]) -> T:
        handle = await _open_handle(self._store, self._session_id, create=False)
        try:
            return await call_in_thread(work, handle)
        finally:
            await call_in_thread(handle.close)

    def _find(self, handle: Handle) -> Begun:
        begun = Begun()
        for record in read_records(handle, self._answer):
            if record.payload.get("tool_call_id") != self._call_id:
                continue
            if record.type == "intent":
                begun.was_begun = True
            elif record.type == "result":
                message = read_message(record.payload.get("message"))
                begun.result = message if isinstance(message, ToolResultMessage) else None
        return begun


class Begun:
    """What an earlier attempt at a call has left."""

    def __init__(self) -> None:
        self.was_begun = False
        self.result: ToolResultMessage | None = None


def _append(handle: Handle, type: str, payload: Payload, parent: str, now: float) -> None:
    redacted = redact_values(payload, find_known_keys())
    handle.append([Record(new_id("record"), parent, handle.last_seq + 1, type, now, redacted)])


def add_entries(session: Session, entries: Sequence[NewEntry], now: float) -> None:
    """Add the workflow's new entries to the log of the session, without those that an earlier attempt has added."""
    log = session.log
    known = {entry.id for entry in log.entries}
    recovery = session.recovery or Recovery({}, frozenset(), {})
    _settle_foreign_calls(session, entries, recovery, now)
    for entry in entries:
        if entry.id in known:
            continue
        message: Any = recovery.results.get(entry.call_id) if entry.message is None else read_message(entry.message)
        if message is None:
            message = _build_unknown(entry.call_id, session, now)
        mint, log.mint = log.mint, _always(entry.id)
        try:
            log.append(message)
        finally:
            log.mint = mint


def read_queue(queued: Sequence[Json]) -> list[QueuedMessage]:
    """Queued messages that were written down, without what is none."""
    found = [item for fields in queued if (item := read_waiting(str(fields.get("id")), fields)) is not None]
    return [
        QueuedMessage(item.kind, item.message, Receipt(item.message, "next_run"), item.mode, item.id, item.key)
        for item in found
    ]


def queue_messages(session: Session, queued: Sequence[Json]) -> None:
    """Leave messages for the next run of the session, without those that an earlier attempt has left."""
    for item in read_queue(queued):
        if item.id not in session.recorder.index.waiting:
            session.recorder.on_accept(item)


def _always(id: str) -> Callable[[str], str]:
    return lambda _kind: id


def _settle_foreign_calls(session: Session, entries: Sequence[NewEntry], recovery: Recovery, now: float) -> None:
    """Answer the calls that an earlier run has left open, if these entries do not: that run was of another program."""
    left = find_open_calls(session.log.messages)
    if left is None:
        return
    answered = {entry.call_id for entry in entries if entry.call_id}
    answered |= {str((entry.message or {}).get("tool_call_id")) for entry in entries}
    for call in left.calls:
        if call.id not in answered:
            text = UNKNOWN if call.id in recovery.started else NOT_STARTED
            session.log.append(recovery.results.get(call.id) or _build_result(call.id, call.name, text, now))


def _build_unknown(call_id: str, session: Session, now: float) -> ToolResultMessage:
    """A result whose record is not there although its activity ended: a store may have lost its last records."""
    left = find_open_calls(session.log.messages)
    names = {} if left is None else {call.id: call.name for call in left.calls}
    return _build_result(call_id, names.get(call_id, ""), UNKNOWN, now)


def _build_result(call_id: str, name: str, text: str, now: float) -> ToolResultMessage:
    return ToolResultMessage(
        [TextContent(text)],
        timestamp=now,
        synthetic=True,
        tool_call_id=call_id,
        tool_name=name,
        is_error=True,
        details={"status": "interrupted" if text == UNKNOWN else "not_started"},
    )


def find_answer(session: Session, entry_id: str) -> AssistantMessage | None:
    """The answer that an earlier attempt has added under this id."""
    for entry in reversed(session.log.entries):
        if entry.id == entry_id and isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
            return entry.message
    return None


def find_record(session: Session, entry_id: str, after: int) -> int:
    """The number of the record of an entry, which comes after another record."""
    return next(record.seq for record in session.records(after) if record.id == entry_id)
