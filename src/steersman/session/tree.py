"""The tree of a session: which entry follows which, without the messages, so that a long conversation fits in memory.

The current entry (`tip`) is the one that was added last, or the one to which the session was moved since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from steersman.session.stores.store import SessionError


class Node(msgspec.Struct, frozen=True, gc=False):
    """An entry of the conversation without its payload; an `own` one comes from a run of this session.

    `loop_id` is the run that added it, `None` for an entry that was added between runs.
    """

    id: str
    parent: str | None
    seq: int
    type: str
    time: float
    own: bool = False
    loop_id: str | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch of the tree, from the beginning to a leaf.

    `leaf` is the id of its last entry and `length` how many it has; `fork` is the last entry it shares with another
    branch, and `label` the last label after that. The session is at the `current` one.
    """

    leaf: str
    length: int
    fork: str | None
    label: str | None
    updated: float
    current: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """Two branches: the last entry they share (`common`), and the entries that only one of them has."""

    common: str | None
    left: Sequence[str]
    right: Sequence[str]


class Tree:
    """The conversation of a session as a tree. Nodes are in the order of their records: parents come first."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.tip: str | None = None
        self.labels: dict[str, str] = {}
        self.moves = 0
        # The changes of state and artifacts: the numbers of their records, and the entries after which they were made.
        self.changes: list[tuple[int, str | None]] = []

    def add(self, node: Node) -> None:
        """Add an entry and make it the current one."""
        self.nodes[node.id] = node
        self.tip = node.id

    def move_to(self, target: str | None) -> None:
        """Make another entry the current one; `None` starts from nothing."""
        self.tip = None if target is None else self.find_node(target).id
        self.moves += 1

    def drop(self, ids: Iterable[str]) -> None:
        """Remove entries that turned out to be unusable, parents first; their children follow their parents."""
        gone: dict[str | None, str | None] = {}
        for id in ids:
            parent = self.nodes.pop(id).parent
            gone[id] = gone.get(parent, parent)
        if not gone:
            return
        for node in [node for node in self.nodes.values() if node.parent in gone]:
            self.nodes[node.id] = msgspec.structs.replace(node, parent=gone[node.parent])
        self.tip = gone.get(self.tip, self.tip)
        self.changes = [(seq, gone.get(parent, parent)) for seq, parent in self.changes]

    def find_node(self, id: str) -> Node:
        """The entry with this id, or the compaction or prun that contains the message with this id."""
        _check_name(id)
        node = self.nodes.get(id) or self.nodes.get(id.rpartition(".")[0])
        if node is None:
            raise SessionError(f"No entry {id!r} in this session. The ids are in session.tree() and session.entries().")
        return node

    def resolve(self, name: str) -> str:
        """The id of an entry that is named by its id or its label."""
        _check_name(name)
        if name not in self.nodes:
            labelled = [id for id, label in self.labels.items() if label == name]
            return labelled[-1] if labelled else name
        return name

    def path_to(self, leaf: str | None = None) -> list[Node]:
        """The entries from the beginning to a leaf, or to the current entry."""
        node = self.find_node(leaf) if leaf is not None else self.nodes.get(self.tip or "")
        path: list[Node] = []
        while node is not None:
            path.append(node)
            node = None if node.parent is None else self.nodes.get(node.parent)
        path.reverse()
        return path

    def list_changes(self, path: Sequence[Node]) -> dict[int, int]:
        """The records of changes of state and artifacts on a path: by number, how many entries of the path precede it.

        A change after an entry counts on the ways that went on from there later, not on those that had gone on already.
        """
        places = {None: 0, **{node.id: place for place, node in enumerate(path, 1)}}
        found: dict[int, int] = {}
        for seq, parent in self.changes:
            place = places.get(parent)
            if place is not None and (place == len(path) or seq < path[place].seq):
                found[seq] = place
        return found

    def count_shared(self, ids: Sequence[str]) -> int:
        """How many of these ids, from the first on, follow one another in the tree."""
        parent: str | None = None
        for place, id in enumerate(ids):
            node = self.nodes.get(id)
            if node is None or node.parent != parent:
                return place
            parent = id
        return len(ids)

    def find_last_below(self, id: str) -> str:
        """The last entry of the most recently used branch through this entry."""
        below = {self.find_node(id).id}
        last = id
        for node in self.nodes.values():
            if node.parent in below:
                below.add(node.id)
                last = node.id
        return last

    def list_branches(self) -> list[Branch]:
        """All branches; the one with the latest entry comes last."""
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
        """What two branches share and how they differ, as ids in order."""
        a = [node.id for node in self.path_to(left)]
        b = [node.id for node in self.path_to(right)]
        shared = 0
        while shared < min(len(a), len(b)) and a[shared] == b[shared]:
            shared += 1
        return Difference(a[shared - 1] if shared else None, a[shared:], b[shared:])


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"An entry is named by its id or its label, which are strings, got {name!r}.")
