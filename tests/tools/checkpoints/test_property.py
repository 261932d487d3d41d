"""For random sequences of calls, edits of the user, undos, redos and kills, the workspace is what a model says."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.checkpoints.model import Recorded, Room, act, compare, join, look, take_back

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where an fsync costs nothing: what it is for, a power cut, no test can show."""

Deed: TypeAlias = tuple[str, bytes, bytes]

NAMES = [b"a", b"b.txt", b"d", b"d/a", b"d/e/f", b"d/e", b"\xff\n\x1b[2J", b"d/\xe2\x80\xae", b"A"]
DEEDS = st.tuples(
    st.sampled_from(["write", "write", "replace", "link", "folder", "mode", "remove"]),
    st.sampled_from(NAMES),
    st.sampled_from([b"", b"one\n", b"two\r\nlines\x00", b"\xff" * 9, b"a"]),
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["run", "more", "user", "killed"]), st.lists(DEEDS, max_size=4)),
    st.tuples(st.sampled_from(["undo", "undo", "redo", "reopen", "edit"]), st.lists(DEEDS, min_size=1, max_size=1)),
)


class World:
    """A room, and what its checkpoints must be: each with its changes, and whether it is active."""

    def __init__(self, folder: Path) -> None:
        self.room = Room(folder)
        self.points: list[tuple[Recorded, bool]] = []
        self.run: Recorded | None = None

    def do(self, kind: str, deeds: list[Deed]) -> None:
        """Do a step in the room and in the model, and compare the two."""
        before = look(self.room.root)
        expected = None
        if kind in ("run", "more", "killed", "edit"):
            self._call(kind, deeds)
        elif kind == "user":
            self._act(deeds)
        elif kind == "reopen":
            self.room.points.close()
            self.room.reopen()
            expected = before
        else:
            expected = self._undo(before) if kind == "undo" else self._redo(before)
        if expected is not None:
            assert look(self.room.root) == expected

    def _act(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            act(self.room.root, *deed)

    def _call(self, kind: str, deeds: list[Deed]) -> None:
        before = look(self.room.root)
        same = kind == "more" and self.run is not None
        place = self.room.place(same=same)
        if kind == "edit":
            # As the tools `write` and `edit` do: one file, with the folders that it needs.
            deeds = [("write", *deeds[0][1:])]
            root, name = os.fsencode(self.room.root), deeds[0][1]
            if os.path.relpath(os.path.realpath(os.path.join(root, name)), root) != name:
                return  # through a link: the tools name the file that it leads to
            call = self.room.begin(place, os.fsdecode(deeds[0][1]))
        else:
            call = self.room.begin(place)
        self._act(deeds)
        if kind == "killed":
            self.room.points.close()
            self.room.reopen()
        else:
            self.room.points.end(call)
        self._record(compare(before, look(self.room.root)), same=same)

    def _record(self, changes: Recorded, *, same: bool) -> None:
        if same and self.run is not None:
            changes = join(self.run, changes)
            self.points = [(known, active) for known, active in self.points if known is not self.run]
        self.run = changes
        if changes:
            self.points.append((changes, True))

    def _undo(self, before: dict[bytes, tuple[str, int, bytes]]) -> dict[bytes, tuple[str, int, bytes]]:
        self.run = None
        active = [number for number, (_, on) in enumerate(self.points) if on]
        assert self.room.undo() is bool(active)
        if not active:
            return before
        changes, _ = self.points[active[-1]]
        self.points[active[-1]] = (changes, False)
        return take_back(before, changes)

    def _redo(self, before: dict[bytes, tuple[str, int, bytes]]) -> dict[bytes, tuple[str, int, bytes]]:
        self.run = None
        last = max([number for number, (_, on) in enumerate(self.points) if on], default=-1)
        assert self.room.redo() is (last + 1 < len(self.points))
        if last + 1 >= len(self.points):
            return before
        changes, _ = self.points[last + 1]
        self.points[last + 1] = (changes, True)
        return take_back(before, {path: (new, old) for path, (old, new) in changes.items()})


@settings(deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_the_workspace_is_what_a_model_says(steps: list[tuple[str, list[Deed]]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = World(Path(folder))
        try:
            for kind, deeds in steps:
                world.do(kind, deeds)
        finally:
            world.room.points.close()
