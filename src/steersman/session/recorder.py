"""Records what an agent does: log entries, queued messages, tool calls, the starts and ends of runs.

Nothing here decides or raises: what cannot be written is reported in the program's log, and the agent goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Protocol

from steersman.context.entries import Entry, MessageEntry
from steersman.context.log import Log
from steersman.session.index import Index
from steersman.session.journal import JournalWriter
from steersman.session.orders import Order
from steersman.session.records import (
    ARTIFACT,
    STATE,
    TRACE,
    Payload,
    Record,
    encode_entry,
    redact_values,
    to_json_value,
)
from steersman.session.restore import RestoredChanges
from steersman.session.tree import Node
from steersman.types.artifacts import ArtifactChange
from steersman.types.content import ToolCall
from steersman.types.errors import describe_exception
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
    ModelFallback,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from steersman.types.messages import AgentMessage
from steersman.types.model import ToolSpec
from steersman.types.state import StateChange

_START_OMITS = frozenset(("type", "seq", "timestamp"))
_QUESTION_OMITS = frozenset(("loop_id", "timestamp"))
_EVENT_OMITS = frozenset(("loop_id", "seq", "timestamp"))

_log = logging.getLogger("steersman")


class RunDetails:
    """Follows the events of a run and collects details for the records of its start, its end and its tool calls."""

    def __init__(self) -> None:
        self._intended: set[str] = set()
        self._open: dict[str, int] = {}
        self._crowded: set[str] = set()
        self._asked = False
        self._turns = 0
        self._trigger = ""
        self._before = ""
        self._spoken: tuple[str, tuple[ToolSpec, ...]] | None = None
        self._written: tuple[str, tuple[ToolSpec, ...]] | None = None

    def set_prompt(self, system_prompt: str, tools: Iterable[ToolSpec]) -> None:
        """Set the system prompt and the tools of the run that is about to start."""
        self._spoken = system_prompt, tuple(tools)

    def start_run(self) -> Payload:
        """The system prompt and the tools, if they differ from those that were recorded last."""
        if self._spoken is None or self._spoken == self._written:
            return {}
        self._written = system_prompt, tools = self._spoken
        specs: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
        ]
        return {"system_prompt": system_prompt, "tools": specs}

    def end_run(self, event: AgentEnd) -> Payload:
        """The number of turns, the trigger of the first one, and why the run was ending when it was aborted."""
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
        """Count a turn. The first may only settle old calls; then the trigger of the run is that of the next one."""
        self._asked = False
        if self._trigger in ("", "continuation"):
            self._trigger = event.triggered_by
        self._turns = event.turn_index + 1

    def end_turn(self, event: TurnEnd) -> None:
        """Keep the reason of a turn without an answer: it is why the run ends."""
        self._before = "" if event.message is not None else event.reason

    def add_intent(self, call_id: str) -> None:
        """Note that the arguments of this call are recorded already."""
        self._intended.add(call_id)

    def start_call(self, event: ToolExecutionStart) -> None:
        """Note an open call; if another one is open, the order of their events must be recorded."""
        self._open[event.tool_call_id] = event.seq
        if len(self._open) > 1:
            self._crowded.update(self._open)

    def add_question(self) -> None:
        """Note a question about a call: from here on the order of the events of calls must be recorded."""
        self._asked = True

    def end_call(self, event: ToolExecutionEnd) -> Payload:
        """The numbers of a call's two events if others lay between them, and its arguments if they are not recorded."""
        began = self._open.pop(event.tool_call_id, None)
        more: Payload = {}
        if (self._asked or event.tool_call_id in self._crowded) and began is not None:
            self._crowded.discard(event.tool_call_id)
            more["span"] = [began, event.seq]
        if event.tool_call_id not in self._intended:
            more["arguments"] = event.args
        return more


