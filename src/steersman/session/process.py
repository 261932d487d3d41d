"""What becomes of open journals with their process: at its end they are written, in a forked child they are let be."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Protocol
from weakref import WeakSet

# Nobody waits longer than this for a store that gives no answer.
_PATIENCE = 30.0


class Writer(Protocol):
    """A journal as its process sees it; `at_work` is held while its store works."""

    at_work: threading.RLock

    def end(self, patience: float) -> None:
        """Write what is left, for so many seconds at most."""
        ...

    def disown(self) -> None:
        """Leave everything to the parent: this is a forked child."""
        ...


_open: WeakSet[Writer] = WeakSet()


def enter(writer: Writer) -> None:
    """A journal is open from now on."""
    _open.add(writer)


def leave(writer: Writer) -> None:
    """A journal is closed."""
    _open.discard(writer)


def _end() -> None:
    for writer in list(_open):
        writer.end(_PATIENCE)


class _Fork:
    """A fork waits until no store is at work, so that no child has a copy of one in the middle of something."""

    def __init__(self) -> None:
        self._held: list[threading.RLock] = []

    def before(self) -> None:
        locks = [writer.at_work for writer in list(_open)]
        self._held = [lock for lock in locks if lock.acquire(timeout=_PATIENCE)]

    def in_parent(self) -> None:
        held, self._held = self._held, []
        for lock in held:
            lock.release()

    def in_child(self) -> None:
        self._held = []
        for writer in list(_open):
            writer.disown()


_fork = _Fork()
atexit.register(_end)
os.register_at_fork(before=_fork.before, after_in_parent=_fork.in_parent, after_in_child=_fork.in_child)
