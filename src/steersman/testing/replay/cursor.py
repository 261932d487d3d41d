"""A cursor over the records of one run: each thing the loop does is compared with the next record.

The first mismatch ends the run and is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Never

import msgspec

from steersman.context.context import AgentContext
from steersman.context.entries import Entry
from steersman.loop.ending import DEADLINE
from steersman.loop.run import Run
from steersman.testing.replay.recorded import (
    Item,
    RecordedEntry,
    RecordedEvent,
    RecordedRun,
    get_limit,
    get_message,
    is_input,
)
from steersman.types.events import AgentEnd, AgentEvent, CompactionEnded, TurnEnd, TurnStart
from steersman.types.ids import new_id
from steersman.types.messages import AgentMessage, AssistantMessage
from steersman.types.model import Request

_RECORDED_TYPES = frozenset(
    ("retry_scheduled", "model_fallback", "input_rejected", "loop_detected", "compaction_started", "compaction_ended")
)
_ESTIMATES = frozenset(("tokens_before", "tokens_after"))
_UNTIMED = frozenset(("loop_id", "seq", "timestamp"))
_ABORTED = "operation aborted ("


class ReplayMismatch(AssertionError):
    """The replay differs from the records; `seq` is the number of the first record that differs."""

    def __init__(self, loop_id: str, seq: int, recorded: object, replayed: object) -> None:
        super().__init__(
            f"The replay of the run {loop_id!r} differs from record {seq}:\n"
            f"  recorded: {recorded!r}\n  replayed: {replayed!r}"
        )
        self.loop_id = loop_id
        self.seq = seq
        self.recorded = recorded
        self.replayed = replayed


class RecordCursor:
    """Reads the records of a run one by one, and checks that the loop does what they say."""

    def __init__(self, part: RecordedRun, context: AgentContext) -> None:
        self.part = part
        self.context = context
        self.events: list[AgentEvent] = []
        self.requests: list[Request] = []
        self.mismatch: ReplayMismatch | None = None
        self.stopped = asyncio.Event()
        self.run: Run
        self._at = 0
        self._turns = 0

    # What the records say

    @property
    def _next(self) -> Item | None:
        return self.part.items[self._at] if self._at < len(self.part.items) else None

    @property
    def _is_cut(self) -> bool:
        """Whether the records end here although the run has not ended, because the program was killed."""
        return self._next is None and self.part.end is None

    @property
    def _is_last_turn(self) -> bool:
        return self.part.end is not None and self._turns >= self.part.end.get("turns", 0)

    def _iterate_ahead(self, skip: int = 0) -> Iterator[Item]:
        items = self.part.items
        return (items[at] for at in range(self._at + skip, len(items)))

    def _collect_input(self) -> list[AgentMessage]:
        heard: list[AgentMessage] = []
        for item in self._iterate_ahead():
            if not is_input(item):
                break
            heard.append(get_message(item))
        return heard

    def _find_answer(self) -> AssistantMessage | None:
        return next(
            (found for item in self._iterate_ahead() if type(found := get_message(item)) is AssistantMessage), None
        )

    # What the loop does

    def mint(self, kind: str) -> str:
        """The recorded id of the next entry."""
        item = self._next
        return item.entry.id if isinstance(item, RecordedEntry) else new_id(kind)

    def end_if_over(self) -> bool:
        """End the replay if the records end here; returns whether they do."""
        if self._is_cut:
            self._close()
        return self._is_cut

    def find_recorded_message(self, message: AgentMessage) -> AgentMessage:
        """The recorded message if only its time differs, otherwise the message itself."""
        recorded = get_message(self._next)
        if recorded is None or type(recorded) is not type(message):
            return message
        return recorded if msgspec.structs.replace(message, timestamp=recorded.timestamp) == recorded else message

    def check_entry(self, entry: Entry) -> None:
        """Compare an entry that was added to the log with the next record."""
        item = self._next
        if not isinstance(item, RecordedEntry) or item.entry != entry:
            return self._report_mismatch(item.entry if isinstance(item, RecordedEntry) else item, entry)
        self._at += 1

    def check_event(self, event: AgentEvent) -> None:
        """Compare an event with the next record, if events of its type are recorded."""
        if event.type in _RECORDED_TYPES and self.end_if_over():
            return
        self.events.append(event)
        if isinstance(event, TurnStart):
            self._turns += 1
            if self.part.end is not None and self._turns > self.part.end.get("turns", self._turns):
                self._report_mismatch(f"the run ends after {self._turns - 1} turns", "another turn begins")
        elif isinstance(event, TurnEnd):
            self._abort_late()
        elif isinstance(event, AgentEnd):
            self._check_end(event)
        elif event.type in _RECORDED_TYPES:
            fields = {name: value for name, value in _to_json_value(event).items() if name not in _UNTIMED}
            item = self._next
            if not isinstance(item, RecordedEvent) or not _is_same(item.fields, fields, type(event)):
                return self._report_mismatch(item.fields if isinstance(item, RecordedEvent) else item, fields)
            self._at += 1
            if isinstance(event, CompactionEnded):
                self._end_after(0)

    def _abort_late(self) -> None:
        """Abort the run if it was aborted while it was ending for another reason."""
        aborted = self.part.end is not None and self.part.end["end_reason"] == "aborted"
        if aborted and self._is_last_turn and self.run.ending.reason not in (None, "aborted"):
            self._cancel("aborted")

    def _end_after(self, skip: int) -> None:
        """Cancel the run if only its end follows these items: it was cancelled before the model was asked."""
        if self.part.end is not None and all(get_limit(item) is not None for item in self._iterate_ahead(skip)):
            self._finish()
            self._cancel("aborted" if self.part.end["end_reason"] == "aborted" else DEADLINE)

    def _cancel(self, reason: str) -> None:
        self.run.ending.cancelled_by = "token"  # its task needs no cancel
        self.run.token.cancel(reason)

    def _check_end(self, event: AgentEnd) -> None:
        end = self.part.end
        if self._next is not None:
            return self._report_mismatch(self._next, f"the run ends: {event.end_reason} {event.detail}".strip())
        if end is None:
            return None
        recorded = (end["end_reason"], end.get("detail", ""), end.get("turns", 0))
        if recorded != (event.end_reason, event.detail, self._turns):
            self._report_mismatch(recorded, (event.end_reason, event.detail, self._turns))

    def _report_mismatch(self, recorded: object, replayed: object) -> None:
        if self.mismatch is None:
            item = self._next
            seq = self.part.seq if item is None else item.seq
            self.mismatch = ReplayMismatch(self.part.loop_id, seq, recorded, replayed)
        self._close()

    def _close(self) -> None:
        self.run.emit_no_more()
        self.run.ending.finish("error", "The replay is over.")
        self.stopped.set()

    async def _stop(self) -> Never:
        """End the replay, because the records end here."""
        self._close()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("this future is never done")

    def _finish(self) -> None:
        """End the run here with its recorded reason: that of a limit notice, or that of the end of the run."""
        limit = next((reason for item in self._iterate_ahead() if (reason := get_limit(item)) is not None), None)
        if limit is not None:
            self.run.ending.finish("limit", limit)
        elif self.part.end is not None:
            reason, detail = self.part.end["end_reason"], self.part.end.get("detail", "")
            if (before := self.part.end.get("before")) is not None:
                reason, detail = before, detail.removeprefix(_ABORTED).removesuffix(")")
            self.run.ending.finish(reason, detail)


def _is_same(recorded: dict[str, Any], fields: dict[str, Any], kind: type[msgspec.Struct]) -> bool:
    """Whether these are the fields that were recorded.

    Earlier versions left out those with their default, and counted no system prompt and tools in a compaction.
    """
    if recorded == fields:
        return True
    recorded = {**recorded, **{name: fields[name] for name in _ESTIMATES & recorded.keys() & fields.keys()}}
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    left_out = {name: defaults[name] for name in fields.keys() - recorded.keys() if name in defaults}
    return {**recorded, **left_out} == fields


def _to_json_value(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=repr))