class QueuedMessage(Protocol):
    """A queued message, as the loop's inbox has it."""

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
    """Writes one session through its journal; without a journal it writes nothing."""

    def __init__(self, journal: JournalWriter | None, index: Index) -> None:
        self.index = index
        self.journal = journal
        self.details = RunDetails()
        self._keys: set[str] = set()
        # Tools change the state in threads: the record of a change must not come after an entry that follows it.
        self._placing = threading.Lock()
        self._run_keys: Set[str] = frozenset()
        self._delivering: QueuedMessage | None = None
        # By the ids of messages that other processes have queued: their numbers, until they are accepted.
        self._arriving: dict[str, int] = {}

    @property
    def degraded(self) -> str | None:
        """Why the latest records are only in memory; `None` when they are saved."""
        return None if self.journal is None else self.journal.degraded

    def add(self, type: str, payload: Payload, *, id: str | None = None) -> Record | None:
        """Add a record under the current entry of the session."""
        if self.journal is None:
            return None
        return self.journal.add(type, self.redact_value(payload), id=id, parent=self.index.tree.tip)

    def redact_value(self, value: Any) -> Any:
        """A value with all known keys redacted."""
        secrets = (*tuple(self._keys), *tuple(self._run_keys))
        return redact_values(value, secrets) if secrets else value

    def redact_bytes(self, data: bytes) -> bytes:
        """A content with all known keys redacted, wherever their bytes are."""
        # Every byte is one character of Latin-1, so that what is no text stays as it is.
        return self.redact_value(data.decode("latin-1")).encode("latin-1")

    def record_entry(self, entry: Entry) -> None:
        """Record an entry that was added to the log."""
        try:
            with self._placing:
                self._write_entry(entry)
        except Exception as error:  # noqa: BLE001  # a log cannot take an entry back, so its listener must not raise
            _log.error("The entry %r could not be written to the session: %s", entry.id, describe_exception(error))

    def record_change(self, change: StateChange) -> None:
        """Record a change of the state, after the current entry."""
        self._add_change(STATE, change.describe())

    def record_save(self, change: ArtifactChange) -> None:
        """Record saved versions of artifacts, after the current entry; their contents are recorded before."""
        self._add_change(ARTIFACT, change.describe())

    def _add_change(self, type: str, payload: Payload) -> None:
        with self._placing:
            record = self.add(type, payload)
            if record is not None:
                self.index.tree.changes.append((record.seq, record.parent))

    def record_trace(self, traceparent: str) -> None:
        """Record the span of a run that is about to start, as W3C Trace Context writes it."""
        self.index.traceparent = traceparent
        self.add(TRACE, {"traceparent": traceparent})

    def record_changes_at(self, log: Log, place: int) -> None:
        """Record what a log that is new to the session changed in state and artifacts after so many entries."""
        for change in [change for at, change in log.state.changes if at == place]:
            self.record_change(change)
        for save in [save for at, save in log.artifacts.changes if at == place]:
            self.record_save(save)

    def record_state_and_artifacts(self, log: Log, place: int, recorded: RestoredChanges) -> None:
        """Record what a log kept after so many entries, unless that is what the current entry has already."""
        former = Log()
        former.state.restore(recorded.state)
        former.artifacts.restore(recorded.artifacts)
        if former.state != self.redact_value(wanted := log.state.compute(place)):
            self.record_change(StateChange(wanted, reset=True))
        saved = log.artifacts.compute(place)
        if set(saved) != set(former.artifacts.compute(place)):
            self.record_save(ArtifactChange(saved, reset=True))

    def _write_entry(self, entry: Entry) -> None:
        payload = encode_entry(entry)
        tree = self.index.tree
        if tree.moves:
            payload["branch"] = tree.moves
        queued = self._match_queued_message(entry)
        if queued is not None:
            # In the same record, so that a crash never leaves a message both delivered and queued.
            payload["queue_id"] = queued.id
        record = self.add(entry.type, payload, id=entry.id)
        if record is not None:
            own = self.index.running
            loop_id = self.index.loop_id if self.index.running else None
            self.index.add_node(Node(record.id, record.parent, record.seq, record.type, record.time, own, loop_id))
        if queued is not None:
            self.index.mark_delivered(queued.id)

    def _match_queued_message(self, entry: Entry) -> QueuedMessage | None:
        """The queued message that this entry delivers, if it does."""
        queued = self._delivering
        if queued is None or not isinstance(entry, MessageEntry) or entry.message.content is not queued.message.content:
            return None
        self._delivering = None
        return queued

    def record_event(self, event: AgentEvent) -> None:
        """Record an event of a run. Deltas come by the thousand, so other types return at once."""
        record = _RECORDERS.get(type(event))
        if record is None:
            return
        try:
            record(self, event)
        except Exception as error:  # noqa: BLE001  # a subscriber that raises is removed, and nothing more would be recorded
            _log.error("The event %r could not be written to the session: %s", event.type, describe_exception(error))

    def on_accept(self, item: QueuedMessage, /) -> None:
        """Record that a message was queued."""
        message = to_json_value(item.message)
        payload: Payload = {"kind": item.kind, "message": message, "mode": item.mode, "key": item.key}
        if self._arriving and (number := self._arriving.pop(item.id, None)) is not None:
            payload["number"] = number  # what takes it out of the store's queue
        self.index.waiting[item.id] = payload
        self.add("accepted", payload, id=item.id)

    def accept_order(self, order: Order, queue: Callable[[], object]) -> None:
        """Record that the message of an order was accepted when `queue` queues it; one with a known key it does not."""
        self._arriving[order.id] = order.number
        queue()
        if self._arriving.pop(order.id, None) is not None:
            self.record_order(order)

    def record_order(self, order: Order) -> None:
        """Record that an order was heard, which has no other record."""
        self.add("order", order.describe())

    def on_delivery_start(self, item: QueuedMessage, /) -> None:
        """Note the queued message whose entry comes next."""
        self._delivering = item

    def on_delivery_end(self, item: QueuedMessage, entry_id: str, /) -> None:
        """Record that a queued message was delivered."""
        self._delivering = None
        self.index.mark_delivered(item.id)
        self.add("delivered", {"queue_id": item.id, "entry_id": entry_id})

    def on_return(self, item: QueuedMessage, /) -> None:
        """Record that a queued message was returned."""
        self.index.waiting.pop(item.id, None)
        self.add("returned", {"queue_id": item.id})

    def register_secrets(self, secrets: Set[str], /) -> None:
        """Redact these keys in every record from now on; the set belongs to the run and may grow."""
        self._keys |= self._run_keys
        self._run_keys = secrets

    def add_keys(self, secrets: Set[str]) -> None:
        """Redact these keys as well, in this run and in all later ones."""
        self._keys |= secrets

    def use_sources(self, clock: Callable[[], float] | None, new_id: Callable[[str], str] | None) -> None:
        """Take times and ids of records from those of a run; `None` leaves them as they are."""
        if self.journal is not None:
            self.journal.clock = clock or self.journal.clock
            self.journal.new_id = new_id or self.journal.new_id

    async def record_intent(self, calls: Sequence[ToolCall], /) -> None:
        """Return once it is saved that these calls are about to start."""
        for call in calls:
            self.details.add_intent(call.id)
            self.add(
                "intent", {"tool_call_id": call.id, "tool_name": call.name, "arguments": to_json_value(call.arguments)}
            )
        await self.save()

    async def save(self) -> None:
        """Return once everything so far is saved, or the store has refused it."""
        if self.journal is not None:
            await self.journal.wait_until_saved()


