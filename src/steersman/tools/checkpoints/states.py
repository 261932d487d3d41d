"""What a path of a workspace is at one moment, and how it changed, as plain values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["file", "link", "folder", "unkept"]


class State(msgspec.Struct, frozen=True, array_like=True):
    """What is at a path: `digest` is that of a file's content or of a link's target, which the store has.

    `unkept` is what no store has: a file that is too large or not readable, a named pipe. Its `digest` is its stamp.
    """

    kind: Kind
    mode: int = 0
    digest: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """How a path changed; `None` where nothing is."""

    path: str
    before: State | None
    after: State | None

    def reverse(self) -> Change:
        """The change that takes this one back."""
        return Change(self.path, self.after, self.before)


@dataclass(slots=True)
class Snapshot:
    """What a workspace was at one moment.

    `stamps` say which files need not be read again. `skipped` are folders that were not looked into, each with its
    stamp: nothing is known of what is below them.
    """

    states: dict[str, State] = field(default_factory=dict[str, State])
    stamps: dict[str, str] = field(default_factory=dict[str, str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])

    def covers(self, path: str) -> bool:
        """Whether it is known what is at a path."""
        return "" not in self.skipped and path not in self.skipped and not any(map(self.skipped.get, list_above(path)))


def list_above(path: str) -> Iterator[str]:
    """The folders that a path is in, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def compare(before: Snapshot, after: Snapshot) -> tuple[list[Change], list[str]]:
    """Find what changed, and the folders that changed and were not looked into."""
    unknown = [path for path, stamp in after.skipped.items() if before.skipped.get(path) != stamp]
    unknown += [path for path in before.skipped if path not in after.skipped and after.covers(path)]
    changes = [
        Change(path, before.states.get(path), after.states.get(path))
        for path in sorted(before.states.keys() | after.states.keys())
        if before.states.get(path) != after.states.get(path) and before.covers(path) and after.covers(path)
    ]
    return changes, unknown


def can_take_back(change: Change) -> bool:
    """Whether it is known what to take a change back to: not from nothing to a file that was not kept, for instance."""
    if change.before is None:
        return change.after is None or change.after.kind != "unkept"
    return change.before.kind != "unkept"


def merge(known: Mapping[str, Change], later: Change) -> Change | None:
    """Join a later change of a path to what is known of it; `None` if it is again as it was.

    If something else changed the path in between, such as the user, it is only taken back to that.
    """
    first = known.get(later.path)
    before = first.before if first is not None and first.after == later.before else later.before
    return None if before == later.after else Change(later.path, before, later.after)


def encode_path(path: str) -> bytes:
    """A path as bytes, also one that is not UTF-8."""
    return os.fsencode(path)
