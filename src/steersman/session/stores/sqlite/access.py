"""How a file of sessions is entered: it is looked over by who is alone with it, and only its owner can read it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from steersman.session.stores.sqlite.locks import LockFile, Locks
from steersman.session.stores.sqlite.salvage import beside, examine, set_aside, settle, sync_folder, torn, unfinished
from steersman.session.stores.sqlite.tables import (
    ONCE,
    Damage,
    Lost,
    SessionRow,
    connect,
    is_made,
    judged,
    make,
    note,
    sessions_in,
    transaction,
)
from steersman.session.stores.store import Problem, SessionBusy, StoreFailed

_T = TypeVar("_T")
EVERYBODY = 0
"""The lock that all who use a file share, and that who salvages it has alone."""
_MAKING = 1 << 40  # no session has this number


class Access:
    """What an open file needs: locks, a connection to read and, for a writer, one to write; and what was found."""

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.taken = False
        self._unfinished: dict[int, int] = {}
        self.leave = ExitStack()
        self.locks = locks_of(path) if write else reading_locks_of(path)
        with ExitStack() as stack:
            if self.locks is not None:
                stack.callback(self.locks.close)
                if self.locks.take(EVERYBODY):
                    outside(path, self._look, write=write)
                self.locks.share(EVERYBODY)
            self.connection = connect(path, write=write)
            stack.callback(self.connection.close)
            if write:
                _check_writable(path)
                self._make()
                # Only now it is known to be ours.
                outside(path, _close_to_others, path)
            self.place = outside(path, place_of, path)
            if write and self.problems:
                self._note()
            self.leave = stack.pop_all()

    def take(self, row: SessionRow) -> None:
        """Be the writer of a session."""
        if self.locks is None or not self.locks.take(row.number):
            raise SessionBusy(
                f"The session {row.id!r} is being written to by somebody else. Wait until they are done, or open it "
                "with write=False."
            )
        self.taken = True

    def alone(self) -> bool:
        """Whether nobody else has the file open now."""
        if self.locks is None or not self.locks.take(EVERYBODY):
            return self.locks is None or not self.locks.writable
        self.locks.share(EVERYBODY)
        return True

    @contextmanager
    def secluded(self, reason: str) -> Generator[None]:
        """Have a file that turned out damaged alone for a while; `Damage` if others use it."""
        if self.locks is None:
            raise Damage(reason)
        try:
            if not self.locks.take(EVERYBODY):
                raise Damage(f"{reason}, and others use the file: it is salvaged once they have closed it")
            yield
        finally:
            self.locks.share(EVERYBODY)

    def connect(self) -> None:
        """Write to what is in the place of the file now."""
        self.connection = connect(self.path, write=True)
        self.leave.callback(self.connection.close)
        self.place = outside(self.path, place_of, self.path)

    def afterwards(self, do: Callable[[], object]) -> None:
        """Do this when everything is let go."""
        leave = ExitStack()
        leave.callback(do)
        leave.push(self.leave.pop_all())
        self.leave = leave

    def close(self) -> None:
        """Let go of everything."""
        self.leave.close()

    def __enter__(self) -> Access:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self, *, write: bool) -> None:
        if write:
            settle(self.path)
        if not self.path.exists():
            return
        log = examine(self.path)
        if log.torn:
            self.problems.append(set_aside(self.path, log) if write else torn(log))
            self._unfinished = unfinished(log)

    def _make(self) -> None:
        with judged(f"The file {str(self.path)!r} cannot be used"):
            if self.locks is not None and not is_made(self.connection):
                with self.locks.held(_MAKING):
                    make(self.connection)

    def _note(self) -> None:
        """Leave word for those who open the sessions whose last words were torn, or for all if nobody knows which."""
        with judged(f"The file {str(self.path)!r} cannot be used"), transaction(self.connection):
            rows = sessions_in(self.connection)
            torn = [row for row in rows if self._unfinished.get(row.number, 0) > row.last]
            for row in torn or rows:
                note(self.connection, row.number, Lost(ONCE, ONCE, self.problems[-1].text))


def checked_path(path: str | os.PathLike[str]) -> Path:
    """The path of a file of sessions, whatever folder the program goes to later; raises `ValueError`."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(f"Sessions are kept in a file: give its path, got {text!r}.")
    return Path(os.path.abspath(os.path.expanduser(text)))


def check_ordinary(path: Path) -> None:
    """Raise `StoreFailed` for a folder, a device or a pipe: the last would be waited for, none is to be changed."""
    if not path.is_file():
        raise StoreFailed(f"{str(path)!r} is no ordinary file. Sessions are kept in a file: give its path.")


def prepare(path: Path) -> None:
    """Make the file before SQLite does, so that nobody else can ever read it."""
    try:
        _make_folder(path.parent)
        if path.exists():
            check_ordinary(path)
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
        sync_folder(path.parent)
    except OSError as error:
        raise StoreFailed(f"The file {str(path)!r} cannot be made: {error.strerror}.") from error


def _check_writable(path: Path) -> None:
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreFailed(f"The file {str(path)!r} may not be written. Open it with write=False to read it.")


def _close_to_others(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        try:
            path.chmod(mode & 0o700)
        except OSError:
            pass  # it is somebody else's, who decides, or on a disk that cannot be written


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def locks_of(path: Path) -> LockFile:
    """The locks of somebody who writes."""
    return outside(path, Locks, beside(path, "-lock"))


def reading_locks_of(path: Path) -> LockFile | None:
    """The locks of somebody who reads, who may have no right to make any."""
    for write in (True, False):
        try:
            return Locks(beside(path, "-lock"), write=write)
        except OSError:
            continue
    return None


def outside(path: Path, do: Callable[..., _T], *args: object, **options: object) -> _T:
    """What goes wrong around the file is a failure of the store."""
    try:
        return do(*args, **options)
    except OSError as error:
        raise StoreFailed(f"The file {str(path)!r} cannot be used: {error.strerror}.") from error


def place_of(path: Path) -> tuple[int, int]:
    """What tells a file from another one of its name."""
    found = path.stat()
    return found.st_dev, found.st_ino