def _record_call_end(recorder: Recorder, event: ToolExecutionEnd) -> None:
    more = recorder.details.end_call(event)
    recorder.add(
        "result",
        {
            "tool_call_id": event.tool_call_id,
            "message": to_json_value(event.result),
            "duration": event.duration,
            **to_json_value(more),
        },
    )


def _record_run_start(recorder: Recorder, event: AgentStart) -> None:
    fields = {name: value for name, value in to_json_value(event).items() if name not in _START_OMITS}
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
    """Record an event that no other record contains."""
    recorder.add("event", {name: value for name, value in to_json_value(event).items() if name not in _EVENT_OMITS})


def _record_question(recorder: Recorder, event: ApprovalRequested | ApprovalResolved) -> None:
    """Record a question about a call, or its answer, with its number: calls go on meanwhile."""
    recorder.details.add_question()
    recorder.add("event", {name: value for name, value in to_json_value(event).items() if name not in _QUESTION_OMITS})


_RECORDERS: dict[type[Any], Callable[[Recorder, Any], None]] = {
    ToolExecutionEnd: _record_call_end,
    AgentStart: _record_run_start,
    AgentEnd: _record_run_end,
    ToolExecutionStart: _note_call_start,
    TurnStart: _note_turn_start,
    TurnEnd: _note_turn_end,
    ApprovalRequested: _record_question,
    ApprovalResolved: _record_question,
    CompactionStarted: _record_other_event,
    CompactionEnded: _record_other_event,
    InputRejected: _record_other_event,
    LoopDetected: _record_other_event,
    ModelFallback: _record_other_event,
    RetryScheduled: _record_other_event,
}
