"""A private folder for temporary files: nobody can guess its name or look in, and it goes when its owner goes.

Where the owner was killed, the next one removes it. Who owns a folder holds a lock in it, which ends with the process.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path

_PREFIX = "steersman-"
_LOCK = "lock"


class Scratch:
    """Folders made when they are first asked for, removed with this object or at the end of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base: Path | None = None
        self._removal: weakref.finalize[[str, int, int], Scratch] | None = None

    def make_folder(self, name: str) -> str:
        """The folder of that name, which only its owner can enter."""
        with self._lock:
            if self._base is None or not self._base.is_dir():
                self._base = self._make_base()
            path = self._base / name
            path.mkdir(mode=0o700, exist_ok=True)
            return str(path)

    def close(self) -> None:
        """Remove the folders now."""
        with self._lock:
            self._base = None
            if self._removal is not None:
                self._removal()

    def _make_base(self) -> Path:
        # Only a call that needs a folder pays for this import.
        import tempfile

        _remove_stale(tempfile.gettempdir())
        base = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
        if self._removal is not None:
            self._removal()  # of a folder that somebody deleted
        self._removal = weakref.finalize(self, _remove, base, _take_lock(base), os.getpid())
        return Path(base)


def _take_lock(base: str) -> int:
    """A lock of ours in a folder. It has its name only once it is held, so nobody takes it for a stale one."""
    import fcntl

    new = os.path.join(base, f".{_LOCK}")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(new, os.path.join(base, _LOCK))
    return descriptor


def _remove(base: str, lock: int, process: int) -> None:
    # A forked child takes its parent's folder for its own.
    if os.getpid() == process:
        _delete(base)
        os.close(lock)


def _delete(base: str) -> None:
    """Delete a folder, the lock last: whatever ends us on the way, the next one can finish it."""
    import shutil

    try:
        names = [name for name in os.listdir(base) if name != _LOCK]
    except OSError:
        return  # gone already
    for name in names:
        shutil.rmtree(os.path.join(base, name), ignore_errors=True)
    shutil.rmtree(base, ignore_errors=True)


def _remove_stale(parent: str) -> None:
    """Remove the folders of ours that nobody owns any more; what cannot be judged stays."""
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in names:
        if name.startswith(_PREFIX):
            _remove_if_stale(os.path.join(parent, name))


def _remove_if_stale(base: str) -> None:
    import fcntl
    import stat

    try:
        found = os.lstat(base)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        descriptor = os.open(os.path.join(base, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _delete(base)
    except OSError:
        pass  # somebody holds it
    finally:
        os.close(descriptor)
