"""Advisory locks in a file. The kernel releases them when their process ends, however it ends, so none is ever stale.

They belong to an open file description, not to a process: two objects in one process exclude each other as well.
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
    """Numbered advisory locks in one file; each is held by one exclusively, or shared by many."""

    def __init__(self, path: Path, *, write: bool = True) -> None:
        self._path = path
        self.writable = write
        self._files: dict[int, int] = {}
        # Locks that were never closed are released with their object.
        forgotten = weakref.finalize(self, _close, self._files)
        forgotten.atexit = False  # journals write until the process ends, and its locks end with it
        self._open(0)
        _alive.add(self)

    def try_lock(self, number: int) -> bool:
        """Take this lock exclusively if it is free; always `False` where the lock file is read-only."""
        return self.writable and self._lock(number, exclusive=True, wait=False)

    @contextmanager
    def hold(self, number: int) -> Generator[None]:
        """Wait for this lock and hold it exclusively for a while."""
        self._lock(number, exclusive=True, wait=True)
        try:
            yield
        finally:
            self._unlock(number)

    def share(self, number: int) -> None:
        """Share this lock, and wait while another holds it exclusively; an exclusive lock of our own becomes shared."""
        self._lock(number, exclusive=False, wait=True)

    def close(self) -> None:
        """Release all locks."""
        _close(self._files)

    @property
    def closed(self) -> bool:
        """Whether they are released; in a forked child they are, while the parent still holds them."""
        return not self._files

    def _open(self, number: int) -> int:
        file = self._files.get(number)
        if file is None:
            flags = os.O_RDWR | os.O_CREAT if self.writable else os.O_RDONLY
            file = self._files[number] = os.open(self._name(number), flags | os.O_CLOEXEC, 0o600)
        return file

    def _name(self, number: int) -> Path:
        """Each lock is one byte of the same file."""
        del number
        return self._path

    def _lock(self, number: int, *, exclusive: bool, wait: bool) -> bool:
        wanted = _pack_flock(number, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK)
        try:
            fcntl.fcntl(self._open(0), fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, wanted)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(self, number: int) -> None:
        fcntl.fcntl(self._open(0), fcntl.F_OFD_SETLK, _pack_flock(number, fcntl.F_UNLCK))


class WholeFileLocks(LockFile):
    """The same for systems that lock only whole files: one file for each number."""

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


def _pack_flock(number: int, kind: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, number, 1, 0)


Locks: Final = LockFile if hasattr(fcntl, "F_OFD_SETLK") else WholeFileLocks

_alive: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _close_all() -> None:
    """In a forked child: close the locks, which it would otherwise hold longer than its parent lives."""
    for locks in list(_alive):
        locks.close()


os.register_at_fork(after_in_child=_close_all)
