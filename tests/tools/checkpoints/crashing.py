"""Kills itself at every step of a checkpoint, an undo and a redo, and checks what the next program finds.

A program of its own with one thread, so that it can fork. `python -m tests.tools.checkpoints.crashing FOLDER EVERY`
kills at each `EVERY`th step, and prints how often that was.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from tests.tools.checkpoints.model import Files, Room, act, look

CALLS = frozenset(["fsync", "rename", "link", "unlink", "mkdir", "rmdir", "symlink", "fchmod"])
TRANSACTIONS = ("write", "_commit")
DEEDS = [
    ("write", b"a", b"changed\n"),
    ("remove", b"gone", b""),
    ("remove", b"folder", b""),
    ("write", b"folder", b"a file now\n"),
    ("remove", b"file", b""),
    ("write", b"file/inside\xff", b"a folder now\n"),
    ("remove", b"to", b""),
    ("link", b"to", b"../elsewhere"),
    ("mode", b"script", b"123"),
    ("folder", b"empty/er", b""),
]


def prepare(folder: Path) -> Room:
    """A workspace with files of every kind."""
    room = Room(folder)
    for name in (b"a", b"gone", b"folder/one", b"folder/two", b"file", b"script"):
        act(room.root, "write", name, b"content of " + name)
    act(room.root, "link", b"to", b"a")
    return room


def change(room: Room) -> None:
    """One call that changes all of it."""
    call = room.begin(room.place())
    for deed in DEEDS:
        act(room.root, *deed)
    room.points.end(call)


def kill_at(number: int, do: Callable[[], object]) -> None:
    """Do something, and kill this process before the step of a number."""
    seen = 0

    def note(frame: FrameType, event: str, function: Any) -> None:
        nonlocal seen
        if event != "c_call":
            return
        name = getattr(function, "__name__", "")
        if name in CALLS or (name == "execute" and frame.f_code.co_name in TRANSACTIONS):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(note)
    do()
    sys.setprofile(None)


def is_killed(number: int, do: Callable[[], object]) -> bool:
    """Do something in a child that is killed before a step; whether there was such a step."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(number, do)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert status == 0, "the child failed"
    return False


def try_all(folder: Path, origin: Path, every: int, do: Callable[[Room], object], check: Callable[[Room], None]) -> int:
    """Kill at each `every`th step, each time in a copy of a place; how often that was."""
    for kills in count():
        at = folder / "try"
        shutil.copytree(origin, at, symlinks=True)
        room = object.__new__(Room)
        room.root, room.store, room.calls, room.runs = at / "work", at / "state" / "checkpoints.db", 5, 5
        killed = is_killed(1 + kills * every, lambda room=room: (room.reopen(), do(room)))
        room.reopen()
        check(room)
        room.points.close()
        shutil.rmtree(at)
        if not killed:
            return kills
    raise AssertionError


def undo_all(room: Room) -> None:
    """Undo until there is nothing left to undo."""
    while room.undo():
        pass


def expect(room: Room, *allowed: Files) -> None:
    """The workspace is one of these."""
    found = look(room.root)
    assert found in allowed, sorted(found.items() ^ allowed[0].items())


def main(folder: Path, every: int) -> None:
    """Kill at the steps of a call that changes files, of its undo and of its redo."""
    (folder / "before").mkdir()
    room = prepare(folder / "before")
    start = look(room.root)
    room.points.close()
    shutil.copytree(folder / "before", folder / "after", symlinks=True)
    room.root, room.store = folder / "after" / "work", folder / "after" / "state" / "checkpoints.db"
    room.reopen()
    change(room)
    room.points.close()
    end = look(room.root)

    def check_call(room: Room) -> None:
        undo_all(room)
        expect(room, start)

    def check_move(room: Room) -> None:
        expect(room, end, start)
        undo_all(room)
        expect(room, start)
        assert room.redo()
        expect(room, end)

    calls = try_all(folder, folder / "before", every, change, check_call)
    undos = try_all(folder, folder / "after", every, Room.undo, check_move)
    room.reopen()
    assert room.undo()
    room.points.close()
    expect(room, start)
    redos = try_all(folder, folder / "after", every, Room.redo, check_move)
    print(calls, undos, redos)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
