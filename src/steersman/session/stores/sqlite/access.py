"""Opens a file of sessions: takes the locks, examines a file that no other process has open, and connects.

Only the owner of the file can read it, whatever the umask says. Locks are advisory and in a file beside it. They belong
to an open file description, not to a process: two objects in one process exclude each other as well, and the kernel
releases them when their process ends, however it ends, so none is ever stale.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import tempfile
import weakref
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from steersman.session.stores.sqlite.rescue import (
    describe_torn_tail,
    examine_file,
    finish_rescue,
    fsync_folder,
    make_companion_path,
    set_torn_tail_aside,
)
from steersman.session.stores.sqlite.tables import (
    ONCE,
    Damage,
    Lost,
    SessionRow,
    classify_errors,
    connect,
    create_tables,
    insert_lost,
    is_current,
    read_sessions,
    transaction,
)
from steersman.session.stores.store import Problem, StoreFailed, make_busy_error


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

    def is_locked(self, number: int) -> bool:
        """Whether another one holds this lock exclusively; takes nothing."""
        free = fcntl.fcntl(self._open(0), fcntl.F_OFD_GETLK, _pack_flock(number, fcntl.F_RDLCK))
        return struct.unpack("hhqqi4x", free)[0] != fcntl.F_UNLCK

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

    def is_locked(self, number: int) -> bool:
        """The same; the lock is taken for a moment, since these cannot be asked."""
        if not self._lock(number, exclusive=False, wait=False):
            return True
        self._unlock(number)
        return False

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


_T = TypeVar("_T")
SHARED_LOCK = 0
"""The number of the lock that all users of a file share; a rescue holds it exclusively."""
_CREATING = 1 << 40  # no session has this number
# Each epoch has a lock of its own: the former owner of a session that was taken over may be stopped, and keeps its own.
_EPOCH_SHIFT = 41


class Access:
    """An open file: its locks, its connection, and the problems that were found."""

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.is_writer = False
        self.closing = ExitStack()
        self.locks = open_locks(path) if write else open_reader_locks(path)
        with ExitStack() as stack:
            if self.locks is not None:
                stack.callback(self.locks.close)
                if self.locks.try_lock(SHARED_LOCK):
                    translate_os_errors(path, self._examine, write=write)
                self.locks.share(SHARED_LOCK)
            self.connection = connect(path, write=write)
            stack.callback(self.connection.close)
            if write:
                _check_writable(path)
                self._create_tables()
                # Not earlier: only now it is known to be a file of sessions.
                translate_os_errors(path, _restrict_mode, path)
            self.file_id = translate_os_errors(path, identify_file, path)
            if write and self.problems:
                self._leave_note()
            self.closing = stack.pop_all()

    def lock_session(self, row: SessionRow) -> None:
        """Become the writer of a session; raises `SessionBusy` if another one has its lock."""
        if self.locks is None or not self.locks.try_lock(row.number + (row.epoch << _EPOCH_SHIFT)):
            raise make_busy_error(row.id)
        self.is_writer = True

    def is_locked(self, row: SessionRow) -> bool:
        """Whether another one is the writer of a session."""
        return self.locks is not None and self.locks.is_locked(row.number + (row.epoch << _EPOCH_SHIFT))

    def is_alone(self) -> bool:
        """Whether this is the only one that has the file open now."""
        if self.locks is None or not self.locks.try_lock(SHARED_LOCK):
            return self.locks is None or not self.locks.writable
        self.locks.share(SHARED_LOCK)
        return True

    @contextmanager
    def exclude_others(self, reason: str) -> Generator[None]:
        """Hold a damaged file exclusively for a while; raises `Damage` if others use it."""
        if self.locks is None:
            raise Damage(reason)
        try:
            if not self.locks.try_lock(SHARED_LOCK):
                raise Damage(f"{reason}, and others use the file: it is rescued once they have closed it")
            yield
        finally:
            self.locks.share(SHARED_LOCK)

    def reconnect(self) -> None:
        """Connect to the file that has the path now."""
        self.connection = connect(self.path, write=True)
        self.closing.callback(self.connection.close)
        self.file_id = translate_os_errors(self.path, identify_file, self.path)

    def call_on_close(self, do: Callable[[], object]) -> None:
        """Call this after everything else is closed."""
        closing = ExitStack()
        closing.callback(do)
        closing.push(self.closing.pop_all())
        self.closing = closing

    def close(self) -> None:
        """Close the connections and release the locks."""
        self.closing.close()

    def __enter__(self) -> Access:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _examine(self, *, write: bool) -> None:
        if write:
            finish_rescue(self.path)
        if not self.path.exists():
            return
        log = examine_file(self.path)
        if log.is_torn:
            self.problems.append(set_torn_tail_aside(self.path, log) if write else describe_torn_tail(log))

    def _create_tables(self) -> None:
        with classify_errors(f"The file {str(self.path)!r} cannot be used"):
            if self.locks is not None and not is_current(self.connection):
                with self.locks.hold(_CREATING):
                    create_tables(self.connection)

    def _leave_note(self) -> None:
        """Leave a note about the torn tail in every session: it may have been a part of any of them."""
        with classify_errors(f"The file {str(self.path)!r} cannot be used"), transaction(self.connection):
            for row in read_sessions(self.connection):
                insert_lost(self.connection, row.number, Lost(ONCE, ONCE, self.problems[-1].text))


def check_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a file of sessions; raises `ValueError`."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(f"Sessions are kept in a file: give its path, got {text!r}.")
    return Path(os.path.abspath(os.path.expanduser(text)))


def check_regular_file(path: Path) -> None:
    """Raise `StoreFailed` for a folder, a device or a pipe: opening a pipe could wait for ever."""
    if not path.is_file():
        raise StoreFailed(f"{str(path)!r} is not a regular file. Sessions are kept in a file: give its path.")


def create_file(path: Path) -> None:
    """Create the file before SQLite does, so that only its owner can ever read it."""
    try:
        _create_folder(path.parent)
        if path.exists():
            check_regular_file(path)
            return
        # A file that may be in use is not opened here: closing it again would take away the locks SQLite has on it.
        file, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        os.close(file)
        try:
            os.link(name, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(name)
        fsync_folder(path.parent)
    except OSError as error:
        raise StoreFailed(f"The file {str(path)!r} cannot be created: {error.strerror}.") from error


def _check_writable(path: Path) -> None:
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreFailed(f"The file {str(path)!r} may not be written. Open it with write=False to read it.")


def _restrict_mode(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        try:
            path.chmod(mode & 0o700)
        except OSError:
            pass  # another user owns it, or the disk is read-only


def _create_folder(folder: Path) -> None:
    if not folder.exists():
        _create_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        fsync_folder(folder.parent)


def open_locks(path: Path) -> LockFile:
    """The locks of a writer."""
    return translate_os_errors(path, Locks, make_companion_path(path, "-lock"))


def open_reader_locks(path: Path) -> LockFile | None:
    """The locks of a reader; `None` where it may not even open the lock file."""
    for write in (True, False):
        try:
            return Locks(make_companion_path(path, "-lock"), write=write)
        except OSError:
            continue
    return None


def translate_os_errors(path: Path, do: Callable[..., _T], *args: object, **options: object) -> _T:
    """Call a function and turn its `OSError` into `StoreFailed`."""
    try:
        return do(*args, **options)
    except OSError as error:
        raise StoreFailed(f"The file {str(path)!r} cannot be used: {error.strerror}.") from error


def identify_file(path: Path) -> tuple[int, int]:
    """Device and inode, which tell a file from another one of the same name."""
    found = path.stat()
    return found.st_dev, found.st_ino
