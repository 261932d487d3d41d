"""The index of a session: its tree, its labels, its queued messages, and the last agent and run.

It is built from the records in one pass. What cannot be read is left out and reported, and what follows it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import msgspec

from steersman.session.orders import Order, find_answer
from steersman.session.records import (
    ARTIFACT,
    CONFIGURED,
    CONTENT,
    KINDS,
    SERVED,
    STATE,
    TRACE,
    TREE,
    Payload,
    find_digest,
)
from steersman.session.settings import merge_settings
from steersman.session.tree import Node, Tree


class _Head(msgspec.Struct, frozen=True, gc=False):
    """A record whose payload is decoded only where it is needed."""

    id: str
    parent: str | None
    seq: int
    type: str
    time: float
    payload: msgspec.Raw


class _EntryExtras(msgspec.Struct, frozen=True):
    """The fields in the payload of an entry that are not part of the entry."""

    branch: int = 0
    queue_id: str | None = None


_heads: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)
_entry_extras: msgspec.json.Decoder[_EntryExtras] = msgspec.json.Decoder(_EntryExtras)
_payloads: msgspec.json.Decoder[Payload] = msgspec.json.Decoder(Payload)


class Index:
    """All that is known about a session without reading it again; `problems` says what was damaged."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.header: Payload = {}
        self.waiting: dict[str, Payload] = {}
        self.delivered_keys: dict[str, Payload] = {}
        self.agent_id: str | None = None
        self.agent_name: str | None = None
        self.loop_id: str | None = None
        self.running = False
        # Whether the last run was cut off by a crash, and whether it was to be aborted.
        self.unfinished = False
        self.abort_due = False
        # The number in the queue of the last abort of the last run: what has a higher one was said after it.
        self.last_abort = 0
        # The orders that answer questions which are not resolved yet, by the ids of the questions.
        self.answers: dict[str, Order] = {}
        # The contents of artifacts by their hash: the numbers of their records, and about how many bytes they have.
        self.contents: dict[str, tuple[int, int]] = {}
        # What was changed of the agent for this session.
        self.settings: Payload = {}
        # The types of records that this version does not know.
        self.unknown: set[str] = set()
        # The span of the last run that was traced, as W3C Trace Context writes it.
        self.traceparent: str | None = None
        self.problems: list[str] = []
        self.importing: str | None = None
        self._last: _Head | None = None
        self._tag: str | None = None

    def read(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Read encoded records."""
        for seq, line in lines:
            try:
                self._add_record(_heads.decode(line))
            except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError) as error:
                self.problems.append(f"Record {seq} cannot be read and is left out: {error}")
        if self.importing is not None:
            self.problems.append("The import was not finished: what follows in its file is not here. Import it again.")
            self.mark_as_foreign()
        self.unfinished = self.running
        self.running = False
        self._last = None

    def add_node(self, node: Node) -> None:
        """Add an entry after the current one; the first entry of a run gets the tag of the run as its label."""
        self.tree.add(node)
        if self._tag is not None:
            self.tree.labels.setdefault(node.id, self._tag)
            self._tag = None

    def start_run(self, fields: Payload) -> None:
        """Note the start of a run."""
        agent_id, loop_id = _get_text(fields, "agent_id"), _get_text(fields, "loop_id")
        kind = fields.get("continuation_kind")
        tag = _get_text(cast(Payload, kind), "tag") if isinstance(kind, dict) else None
        self.running = True
        self.unfinished = self.abort_due = False
        self.last_abort = 0
        self.agent_id, self.loop_id, self._tag = agent_id, loop_id, tag

    def end_run(self) -> None:
        """Note the end of a run, or that what follows is not part of it."""
        self.running = self.abort_due = False
        self._tag = None

    def set_label(self, target: str, text: str | None) -> None:
        """Set or remove the label of an entry."""
        self.tree.labels.pop(target, None)
        if text:
            self.tree.labels[target] = text

    def mark_delivered(self, queue_id: str) -> None:
        """Remove a delivered message from the queue; its key stays known, so that it is not delivered again."""
        fields = self.waiting.pop(queue_id, None)
        if fields is not None and fields.get("key") is not None:
            self.delivered_keys[fields["key"]] = fields

    def move_to(self, target: str | None) -> None:
        """Continue from another entry; raises `ValueError` if it is missing."""
        self.end_run()
        if target is not None and target not in self.tree.nodes:
            self.tree.moves += 1
            raise ValueError(f"it leads to {target!r}, which is not there")
        self.tree.move_to(target)

    def mark_as_foreign(self) -> None:
        """Mark everything so far as imported: its open tool calls and queued messages are not acted on here."""
        self.end_run()
        self.answers.clear()
        self.traceparent = None
        nodes = self.tree.nodes
        nodes.update({id: msgspec.structs.replace(node, own=False) for id, node in nodes.items() if node.own})
        if self.waiting:
            self.problems.append(f"Queued messages of the imported session are left out: {len(self.waiting)}.")
            self.waiting.clear()

    def _add_record(self, head: _Head) -> None:
        if head.type in TREE:
            self._add_entry(head)
            return
        if head.type in (STATE, ARTIFACT):
            self.tree.changes.append((head.seq, head.parent))
            return
        if head.type == CONTENT:
            # In base64 four characters are three bytes; a little more than the size. A later record of the same hash
            # stands for one that was damaged.
            self.contents[find_digest(head.id)] = head.seq, len(bytes(head.payload)) * 3 // 4
            return
        if head.type not in KINDS:
            self.unknown.add(head.type)
        read = _READERS.get(head.type)
        # Most events are of no use here, and need not be decoded.
        if read is not None and (self.answers or head.type != "event"):
            read(self, head.id, _payloads.decode(head.payload))

    def _add_entry(self, head: _Head) -> None:
        if head.id in self.tree.nodes:
            raise ValueError(f"there is an entry {head.id!r} already")
        parent = head.parent
        if parent is not None and parent not in self.tree.nodes:
            parent = self._find_lost_parent(head)
        loop_id = self.loop_id if self.running else None
        self.add_node(Node(head.id, parent, head.seq, head.type, head.time, self.running, loop_id))
        self._last = head
        if self.waiting and (queue_id := _entry_extras.decode(head.payload).queue_id) is not None:
            self.mark_delivered(queue_id)

    def _find_lost_parent(self, head: _Head) -> str | None:
        """The parent for an entry whose own is lost: the last entry before the gap, if the branch is the same."""
        last = self._last
        if last is not None and _entry_extras.decode(last.payload).branch == _entry_extras.decode(head.payload).branch:
            self.problems.append(f"Record {head.seq} follows one that is missing; it is joined to what came before.")
            return self.tree.tip
        self.problems.append(f"Record {head.seq} follows one that is missing; it starts a new branch.")
        return None


def _get_text(fields: Payload, name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name!r} is not a string: {value!r}")
    return value


def _read_session(index: Index, _: str, fields: Payload) -> None:
    if not index.header:
        index.header = fields
        index.importing = fields.get("importing")


def _read_agent_name(index: Index, _: str, fields: Payload) -> None:
    index.agent_name = _get_text(fields, "agent") or index.agent_name


def _read_settings(index: Index, _: str, fields: Payload) -> None:
    index.settings = merge_settings(index.settings, fields)


def _read_trace(index: Index, _: str, fields: Payload) -> None:
    index.traceparent = _get_text(fields, "traceparent")


def _read_import_end(index: Index, id: str, _: Payload) -> None:
    index.mark_as_foreign()
    # A file may hold the end of an earlier import, which is not the end of this one.
    if id == index.importing:
        index.importing = None


def _read_leaf(index: Index, _: str, fields: Payload) -> None:
    index.move_to(fields["target"])


def _read_label(index: Index, _: str, fields: Payload) -> None:
    index.set_label(fields["target"], _get_text(fields, "text"))


def _read_run_start(index: Index, _: str, fields: Payload) -> None:
    index.start_run(fields)


def _read_run_end(index: Index, _: str, __: Payload) -> None:
    index.end_run()


def _read_accepted_message(index: Index, id: str, fields: Payload) -> None:
    key = fields.get("key")
    if key is not None and not isinstance(key, str):
        # The message is delivered all the same; only whether it comes twice is no longer known.
        index.problems.append(f"The queued message {id!r} has a key that is no string, which is left out: {key!r}.")
        fields = {**fields, "key": None}
    index.waiting[id] = fields


def _read_delivery(index: Index, _: str, fields: Payload) -> None:
    index.mark_delivered(fields["queue_id"])


def _read_return(index: Index, _: str, fields: Payload) -> None:
    index.waiting.pop(fields["queue_id"], None)


def _read_order(index: Index, _: str, fields: Payload) -> None:
    if fields.get("kind") == "abort":
        index.abort_due = index.running
        number = fields.get("number")
        index.last_abort = number if isinstance(number, int) else 0
    elif (answer := find_answer(fields)) is not None:
        index.answers[answer.approval_id] = answer


def _read_event(index: Index, _: str, fields: Payload) -> None:
    if fields.get("type") == "approval_resolved":
        index.answers.pop(str(fields.get("approval_id")), None)


_READERS: dict[str, Callable[[Index, str, Payload], None]] = {
    "session": _read_session,
    SERVED: _read_agent_name,
    CONFIGURED: _read_settings,
    TRACE: _read_trace,
    "imported": _read_import_end,
    "leaf": _read_leaf,
    "label": _read_label,
    "run_start": _read_run_start,
    "run_end": _read_run_end,
    "accepted": _read_accepted_message,
    "delivered": _read_delivery,
    "returned": _read_return,
    "order": _read_order,
    "event": _read_event,
}
