"""Restores log entries, queued messages and open tool calls from records.

A record that is no valid entry, or that refers to a lost one, is left out and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import msgspec

from steersman.context.entries import CompactionEntry, Entry, MessageEntry, PrunEntry, UndoEntry, make_part_id
from steersman.context.log import Log
from steersman.context.repair import OpenQuestion, Recovery, find_open_calls
from steersman.session.records import ARTIFACT, TREE, Payload, Record, decode
from steersman.session.tree import Node, Tree
from steersman.types.artifacts import ArtifactChange
from steersman.types.messages import AgentMessage, ToolResultMessage
from steersman.types.state import StateChange

QueueKind = Literal["steering", "follow_up"]
Mode = Literal["skip", "cancel", "wait"]

_ENTRIES: dict[str, type[Any]] = {
    "message": MessageEntry,
    "compaction": CompactionEntry,
    "prun": PrunEntry,
    "undo": UndoEntry,
}


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that was queued when the program ended."""

    id: str
    kind: QueueKind
    message: AgentMessage
    mode: Mode | None = None
    key: str | None = None


@dataclass(slots=True)
class RestoredEntries:
    """The entries that were restored, and by record id the reason why a record could not be."""

    entries: list[Entry] = field(default_factory=list[Entry])
    unusable: dict[str, str] = field(default_factory=dict[str, str])


def read_entries(records: Iterable[Record]) -> RestoredEntries:
    """The entries that these records hold."""
    reading = RestoredEntries()
    known: set[str] = set()
    for record in records:
        try:
            entry: Entry = msgspec.convert(
                {**record.payload, "id": record.id, "type": record.type}, _ENTRIES[record.type]
            )
        except (msgspec.ValidationError, RecursionError) as error:
            reading.unusable[record.id] = f"it is no {record.type}: {error}"
            continue
        if isinstance(entry, CompactionEntry):
            lost = next((item for item in entry.items if isinstance(item, str) and item not in known), None)
            if lost is not None:
                reading.unusable[record.id] = f"it keeps {lost!r}, which is not there"
                continue
        known.update(_list_new_ids(entry))
        reading.entries.append(entry)
    return reading


def build_log(entries: Iterable[Entry], nodes: Mapping[str, Node]) -> Log:
    """The log of these entries, which knows the runs they were added by."""
    log = Log.from_entries(entries)
    for index, entry in enumerate(log.entries):
        node = nodes.get(entry.id)
        if node is not None and node.loop_id is not None and (not log.loops or log.loops[-1][1] != node.loop_id):
            log.loops.append((index, node.loop_id))
    return log


@dataclass(slots=True)
class RestoredChanges:
    """The changes of state and artifacts with their places, and by number why a record holds none."""

    state: list[tuple[int, StateChange]] = field(default_factory=list[tuple[int, StateChange]])
    artifacts: list[tuple[int, ArtifactChange]] = field(default_factory=list[tuple[int, ArtifactChange]])
    unusable: dict[int, str] = field(default_factory=dict[int, str])


def read_changes(records: Iterable[Record], places: Mapping[int, int]) -> RestoredChanges:
    """The changes of state and artifacts that these records hold."""
    found = RestoredChanges()
    for record in records:
        place = places[record.seq]
        try:
            if record.type == ARTIFACT:
                change = msgspec.convert(record.payload, ArtifactChange)
                change.check()
                found.artifacts.append((place, change))
            else:
                found.state.append((place, msgspec.convert(record.payload, StateChange)))
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            what = "save of an artifact" if record.type == ARTIFACT else "change of the state"
            found.unusable[record.seq] = f"it is no {what}: {error}"
    return found


def _list_new_ids(entry: Entry) -> Iterator[str]:
    """The ids in an entry that a later compaction may refer to."""
    yield entry.id
    if isinstance(entry, CompactionEntry):
        yield from (make_part_id(entry.id, at) for at, item in enumerate(entry.items) if not isinstance(item, str))
    elif isinstance(entry, PrunEntry) and entry.memo:
        yield make_part_id(entry.id, 0)


def read_message(fields: object) -> AgentMessage | None:
    """The message of a payload; `None` if it is not valid."""
    try:
        return cast(AgentMessage, msgspec.convert(fields, AgentMessage))
    except (msgspec.ValidationError, RecursionError):
        return None


def find_last_answer(lines: Sequence[bytes]) -> str | None:
    """The text of the last answer, from the last records of a session; `None` if more of it has to be read."""
    for line in reversed(lines):
        try:
            record = decode(line)
        except ValueError:
            return None
        if record.type == "leaf" or record.type in TREE - {"message"}:
            return None  # what comes before may be on another branch, or not be shown any more
        message = read_message(record.payload.get("message")) if record.type == "message" else None
        if message is not None and message.role == "assistant":
            return message.text
    return None


def read_waiting(id: str, fields: Payload) -> WaitingMessage | None:
    """A queued message; `None` if it is not valid."""
    message = read_message(fields.get("message"))
    kind: Any = fields.get("kind")
    mode, key = fields.get("mode"), fields.get("key")
    if message is None or kind not in get_args(QueueKind):
        return None
    return WaitingMessage(
        id, kind, message, mode if mode in get_args(Mode) else None, key if isinstance(key, str) else None
    )


def find_recovery(log: Log, tree: Tree, records_after: Callable[[int], Iterator[Record]]) -> Recovery | None:
    """What is known about the open tool calls at the end of a log; `None` if there are none of a run of this session.

    Other branches may use the same call ids, so only records under this answer, or under what followed it, count.
    """
    left = find_open_calls(log.messages)
    if left is None:
        return None
    answer = tree.nodes.get(log.entry_id_of(left.index))
    if answer is None or not answer.own:
        return None  # it was imported: these calls belong to another program and are not run here
    ids = {call.id for call in left.calls}
    path = {node.id for node in tree.path_to(log.entries[-1].id) if node.seq >= answer.seq}
    results: dict[str, ToolResultMessage] = {}
    started: set[str] = set()
    questions: dict[str, OpenQuestion] = {}
    for record in records_after(answer.seq):
        call_id = record.payload.get("tool_call_id")
        if record.parent not in path:
            continue
        if record.type == "event":
            _follow_questions(record.payload, questions)
        if call_id not in ids or not isinstance(call_id, str):
            continue
        if record.type == "intent":
            started.add(call_id)
        elif record.type == "result":
            message = read_message(record.payload.get("message"))
            if isinstance(message, ToolResultMessage) and message.tool_call_id == call_id:
                results.setdefault(call_id, message)
    return Recovery(results, frozenset(started), questions)


def _follow_questions(fields: Payload, questions: dict[str, OpenQuestion]) -> None:
    """Add a question to the open ones, or remove the one that is resolved."""
    match fields:
        case {"parent_tool_call_id": str()}:
            return  # about the call of a sub-agent, which is not run again
        case {"type": "approval_requested", "approval_id": str(id), "tool_call_id": str(call_id)}:
            name, shown = str(fields.get("tool_name")), str(fields.get("preview"))
            questions[call_id] = OpenQuestion(id, name, fields.get("args") or {}, shown)
        case {"type": "approval_resolved", "approval_id": str(id)}:
            for call_id in [call_id for call_id, question in questions.items() if question.approval_id == id]:
                del questions[call_id]
        case _:
            return
