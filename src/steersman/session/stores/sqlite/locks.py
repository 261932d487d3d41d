"""Locks of a file that end with the process that holds them, however that ends, so that none is ever stale.

They belong to an open file, not to a process: two objects in one process keep each other out as well.
"""

from __future__ import annotations

import fcntl
import os
import struct
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final


class LockFile:
    """Numbered locks in one file; each is had by one, or shared by many."""

    def __init__(self, path: Path, *, write: bool = True) -> None:
        self._path = path
        self.writable = write
        self._files: dict[int, int] = {}
        # Who forgets to close them holds nobody up for longer than they are there.
        forgotten = weakref.finalize(self, _close, self._files)
        forgotten.atexit = False  # journals write to the very end, and with the process all locks end
        self._open(0)
        _alive.add(self)

    def take(self, number: int) -> bool:
        """Have this lock alone, unless somebody else has it; a file that can only be read has none to take."""
        return self.writable and self._lock(number, exclusive=True, wait=False)

    @contextmanager
    def held(self, number: int) -> Generator[None]:
        """Have this lock alone for a while, once nobody else has it."""
        self._lock(number, exclusive=True, wait=True)
        try:
            yield
        finally:
            self._unlock(number)

    def share(self, number: int) -> None:
        """Have this lock with others, once nobody has it alone; what was had alone is shared from here on."""
        self._lock(number, exclusive=False, wait=True)

    def close(self) -> None:
        """Let others have them."""
        _close(self._files)

    @property
    def closed(self) -> bool:
        """Whether they are let go; in a forked child they are, and the parent has them still."""
        return not self._files

    def _open(self, number: int) -> int:
        file = self._files.get(number)
        if file is None:
            flags = os.O_RDWR | os.O_CREAT if self.writable else os.O_RDONLY
            file = self._files[number] = os.open(self._name(number), flags | os.O_CLOEXEC, 0o600)
        return file

    def _name(self, number: int) -> Path:
        """All of them are bytes of one file."""
        del number
        return self._path

    def _lock(self, number: int, *, exclusive: bool, wait: bool) -> bool:
        wanted = _byte(number, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK)
        try:
            fcntl.fcntl(self._open(0), fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, wanted)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(self, number: int) -> None:
        fcntl.fcntl(self._open(0), fcntl.F_OFD_SETLK, _byte(number, fcntl.F_UNLCK))


class WholeFileLocks(LockFile):
    """The same where only whole files can be locked, with a file for each number."""

    def _name(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}-{number}")

    def _lock(self, number: int, *, exclusive: bool, wait: bool) -> bool:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._open(number), kind if wait else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(self, number: int) -> None:
        fcntl.flock(self._open(number), fcntl.LOCK_UN)


def _close(files: dict[int, int]) -> None:
    while files:
        os.close(files.popitem()[1])


def _byte(number: int, kind: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, number, 1, 0)


Locks: Final = LockFile if hasattr(fcntl, "F_OFD_SETLK") else WholeFileLocks

_alive: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _leave() -> None:
    """A forked child shares its parent's locks and would hold them when the parent is long dead."""
    for locks in list(_alive):
        locks.close()


os.register_at_fork(after_in_child=_leave)
