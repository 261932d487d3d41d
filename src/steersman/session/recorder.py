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
from steersman.session.records import Payload, Record, encode_entry, redact_values, to_json_value
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


class RunDetails:
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

    def set_prompt(self, system_prompt: str, tools: Iterable[ToolSpec]) -> None:
        """How the model is spoken to in the run that is about to begin."""
        self._spoken = system_prompt, tuple(tools)

    def start_run(self) -> Payload:
        """How the model is spoken to, where that is not what was written last."""
        if self._spoken is None or self._spoken == self._written:
            return {}
        self._written = system_prompt, tools = self._spoken
        specs: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
        ]
        return {"system_prompt": system_prompt, "tools": specs}

    def end_run(self, event: AgentEnd) -> Payload:
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

    def start_turn(self, event: TurnStart) -> None:
        """One more turn; the first may only settle old calls, and then says nothing about why the run was started."""
        if self._trigger in ("", "continuation"):
            self._trigger = event.triggered_by
        self._turns = event.turn_index + 1

    def end_turn(self, event: TurnEnd) -> None:
        """A turn without an answer says why the run ends."""
        self._before = "" if event.message is not None else event.reason

    def add_intent(self, call_id: str) -> None:
        """The arguments of this call are written already."""
        self._intended.add(call_id)

    def start_call(self, event: ToolExecutionStart) -> None:
        """A call is open; if another one is, their order has to be told."""
        self._open[event.tool_call_id] = event.seq
        if len(self._open) > 1:
            self._crowded.update(self._open)

    def end_call(self, event: ToolExecutionEnd) -> Payload:
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
        self.details = RunDetails()
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
        return self.journal.add(type, self.redact_value(payload), id=id, parent=self.index.tree.tip)

    def redact_value(self, value: Any) -> Any:
        """The same without the keys that are left out of what is written."""
        secrets = (*tuple(self._keys), *tuple(self._run_keys))
        return redact_values(value, secrets) if secrets else value

    def record_entry(self, entry: Entry) -> None:
        """An entry was added to the log."""
        try:
            self._write_entry(entry)
        except Exception as error:  # noqa: BLE001  # a log cannot take an entry back, so its listener must not raise
            _log.error("The entry %r could not be written to the session: %s", entry.id, describe_exception(error))

    def _write_entry(self, entry: Entry) -> None:
        payload = encode_entry(entry)
        tree = self.index.tree
        if tree.moves:
            payload["branch"] = tree.moves
        queued = self._match_queued_message(entry)
        if queued is not None:
            # In the same record, so that there is no moment at which it is both said and waiting.
            payload["queue_id"] = queued.id
        record = self.add(entry.type, payload, id=entry.id)
        if record is not None:
            own = self.index.running
            self.index.add_node(Node(record.id, record.parent, record.seq, record.type, record.time, own))
        if queued is not None:
            self.index.mark_heard_message(queued.id)

    def _match_queued_message(self, entry: Entry) -> QueuedMessage | None:
        """The queued message that is said here, if it is one."""
        queued = self._delivering
        if queued is None or not isinstance(entry, MessageEntry) or entry.message.content is not queued.message.content:
            return None
        self._delivering = None
        return queued

    def record_event(self, event: AgentEvent) -> None:
        """Something happened in a run of the agent. Deltas come by the thousand and pass through here quickly."""
        tell = _RECORDERS.get(type(event))
        if tell is None:
            return
        try:
            tell(self, event)
        except Exception as error:  # noqa: BLE001  # a subscriber that raises is heard of once and then never again
            _log.error("The event %r could not be written to the session: %s", event.type, describe_exception(error))

    def on_accept(self, item: QueuedMessage, /) -> None:
        """A message was queued."""
        payload = {"kind": item.kind, "message": to_json_value(item.message), "mode": item.mode, "key": item.key}
        self.index.waiting[item.id] = payload
        self.add("accepted", payload, id=item.id)

    def on_delivery_start(self, item: QueuedMessage, /) -> None:
        """A queued message is about to be said."""
        self._delivering = item

    def on_delivery_end(self, item: QueuedMessage, entry_id: str, /) -> None:
        """A queued message was said."""
        self._delivering = None
        self.index.mark_heard_message(item.id)
        self.add("delivered", {"queue_id": item.id, "entry_id": entry_id})

    def on_return(self, item: QueuedMessage, /) -> None:
        """A queued message was taken back."""
        self.index.waiting.pop(item.id, None)
        self.add("returned", {"queue_id": item.id})

    def redact(self, secrets: Set[str], /) -> None:
        """Leave these keys out of what is written; the set is the run's and may grow."""
        self._keys |= self._run_keys
        self._run_keys = secrets

    def add_keys(self, secrets: Set[str]) -> None:
        """Leave these keys out as well, in this run and in all others."""
        self._keys |= secrets

    async def record_intent(self, calls: Sequence[ToolCall], /) -> None:
        """Return once it is kept that these calls are about to start."""
        for call in calls:
            self.details.add_intent(call.id)
            self.add(
                "intent", {"tool_call_id": call.id, "tool_name": call.name, "arguments": to_json_value(call.arguments)}
            )
        await self.save()

    async def save(self) -> None:
        """Return once everything told so far is kept, or the store has refused it."""
        if self.journal is not None:
            await self.journal.wait_until_saved()


def _record_call_end(recorder: Recorder, event: ToolExecutionEnd) -> None:
    more = recorder.details.end_call(event)
    recorder.add(
        "result", {"tool_call_id": event.tool_call_id, "message": to_json_value(event.result), **to_json_value(more)}
    )


def _record_run_start(recorder: Recorder, event: AgentStart) -> None:
    fields = {name: value for name, value in to_json_value(event).items() if name not in _UNTOLD}
    recorder.add("run_start", {**fields, **to_json_value(recorder.details.start_run())})
    recorder.index.start_run(fields)


def _record_run_end(recorder: Recorder, event: AgentEnd) -> None:
    fields = {"loop_id": event.loop_id, "end_reason": event.end_reason, "detail": event.detail}
    recorder.add("run_end", {**fields, **recorder.details.end_run(event), "usage": to_json_value(event.usage)})
    recorder.index.end_run()


def _note_call_start(recorder: Recorder, event: ToolExecutionStart) -> None:
    recorder.details.start_call(event)


def _note_turn_start(recorder: Recorder, event: TurnStart) -> None:
    recorder.details.start_turn(event)


def _note_turn_end(recorder: Recorder, event: TurnEnd) -> None:
    recorder.details.end_turn(event)


def _record_other_event(recorder: Recorder, event: AgentEvent) -> None:
    """What no other record tells."""
    recorder.add("event", {name: value for name, value in to_json_value(event).items() if name not in _UNTIMED})


_RECORDERS: dict[type[Any], Callable[[Recorder, Any], None]] = {
    ToolExecutionEnd: _record_call_end,
    AgentStart: _record_run_start,
    AgentEnd: _record_run_end,
    ToolExecutionStart: _note_call_start,
    TurnStart: _note_turn_start,
    TurnEnd: _note_turn_end,
    CompactionStarted: _record_other_event,
    CompactionEnded: _record_other_event,
    InputRejected: _record_other_event,
    LoopDetected: _record_other_event,
    ModelFallback: _record_other_event,
    RetryScheduled: _record_other_event,
}
