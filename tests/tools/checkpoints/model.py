"""A workspace and a model of it: what is there by an independent look, and what an undo must make of it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TypeAlias

from steersman.tools.checkpoints.checkpoints import Checkpoints
from steersman.tools.checkpoints.store import Place

Thing: TypeAlias = tuple[str, int, bytes]
"""What is at a path: its kind, its mode, and its content or target."""

Files: TypeAlias = dict[bytes, Thing]
Recorded: TypeAlias = dict[bytes, tuple[Thing | None, Thing | None]]


def look(root: Path) -> Files:
    """Everything below a folder, without `.git`."""
    found: Files = {}
    top = os.fsencode(root)
    for folder, folders, files in os.walk(top):
        if b".git" in folders:
            folders.remove(b".git")
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = _look_at(path)
    return found


def _look_at(path: bytes) -> Thing:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return "link", 0, os.readlink(path)
    if stat.S_ISDIR(mode):
        return "folder", mode & 0o777, b""
    with open(path, "rb") as file:
        return "file", mode & 0o777, file.read()


def compare(before: Files, after: Files) -> Recorded:
    """What changed from one look to another."""
    paths = sorted(before.keys() | after.keys())
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}


def join(first: Recorded, later: Recorded) -> Recorded:
    """Two calls of one run: what another changed in between stays."""
    joined = dict(first)
    for path, (old, new) in later.items():
        earlier = first.get(path)
        if earlier is not None and earlier[1] == old:
            old = earlier[0]
        joined.pop(path, None)
        if old != new:
            joined[path] = (old, new)
    return joined


def take_back(files: Files, recorded: Recorded) -> Files:
    """What a workspace must be after an undo: each path as before, but those that were changed since stay."""
    left = dict(files)
    todo = {path: old for path, (old, new) in recorded.items() if files.get(path) == new}
    deepest = sorted(todo, key=lambda path: (path.count(b"/"), path), reverse=True)
    failed: set[bytes] = set()
    for path in deepest:
        old, now = todo[path], left.get(path)
        if now is None or (old is not None and "folder" not in (old[0], now[0])) or (old and old[0] == now[0]):
            continue
        if any(other.startswith(path + b"/") for other in left):
            failed.add(path)
        else:
            del left[path]
    for path in reversed(deepest):
        old = todo[path]
        parent = os.path.dirname(path)
        if old is not None and path not in failed and (not parent or left.get(parent, ("",))[0] == "folder"):
            left[path] = old
    return left


class Room:
    """A workspace with a store beside it, and calls that change files as `act` does."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.store = folder / "state" / "checkpoints.db"
        self.calls = self.runs = 0
        self.points = self.reopen()

    def reopen(self) -> Checkpoints:
        """Open the store as the next program does."""
        self.points = Checkpoints(self.root, self.store, "session")
        return self.points

    def place(self, *, same: bool = False) -> Place:
        """The place of the next run, or of the last one."""
        self.runs += not same or not self.runs
        return Place("session", f"run{self.runs}", f"entry{self.runs}")

    def begin(self, place: Place, path: str | None = None) -> str:
        """Begin a call."""
        self.calls += 1
        self.points.begin(f"call{self.calls}", place, path)
        return f"call{self.calls}"

    def undo(self) -> bool:
        """Undo the last run; whether there was one."""
        active = [at.id for at in self.points.list() if at.active]
        return self.move({active[-1]: False}) if active else False

    def redo(self) -> bool:
        """Redo what was undone last; whether there was something."""
        found = self.points.list()
        last = max([number for number, at in enumerate(found) if at.active], default=-1)
        return self.move({found[last + 1].id: True}) if last + 1 < len(found) else False

    def move(self, targets: dict[int, bool]) -> bool:
        """Make checkpoints active, or not."""
        self.points.apply(self.points.plan(targets))
        return True


def act(root: Path, what: str, name: bytes, content: bytes) -> None:
    """Change a file by the system's own functions; what cannot be done is left out."""
    path = os.path.join(os.fsencode(root), name)
    try:
        if what == "write":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb") as file:
                file.write(content)
        elif what == "replace":
            with open(path + b".new", "wb") as file:
                file.write(content)
            os.rename(path + b".new", path)
        elif what == "link":
            os.symlink(content.strip(b"\x00") or b"../outside", path)
        elif what == "folder":
            os.makedirs(path)
        elif what == "mode" and not os.path.islink(path) and not os.path.islink(os.path.dirname(path)):
            os.chmod(path, 0o700 | len(content))
        elif what == "remove":
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    except OSError:
        return
