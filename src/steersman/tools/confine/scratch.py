"""A private temporary folder with an unguessable name, removed when its owner ends.

The owner holds a file lock in it, which ends with the process: the next program removes folders whose lock is free.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from steersman.tools.confine.enforcement import give_rights, open_in_place
from steersman.tools.confine.syscalls import FOLDER

_PREFIX = "steersman-"
_LOCK = "lock"
_MARK = b"A temporary folder of steersman, which may be deleted while no program holds this lock.\n"
_made: set[str] = set()  # by this program


class Scratch:
    """Temporary folders, created on first use and removed with this object or at the end of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base: Path | None = None
        self._removal: weakref.finalize[[str, int, int], Scratch] | None = None

    def make_folder(self, name: str) -> str:
        """Create the folder of that name, or return it; only its owner can enter it."""
        with self._lock:
            if self._base is None or not self._base.is_dir() or not _is_unmoved(str(self._base)):
                self._base = self._make_base()
            path = self._base / name
            path.mkdir(mode=0o700, exist_ok=True)
            if not _is_unmoved(str(path)):
                raise OSError(f"the temporary folder {str(path)!r} has been replaced by a link")
            return str(path)

    def close(self) -> None:
        """Remove the folders now."""
        with self._lock:
            self._base = None
            if self._removal is not None:
                self._removal()

    def _make_base(self) -> Path:
        # Imported late: only needed when a folder is created.
        import tempfile

        _remove_stale(tempfile.gettempdir())
        base = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
        _made.add(base)
        if self._removal is not None:
            self._removal()  # its folder was deleted from outside
        self._removal = weakref.finalize(self, _remove, base, _take_lock(base), os.getpid())
        return Path(base)


def _take_lock(base: str) -> int:
    """Lock a folder for this process. The lock file gets its name once it is locked, so it never looks stale."""
    import fcntl

    new = os.path.join(base, f".{_LOCK}")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, _MARK)
    os.rename(new, os.path.join(base, _LOCK))
    return descriptor


def _remove(base: str, lock: int, process: int) -> None:
    # A forked child must not remove the folder of its parent.
    if os.getpid() == process:
        _delete(base)
        os.close(lock)
        _made.discard(base)


def _is_unmoved(path: str) -> bool:
    """Whether a real path still leads through no symlink. In the workspace, a command could put one there."""
    return os.path.realpath(path) == path


def delete_tree(path: str) -> None:
    """Delete a folder with all that is in it, also folders whose owner may not read or change them.

    A command can nest folders deeper than a path or a recursion reaches. So each folder is moved into the topmost one
    before it is emptied: two open folders at a time are enough, and no path.
    """
    try:
        top = _open_wholly(open_in_place(path))
    except OSError:
        return  # deleted already, replaced by a link, no folder, or of another user
    try:
        moved = itertools.count()
        prefix = os.urandom(8).hex()
        waiting = _empty(top)
        while waiting:
            name = waiting.pop()
            try:
                waiting += _empty_into(top, name, lambda: f"{prefix}-{next(moved)}")
            except OSError:
                continue  # of another user, or another file system
    finally:
        os.close(top)
    with contextlib.suppress(OSError):  # something of another user is left in it
        os.rmdir(path)


def _empty_into(top: int, name: str, make_name: Callable[[], str]) -> list[str]:
    """Delete a folder in the topmost one, and move the folders in it there; return their new names."""
    folder = _open_inside(top, name)
    found: list[str] = []
    try:
        for inner in _empty(folder):
            with contextlib.suppress(OSError):
                os.close(_open_inside(folder, inner))  # only who may write to a folder may move it
                new = make_name()
                os.rename(inner, new, src_dir_fd=folder, dst_dir_fd=top)
                found.append(new)
    finally:
        os.close(folder)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return found


def _empty(folder: int) -> list[str]:
    """Delete the files of an open folder; return the names of the folders in it."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def _open_inside(folder: int, name: str) -> int:
    return _open_wholly(os.open(name, FOLDER, dir_fd=folder))


def _open_wholly(place: int) -> int:
    """Open a folder to read and change it, and give its owner the right to; close the file descriptor of its place."""
    try:
        give_rights(place, 0o700)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)


def _delete(base: str) -> None:
    """Delete a folder, the lock file last: if we are killed meanwhile, the next program can finish it."""
    if not _is_unmoved(base):
        return  # what a link leads to is not ours
    try:
        names = [name for name in os.listdir(base) if name != _LOCK]
    except OSError:
        return  # already deleted
    for name in names:
        delete_tree(os.path.join(base, name))
    delete_tree(base)


def list_live_folders(name: str) -> Iterator[str]:
    """List the folders of this name, with something in them, of all programs of this user that still run."""
    # Imported late, as above.
    import tempfile

    for base in _list_bases(os.path.realpath(tempfile.gettempdir())):
        folder = os.path.join(base, name)
        if not _is_empty(folder) and _is_unmoved(folder) and (lock := _open_lock(base)) is not None:
            try:
                is_live = not _try_lock(lock)
            finally:
                os.close(lock)
            if is_live:
                yield folder


def list_bases() -> list[str]:
    """List the real paths of the temporary folders of this program, and of others of this user."""
    # Imported late, as above.
    import tempfile

    found = list(_made)
    for base in _list_bases(os.path.realpath(tempfile.gettempdir())):
        if (lock := _open_lock(base)) is not None:
            os.close(lock)
            found.append(base)
    return list(dict.fromkeys(found))


def _is_empty(folder: str) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:
        return True  # there is none


def _remove_stale(parent: str) -> None:
    """Remove our folders whose owner has ended; a folder that cannot be checked stays."""
    for base in _list_bases(parent):
        if (lock := _open_lock(base)) is not None:
            try:
                if _try_lock(lock):
                    _delete(base)
            finally:
                os.close(lock)


def _list_bases(parent: str) -> list[str]:
    try:
        return [os.path.join(parent, name) for name in os.listdir(parent) if name.startswith(_PREFIX)]
    except OSError:
        return []


def _open_lock(base: str) -> int | None:
    """Open the lock file of a folder; `None` where the folder is not one of ours."""
    try:
        found = os.lstat(base)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return None
        lock = os.open(os.path.join(base, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if _has_mark(lock):
        return lock
    os.close(lock)
    return None  # a folder of the user's, with a file of that name


def _has_mark(lock: int) -> bool:
    try:
        return os.pread(lock, len(_MARK) + 1, 0) == _MARK
    except OSError:  # not a file
        return False


def _try_lock(lock: int) -> bool:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # its owner still runs
    return True
