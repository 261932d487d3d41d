"""The tree of a session: which record of the conversation follows which, without the words, so that a long one fits.

Where the session stands is the last record of the conversation, or where it was moved to since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from steersman.session.stores.store import SessionError


class Node(msgspec.Struct, frozen=True, gc=False):
    """A record of the conversation without its payload; an `own` one was said in a run and not brought from outside."""

    id: str
    parent: str | None
    seq: int
    type: str
    time: float
    own: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """One way through the tree.

    `leaf` is the id of its last entry and `length` how many it has; `fork` is the last entry it shares with another
    branch, and `label` the last label after that. The session stands at the `current` one.
    """

    leaf: str
    length: int
    fork: str | None
    label: str | None
    updated: float
    current: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """Two branches: what they share up to `common`, and what each has of its own."""

    common: str | None
    left: Sequence[str]
    right: Sequence[str]


class Tree:
    """The conversation of a session as a tree. Nodes are in the order in which they were said: parents come first."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.tip: str | None = None
        self.labels: dict[str, str] = {}
        self.moves = 0

    def add(self, node: Node) -> None:
        """A record of the conversation, which is now where the session stands."""
        self.nodes[node.id] = node
        self.tip = node.id

    def move_to(self, target: str | None) -> None:
        """Go on from another record, or from nothing."""
        self.tip = None if target is None else self.find_node(target).id
        self.moves += 1

    def drop(self, id: str) -> None:
        """Take out a record that turned out to be unusable; what followed it follows the one before it."""
        gone = self.nodes.pop(id)
        for node in [node for node in self.nodes.values() if node.parent == id]:
            self.nodes[node.id] = msgspec.structs.replace(node, parent=gone.parent)
        if self.tip == id:
            self.tip = gone.parent

    def find_node(self, id: str) -> Node:
        """The record of this id; one that a compaction or a prun brought lives in the entry its id begins with."""
        _check_name(id)
        node = self.nodes.get(id) or self.nodes.get(id.rpartition(".")[0])
        if node is None:
            raise SessionError(f"No entry {id!r} in this session. The ids are in session.tree() and session.entries().")
        return node

    def resolve(self, name: str) -> str:
        """The id of an entry that is given by its id or by its label."""
        _check_name(name)
        if name not in self.nodes:
            labelled = [id for id, label in self.labels.items() if label == name]
            return labelled[-1] if labelled else name
        return name

    def path_to(self, leaf: str | None = None) -> list[Node]:
        """The records from the beginning to a leaf, or to where the session stands."""
        node = self.find_node(leaf) if leaf is not None else self.nodes.get(self.tip or "")
        path: list[Node] = []
        while node is not None:
            path.append(node)
            node = None if node.parent is None else self.nodes.get(node.parent)
        path.reverse()
        return path

    def count_shared(self, ids: Sequence[str]) -> int:
        """How many of these ids, from the first on, follow one another here too."""
        parent: str | None = None
        for place, id in enumerate(ids):
            node = self.nodes.get(id)
            if node is None or node.parent != parent:
                return place
            parent = id
        return len(ids)

    def find_last_below(self, id: str) -> str:
        """The end of the branch through this record that was used last."""
        below = {self.find_node(id).id}
        last = id
        for node in self.nodes.values():
            if node.parent in below:
                below.add(node.id)
                last = node.id
        return last

    def list_branches(self) -> list[Branch]:
        """All ways through the tree, the one with the latest record last."""
        children = Counter(node.parent for node in self.nodes.values())
        length: dict[str | None, int] = {None: 0}
        fork: dict[str | None, str | None] = {None: None}
        label: dict[str | None, str | None] = {None: None}
        found: list[Branch] = []
        for node in self.nodes.values():
            parent = node.parent
            shared = children[parent] > 1
            length[node.id] = length[parent] + 1
            fork[node.id] = parent if shared else fork[parent]
            label[node.id] = self.labels.get(node.id) or (None if shared else label[parent])
            if not children[node.id] or node.id == self.tip:
                current = node.id == self.tip
                found.append(
                    Branch(node.id, length[node.id], fork[node.id], label[node.id], node.time, current=current)
                )
        return found

    def compare(self, left: str, right: str) -> Difference:
        """What two branches share and what each has of its own, as ids in order."""
        a = [node.id for node in self.path_to(left)]
        b = [node.id for node in self.path_to(right)]
        shared = 0
        while shared < min(len(a), len(b)) and a[shared] == b[shared]:
            shared += 1
        return Difference(a[shared - 1] if shared else None, a[shared:], b[shared:])


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"An entry is given by its id or its label, which are strings, got {name!r}.")
