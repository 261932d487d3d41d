"""Hears what an agent does and has it written: entries of the log, queued messages, calls, beginnings and ends of runs.

Nothing here decides, waits or raises: what cannot be kept is told in the log of the program, and the agent goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Protocol

from steersman.context.entries import Entry, MessageEntry
from steersman.session.index import Index
from steersman.session.journal import Journal
from steersman.session.records import Payload, Record, entry_fields, plain, without
from steersman.session.tree import Node
from steersman.types.content import ToolCall
from steersman.types.errors import describe_exception
from steersman.types.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    CompactionEnded,
    CompactionStarted,
    InputRejected,
    LoopDetected,
    ModelFallback,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from steersman.types.messages import AgentMessage
from steersman.types.model import ToolSpec


class Marks:
    """Hears the events of an agent's runs, and gives what the records of a call, a run and its end say more."""

    def __init__(self) -> None:
        self._intended: set[str] = set()
        self._open: dict[str, int] = {}
        self._crowded: set[str] = set()
        self._turns = 0
        self._trigger = ""
        self._before = ""
        self._spoken: tuple[str, tuple[ToolSpec, ...]] | None = None
        self._written: tuple[str, tuple[ToolSpec, ...]] | None = None

    def spoken(self, system_prompt: str, tools: Iterable[ToolSpec]) -> None:
        """How the model is spoken to in the run that is about to begin."""
        self._spoken = system_prompt, tuple(tools)

    def run_began(self) -> Payload:
        """How the model is spoken to, where that is not what was written last."""
        if self._spoken is None or self._spoken == self._written:
            return {}
        self._written = system_prompt, tools = self._spoken
        specs: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
        ]
        return {"system_prompt": system_prompt, "tools": specs}

    def run_ended(self, event: AgentEnd) -> Payload:
        """How many turns the run took, what made the first one happen, and why it was ending when it was aborted."""
        turns, trigger, before = self._turns, self._trigger, self._before
        self._turns, self._trigger, self._before = 0, "", ""
        self._intended.clear()
        self._open.clear()
        self._crowded.clear()
        if not turns:
            return {}
        more = {"turns": turns, "trigger": trigger}
        return {**more, "before": before} if before not in ("", event.end_reason) else more

    def turn_began(self, event: TurnStart) -> None:
        """One more turn; the first may only settle old calls, and then says nothing about why the run was started."""
        if self._trigger in ("", "continuation"):
            self._trigger = event.triggered_by
        self._turns = event.turn_index + 1

    def turn_ended(self, event: TurnEnd) -> None:
        """A turn without an answer says why the run ends."""
        self._before = "" if event.message is not None else event.reason

    def intended(self, call_id: str) -> None:
        """The arguments of this call are written already."""
        self._intended.add(call_id)

    def call_began(self, event: ToolExecutionStart) -> None:
        """A call is open; if another one is, their order has to be told."""
        self._open[event.tool_call_id] = event.seq
        if len(self._open) > 1:
            self._crowded.update(self._open)

    def call_ended(self, event: ToolExecutionEnd) -> Payload:
        """The numbers of a call's two events if others lay between them, and its arguments where nobody has them."""
        began = self._open.pop(event.tool_call_id, None)
        more: Payload = {}
        if event.tool_call_id in self._crowded and began is not None:
            self._crowded.discard(event.tool_call_id)
            more["span"] = [began, event.seq]
        if event.tool_call_id not in self._intended:
            more["arguments"] = event.args
        return more


_UNTOLD = frozenset(("type", "seq", "timestamp"))
_UNTIMED = frozenset(("loop_id", "seq", "timestamp"))

_log = logging.getLogger("steersman")


