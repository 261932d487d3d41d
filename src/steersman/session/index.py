"""What a session knows without reading it again: its tree, what waits to be heard, its labels, who ran it last.

It is made from the records in one pass. What cannot be read is left out and told, and what follows it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import msgspec

from steersman.session.records import TREE, Payload
from steersman.session.tree import Node, Tree


class _Head(msgspec.Struct, frozen=True, gc=False):
    """A record whose payload is looked at only where it matters."""

    id: str
    parent: str | None
    seq: int
    type: str
    time: float
    payload: msgspec.Raw


class _Beside(msgspec.Struct, frozen=True):
    """What the payload of a record of the conversation has beside the conversation."""

    branch: int = 0
    queue_id: str | None = None


_heads: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)
_beside: msgspec.json.Decoder[_Beside] = msgspec.json.Decoder(_Beside)
_payloads: msgspec.json.Decoder[Payload] = msgspec.json.Decoder(Payload)


class Index:
    """All that is known about a session; `found` says what was damaged."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.header: Payload = {}
        self.waiting: dict[str, Payload] = {}
        self.heard_keys: dict[str, Payload] = {}
        self.agent_id: str | None = None
        self.loop_id: str | None = None
        self.running = False
        self.found: list[str] = []
        self.importing: str | None = None
        self._last: _Head | None = None
        self._tag: str | None = None

    def read(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Take in encoded records."""
        for seq, line in lines:
            try:
                self._take(_heads.decode(line))
            except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError) as error:
                self.found.append(f"Record {seq} cannot be read and is left out: {error}")
        if self.importing is not None:
            self.found.append("The import was not finished: what follows in its file is not here. Import it again.")
            self.foreign()
        self.running = False
        self._last = None

    def grow(self, node: Node) -> None:
        """A record of the conversation follows where the session stands; a run's tag is the label of its first one."""
        self.tree.add(node)
        if self._tag is not None:
            self.tree.labels.setdefault(node.id, self._tag)
            self._tag = None

    def started(self, fields: Payload) -> None:
        """A run began."""
        agent_id, loop_id = _text(fields, "agent_id"), _text(fields, "loop_id")
        kind = fields.get("continuation_kind")
        tag = _text(cast(Payload, kind), "tag") if isinstance(kind, dict) else None
        self.running = True
        self.agent_id, self.loop_id, self._tag = agent_id, loop_id, tag

    def ended(self) -> None:
        """A run came to its end, or what follows is no part of one."""
        self.running = False
        self._tag = None

    def label(self, target: str, text: str | None) -> None:
        """An entry has a name, or has one no more."""
        self.tree.labels.pop(target, None)
        if text:
            self.tree.labels[target] = text

    def heard(self, queue_id: str) -> None:
        """What waited was said; the key it came with stays known, so that it is not said again."""
        fields = self.waiting.pop(queue_id, None)
        if fields is not None and fields.get("key") is not None:
            self.heard_keys[fields["key"]] = fields

    def moved(self, target: str | None) -> None:
        """The session goes on from another entry."""
        self.ended()
        if target is not None and target not in self.tree.nodes:
            self.tree.moves += 1
            raise ValueError(f"it leads to {target!r}, which is not there")
        self.tree.stand_at(target)

    def foreign(self) -> None:
        """What was said so far was said elsewhere: none of it is to be acted on, or to be said, here."""
        self.ended()
        nodes = self.tree.nodes
        nodes.update({id: msgspec.structs.replace(node, own=False) for id, node in nodes.items() if node.own})
        if self.waiting:
            self.found.append(f"Messages that waited where the session is from are left out: {len(self.waiting)}.")
            self.waiting.clear()

    def _take(self, head: _Head) -> None:
        if head.type in TREE:
            self._take_entry(head)
            return
        read = _READ.get(head.type)
        if read is not None:
            read(self, head.id, _payloads.decode(head.payload))

    def _take_entry(self, head: _Head) -> None:
        if head.id in self.tree.nodes:
            raise ValueError(f"there is an entry {head.id!r} already")
        parent = head.parent
        if parent is not None and parent not in self.tree.nodes:
            parent = self._joined(head)
        self.grow(Node(head.id, parent, head.seq, head.type, head.time, self.running))
        self._last = head
        if self.waiting and (queue_id := _beside.decode(head.payload).queue_id) is not None:
            self.heard(queue_id)

    def _joined(self, head: _Head) -> str | None:
        """What a record follows whose parent is lost: the last before the gap, if the session did not move in it."""
        last = self._last
        if last is not None and _beside.decode(last.payload).branch == _beside.decode(head.payload).branch:
            self.found.append(f"Record {head.seq} follows one that is missing; it is joined to what came before.")
            return self.tree.tip
        self.found.append(f"Record {head.seq} follows one that is missing; a branch of its own begins with it.")
        return None


def _text(fields: Payload, name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name!r} is no string but {value!r}")
    return value


def _session(index: Index, _: str, fields: Payload) -> None:
    if not index.header:
        index.header = fields
        index.importing = fields.get("importing")


def _imported(index: Index, id: str, _: Payload) -> None:
    index.foreign()
    # A file may hold the end of an earlier import, which is not the end of this one.
    if id == index.importing:
        index.importing = None


def _leaf(index: Index, _: str, fields: Payload) -> None:
    index.moved(fields["target"])


def _label(index: Index, _: str, fields: Payload) -> None:
    index.label(fields["target"], _text(fields, "text"))


def _run_start(index: Index, _: str, fields: Payload) -> None:
    index.started(fields)


def _run_end(index: Index, _: str, __: Payload) -> None:
    index.ended()


def _accepted(index: Index, id: str, fields: Payload) -> None:
    key = fields.get("key")
    if key is not None and not isinstance(key, str):
        # What was queued is heard all the same: only whether it comes twice is not known any more.
        index.found.append(f"The queued message {id!r} has a key that is no string, which is left out: {key!r}.")
        fields = {**fields, "key": None}
    index.waiting[id] = fields


def _delivered(index: Index, _: str, fields: Payload) -> None:
    index.heard(fields["queue_id"])


def _returned(index: Index, _: str, fields: Payload) -> None:
    index.waiting.pop(fields["queue_id"], None)


_READ: dict[str, Callable[[Index, str, Payload], None]] = {
    "session": _session,
    "imported": _imported,
    "leaf": _leaf,
    "label": _label,
    "run_start": _run_start,
    "run_end": _run_end,
    "accepted": _accepted,
    "delivered": _delivered,
    "returned": _returned,
}
