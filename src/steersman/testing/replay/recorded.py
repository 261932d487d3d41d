"""Reads the records of a session as what a replay needs: runs, entries outside of runs, and moves in the tree."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import msgspec

from steersman.context.entries import Entry, MessageEntry
from steersman.session.records import TREE, Payload, Record
from steersman.session.restore import read_message
from steersman.types.content import ToolCall
from steersman.types.messages import AssistantMessage, ToolResultMessage, UserMessage

_LIMIT = "[Agent stopped: "


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event that has a record of its own, without its time; `seq` is the number of the record."""

    seq: int
    fields: Payload

    @property
    def type(self) -> str:
        """The type of the event."""
        return str(self.fields.get("type", ""))


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """An entry of the log under the one it follows; `seq` is the number of its record."""

    seq: int
    parent: str | None
    entry: Entry

    @property
    def type(self) -> str:
        """The type of the entry."""
        return self.entry.type


@dataclass(frozen=True, slots=True)
class Move:
    """The session continued from another entry."""

    target: str | None


@dataclass(slots=True)
class RecordedCall:
    """What is known about a tool call that ended.

    `seq` is the number of the record of its result, `span` the numbers of its two events if others lay between them.
    """

    seq: int
    arguments: dict[str, Any] | None = None
    result: ToolResultMessage | None = None
    span: tuple[int, int] | None = None


Item: TypeAlias = RecordedEntry | RecordedEvent


@dataclass(slots=True)
class RecordedRun:
    """One run. A run of a program that was killed has no `end`, and one that was vetoed no `start`.

    `seq` is the number of the record of its end, or of its start where it has none.
    """

    seq: int
    start: Payload | None
    end: Payload | None = None
    items: list[Item] = field(default_factory=list[Item])
    calls: dict[str, RecordedCall] = field(default_factory=dict[str, RecordedCall])
    questions: dict[str, list[RecordedEvent]] = field(default_factory=dict[str, list[RecordedEvent]])
    """The two events of each question about a call, by its id; one that was open when the program ended has one."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The arguments of the calls that were about to start."""

    def find_questions(self, call_ids: Container[str]) -> list[RecordedEvent]:
        """The events of the answered questions about these calls, or about calls of sub-agents that worked for them."""
        found: list[RecordedEvent] = []
        for pair in self.questions.values():
            asked = pair[0].fields
            if len(pair) == 2 and str(asked.get("parent_tool_call_id") or asked["tool_call_id"]) in call_ids:
                found += pair
        return found

    @property
    def loop_id(self) -> str:
        """The id of the run."""
        return str((self.start or self.end or {}).get("loop_id", ""))


Step: TypeAlias = RecordedRun | RecordedEntry | Move


def read_steps(records: Iterable[Record]) -> Iterator[Step]:
    """What happened in a session, in order."""
    part: RecordedRun | None = None
    for record in records:
        if part is not None and (record.type in ("run_start", "leaf", "imported") or _is_outside(part, record)):
            yield part
            part = None
        if record.type == "run_start":
            part = RecordedRun(record.seq, record.payload)
        elif record.type == "run_end":
            part = part or RecordedRun(record.seq, None)
            part.end, part.seq = record.payload, record.seq
            yield part
            part = None
        elif record.type == "leaf":
            yield Move(record.payload.get("target"))
        elif part is not None:
            _add_record(part, record)
        elif record.type in TREE and (entry := read_entry(record)) is not None:
            yield RecordedEntry(record.seq, record.parent, entry)
    if part is not None:
        yield part


def _is_outside(part: RecordedRun, record: Record) -> bool:
    """Whether the record was written outside of the run, after its program was killed."""
    if record.type == "compaction":
        return not part.items or part.items[-1].type != "compaction_started"
    return record.type == "undo"


def read_entry(record: Record) -> Entry | None:
    """The entry of a record; `None` if it is invalid, as a session skips it too."""
    try:
        return cast(Entry, msgspec.convert({**record.payload, "id": record.id, "type": record.type}, Entry))
    except (msgspec.ValidationError, RecursionError):
        return None


def _add_record(part: RecordedRun, record: Record) -> None:
    fields = record.payload
    if record.type in TREE:
        if (entry := read_entry(record)) is not None:
            part.items.append(RecordedEntry(record.seq, record.parent, entry))
    elif record.type == "event" and fields.get("type") in ("approval_requested", "approval_resolved"):
        part.questions.setdefault(fields["approval_id"], []).append(RecordedEvent(record.seq, fields))
    elif record.type == "event":
        part.items.append(RecordedEvent(record.seq, fields))
    elif record.type == "intent":
        part.asked[fields["tool_call_id"]] = fields["arguments"]
    elif record.type == "result":
        id, span = fields["tool_call_id"], fields.get("span")
        result = read_message(fields["message"])
        if isinstance(result, ToolResultMessage):
            arguments = fields.get("arguments", part.asked.get(id))
            part.calls[id] = RecordedCall(
                record.seq, arguments, result, None if span is None else cast(tuple[int, int], tuple(span))
            )


def get_message(item: Item | None) -> Any:
    """The message of an item, `None` if it has none."""
    return item.entry.message if isinstance(item, RecordedEntry) and isinstance(item.entry, MessageEntry) else None


def get_limit(item: Item | None) -> str | None:
    """The reason in the notice of a limit, if the item is one."""
    message = get_message(item)
    if type(message) is UserMessage and message.synthetic and message.text.startswith(_LIMIT):
        return message.text[len(_LIMIT) : -1]
    return None


def is_input(item: Item | None) -> bool:
    """Whether the item is a message that is added at the start of a turn: a prompt, steering, a follow-up."""
    message = get_message(item)
    return (
        message is not None and type(message) not in (AssistantMessage, ToolResultMessage) and get_limit(item) is None
    )


Moment: TypeAlias = tuple[bool, ToolCall, RecordedCall]
"""A call begins (`True`) or ends."""


def order_call_events(
    calls: Iterable[tuple[ToolCall, RecordedCall]], questions: Sequence[RecordedEvent] = ()
) -> Iterator[Moment | RecordedEvent]:
    """The beginnings and ends of calls that are given in the order in which they ended, and the questions about them.

    Calls that ended after the first question have a span.
    """
    crowd: list[tuple[int, Moment | RecordedEvent]] = []
    for asked, call in calls:
        if call.span is not None:
            crowd += [(call.span[0], (True, asked, call)), (call.span[1], (False, asked, call))]
            continue
        # It began when no other call was open, so all calls before it have ended.
        yield from _sort_overlapping(crowd)
        crowd = []
        yield True, asked, call
        yield False, asked, call
    yield from _sort_overlapping([*crowd, *[(event.fields["seq"], event) for event in questions]])


def _sort_overlapping(crowd: list[tuple[int, Moment | RecordedEvent]]) -> Iterator[Moment | RecordedEvent]:
    for _, moment in sorted(crowd, key=lambda pair: pair[0]):
        yield moment