class QueuedMessage(Protocol):
    """A message that waits to be heard, as the loop's inbox has it."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def message(self) -> AgentMessage: ...
    @property
    def mode(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...


class Recorder:
    """Writes one session through its journal; without one, nothing is written."""

    def __init__(self, journal: Journal | None, index: Index) -> None:
        self.index = index
        self.journal = journal
        self.marks = Marks()
        self._keys: set[str] = set()
        self._run_keys: Set[str] = frozenset()
        self._delivering: QueuedMessage | None = None

    @property
    def degraded(self) -> str | None:
        """Why what happens is in memory only at the moment; `None` when it is kept."""
        return None if self.journal is None else self.journal.degraded

    def add(self, type: str, payload: Payload, *, id: str | None = None) -> Record | None:
        """Have a record written under the entry where the session stands."""
        if self.journal is None:
            return None
        return self.journal.add(type, self.clean(payload), id=id, parent=self.index.tree.tip)

    def clean(self, value: Any) -> Any:
        """The same without the keys that are left out of what is written."""
        secrets = (*tuple(self._keys), *tuple(self._run_keys))
        return without(value, secrets) if secrets else value

    def said(self, entry: Entry) -> None:
        """An entry was added to the log."""
        try:
            self._write(entry)
        except Exception as error:  # noqa: BLE001  # a log cannot take an entry back, so its listener must not raise
            _log.error("The entry %r could not be written to the session: %s", entry.id, describe_exception(error))

    def _write(self, entry: Entry) -> None:
        payload = entry_fields(entry)
        tree = self.index.tree
        if tree.moves:
            payload["branch"] = tree.moves
        queued = self._heard(entry)
        if queued is not None:
            # In the same record, so that there is no moment at which it is both said and waiting.
            payload["queue_id"] = queued.id
        record = self.add(entry.type, payload, id=entry.id)
        if record is not None:
            own = self.index.running
            self.index.grow(Node(record.id, record.parent, record.seq, record.type, record.time, own))
        if queued is not None:
            self.index.heard(queued.id)

    def _heard(self, entry: Entry) -> QueuedMessage | None:
        """The queued message that is said here, if it is one."""
        queued = self._delivering
        if queued is None or not isinstance(entry, MessageEntry) or entry.message.content is not queued.message.content:
            return None
        self._delivering = None
        return queued

    def hear(self, event: AgentEvent) -> None:
        """Something happened in a run of the agent. Deltas come by the thousand and pass through here quickly."""
        tell = _TOLD.get(type(event))
        if tell is None:
            return
        try:
            tell(self, event)
        except Exception as error:  # noqa: BLE001  # a subscriber that raises is heard of once and then never again
            _log.error("The event %r could not be written to the session: %s", event.type, describe_exception(error))

    def accepted(self, item: QueuedMessage, /) -> None:
        """A message was queued."""
        payload = {"kind": item.kind, "message": plain(item.message), "mode": item.mode, "key": item.key}
        self.index.waiting[item.id] = payload
        self.add("accepted", payload, id=item.id)

    def delivering(self, item: QueuedMessage, /) -> None:
        """A queued message is about to be said."""
        self._delivering = item

    def delivered(self, item: QueuedMessage, entry_id: str, /) -> None:
        """A queued message was said."""
        self._delivering = None
        self.index.heard(item.id)
        self.add("delivered", {"queue_id": item.id, "entry_id": entry_id})

    def returned(self, item: QueuedMessage, /) -> None:
        """A queued message was taken back."""
        self.index.waiting.pop(item.id, None)
        self.add("returned", {"queue_id": item.id})

    def redact(self, secrets: Set[str], /) -> None:
        """Leave these keys out of what is written; the set is the run's and may grow."""
        self._keys |= self._run_keys
        self._run_keys = secrets

    def hide_always(self, secrets: Set[str]) -> None:
        """Leave these keys out as well, in this run and in all others."""
        self._keys |= secrets

    async def record_intent(self, calls: Sequence[ToolCall], /) -> None:
        """Return once it is kept that these calls are about to start."""
        for call in calls:
            self.marks.intended(call.id)
            self.add("intent", {"tool_call_id": call.id, "tool_name": call.name, "arguments": plain(call.arguments)})
        await self.save()

    async def save(self) -> None:
        """Return once everything told so far is kept, or the store has refused it."""
        if self.journal is not None:
            await self.journal.synced()


def _call_ended(recorder: Recorder, event: ToolExecutionEnd) -> None:
    more = recorder.marks.call_ended(event)
    recorder.add("result", {"tool_call_id": event.tool_call_id, "message": plain(event.result), **plain(more)})


def _run_started(recorder: Recorder, event: AgentStart) -> None:
    fields = {name: value for name, value in plain(event).items() if name not in _UNTOLD}
    recorder.add("run_start", {**fields, **plain(recorder.marks.run_began())})
    recorder.index.started(fields)


def _run_ended(recorder: Recorder, event: AgentEnd) -> None:
    fields = {"loop_id": event.loop_id, "end_reason": event.end_reason, "detail": event.detail}
    recorder.add("run_end", {**fields, **recorder.marks.run_ended(event), "usage": plain(event.usage)})
    recorder.index.ended()


def _call_started(recorder: Recorder, event: ToolExecutionStart) -> None:
    recorder.marks.call_began(event)


def _turn_started(recorder: Recorder, event: TurnStart) -> None:
    recorder.marks.turn_began(event)


def _turn_ended(recorder: Recorder, event: TurnEnd) -> None:
    recorder.marks.turn_ended(event)


def _happened(recorder: Recorder, event: AgentEvent) -> None:
    """What no other record tells."""
    recorder.add("event", {name: value for name, value in plain(event).items() if name not in _UNTIMED})


_TOLD: dict[type[Any], Callable[[Recorder, Any], None]] = {
    ToolExecutionEnd: _call_ended,
    AgentStart: _run_started,
    AgentEnd: _run_ended,
    ToolExecutionStart: _call_started,
    TurnStart: _turn_started,
    TurnEnd: _turn_ended,
    CompactionStarted: _happened,
    CompactionEnded: _happened,
    InputRejected: _happened,
    LoopDetected: _happened,
    ModelFallback: _happened,
    RetryScheduled: _happened,
}
