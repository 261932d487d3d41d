"""Reads a session's records again: the entries of a branch, its log, its state and its artifacts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from steersman.context.entries import Entry
from steersman.context.log import Log
from steersman.session.records import Record, decode
from steersman.session.restore import RestoredChanges, build_log, read_changes, read_entries
from steersman.session.stores.store import Problem
from steersman.session.tree import Tree
from steersman.types.artifacts import Contents


class Lines(Protocol):
    """Where encoded records come from: a store's handle, or a journal with those that are only in memory."""

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The numbers and encoded forms of the records after a number."""
        ...


class SessionReader:
    """Reads what the tree of a session refers to; `report` gets what cannot be read."""

    def __init__(self, source: Lines, tree: Tree, contents: Contents, report: Callable[[Problem], None]) -> None:
        self._source = source
        self._tree = tree
        self._contents = contents
        self._report = report

    def read_after(self, seq: int, wanted: Collection[int] | None = None) -> Iterator[Record]:
        """The records after a number, or those that are wanted, including the ones that are only in memory."""
        for number, line in self._source.lines(seq):
            if wanted is not None and number not in wanted:
                continue
            try:
                yield decode(line)
            except ValueError:
                continue  # reported when the session was opened

    def read_entries(self, leaf: str | None) -> Sequence[Entry]:
        """The entries to a leaf, or to the current entry; unreadable ones are removed from the tree and reported."""
        path = self._tree.path_to(None if leaf is None else self._tree.resolve(leaf))
        wanted = {node.seq: node.id for node in path}
        reading = read_entries(self.read_after(min(wanted) - 1, wanted) if wanted else ())
        usable = {entry.id for entry in reading.entries}
        unusable = [node for node in path if node.id not in usable]
        for node in unusable:
            reason = reading.unusable.get(node.id, "it cannot be read")
            self._report(Problem(f"record {node.seq}", f"It is left out: {reason}."))
        self._tree.drop(node.id for node in unusable)
        return reading.entries

    def read_changes(self, leaf: str | None) -> RestoredChanges:
        """The changes of state and artifacts on the way to a leaf, or to the current entry."""
        places = self._tree.list_changes(self._tree.path_to(leaf))
        if not places:
            return RestoredChanges()
        found = read_changes(self.read_after(min(places) - 1, places), places)
        for seq, reason in found.unusable.items():
            self._report(Problem(f"record {seq}", f"It is left out: {reason}."))
        return found

    def build_log(self, leaf: str | None) -> Log:
        """The log of the branch to a leaf, or to the current entry, with its state and artifacts."""
        entries = self.read_entries(leaf)
        log = build_log(entries, self._tree.nodes)
        log.artifacts.contents = self._contents
        if self._tree.changes:
            # The leaf itself may have been unusable.
            found = self.read_changes(entries[-1].id if entries else None)
            log.state.restore(found.state)
            log.artifacts.restore(found.artifacts)
        return log
