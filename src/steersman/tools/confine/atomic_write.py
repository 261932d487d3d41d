"""Replaces a file atomically: writes and fsyncs a temporary file in the same folder, then renames it over the old one.

After a full disk or a kill the old content is still there. The temporary file has an unguessable name and is readable
by its owner alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from dataclasses import dataclass

from steersman.tools.confine.file_versions import digest_stream
from steersman.tools.confine.path_errors import StaleFile, WorkspaceError, WrongKind
from steersman.tools.confine.path_resolution import PathChanged, ResolvedPath, open_subfolder, stat_entry
from steersman.tools.confine.syscalls import is_pseudo_file

_TEMPORARY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
_ACCESS_LIST = "system.posix_acl_access"
_EFFECTIVE = os.access in os.supports_effective_ids


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: whether the file is new, and how many other names (hard links) keep the old content."""

    created: bool
    other_names: int


def write_atomically(place: ResolvedPath, data: bytes, shown: str, expect: str | None) -> WriteResult:
    """Write all of `data` to the resolved path, or change nothing.

    With `expect`, a file whose digest is another one raises `StaleFile`.
    """
    if not place.rest:
        raise WrongKind(f"{shown!r} is a folder, not a file.")
    old = place.found
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise WrongKind(f"{shown!r} is not a regular file. It is left as it is.")
    if old is None and expect is not None:
        raise _make_stale_error(shown)
    name = place.rest[-1]
    with _open_parent(place) as folder:
        if old is not None and not os.access(name, os.W_OK, dir_fd=folder, effective_ids=_EFFECTIVE):
            raise WorkspaceError(f"{shown!r} is not writable by its permissions. Ask for them to be changed first.")
        with _write_temporary(folder, data, old, name) as temporary:
            if expect is not None and _digest_current(folder, name) != expect:
                raise _make_stale_error(shown)
            _move_into_place(folder, temporary, name, new=old is None)
        _fsync_folder(folder)
    return WriteResult(old is None, 0 if old is None else old.st_nlink - 1)


def _make_stale_error(shown: str) -> StaleFile:
    return StaleFile(f"{shown!r} has changed since it was last read here. Read it again, then make the change.")


@contextlib.contextmanager
def _open_parent(place: ResolvedPath) -> Generator[int]:
    """Open the file's folder; create missing folders, and remove them again if the write fails."""
    folder = os.dup(place.folder)
    made = 0
    try:
        for name in place.rest[:-1]:
            try:
                os.mkdir(name, dir_fd=folder)
            except FileExistsError as error:
                raise PathChanged from error
            made += 1
            folder = _descend(folder, name)
        yield folder
    except BaseException:
        while made:
            made -= 1
            with contextlib.suppress(OSError, PathChanged):
                _remove_folder(place, made)
        raise
    finally:
        os.close(folder)


def _descend(folder: int, name: str) -> int:
    inner = open_subfolder(folder, name)
    os.close(folder)
    return inner


def _remove_folder(place: ResolvedPath, index: int) -> None:
    """Remove a folder that was created here, reached again by its names; it stays if it is no longer empty."""
    folder = os.dup(place.folder)
    try:
        for name in place.rest[:index]:
            folder = _descend(folder, name)
        os.rmdir(place.rest[index], dir_fd=folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _write_temporary(folder: int, data: bytes, old: os.stat_result | None, name: str) -> Generator[str]:
    temporary = f".{os.urandom(16).hex()}.tmp"
    descriptor = os.open(temporary, _TEMPORARY, 0o600, dir_fd=folder)
    try:
        try:
            if is_pseudo_file(descriptor):
                raise WrongKind("Files that are made by the kernel cannot be written.")
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view[:_CHUNK]) :]
            _copy_owner_and_mode(descriptor, folder, name, old)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        # After a rename it is already gone.
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)


def _copy_owner_and_mode(descriptor: int, folder: int, name: str, old: os.stat_result | None) -> None:
    """Give the new file the owner and mode of the old one, or the usual mode of a new file."""
    if old is None:
        os.fchmod(descriptor, 0o666 & ~_read_umask())
        return
    mine = os.fstat(descriptor)
    kept = (mine.st_uid, mine.st_gid) == (old.st_uid, old.st_gid)
    if not kept:
        for owner, group in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, owner, group)
                break
    # Without setuid and setgid, as the kernel does on a write: new content must not run with the owner's rights.
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o1777)
    if hasattr(os, "getxattr"):
        _copy_access_list(descriptor, folder, name)


def _copy_access_list(descriptor: int, folder: int, name: str) -> None:
    """Copy the POSIX access control list: without it, the mode gives the group what the list gives to others."""
    source = _open_nonblocking(folder, name)
    try:
        access = os.getxattr(source, _ACCESS_LIST)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return
        raise
    finally:
        os.close(source)
    os.setxattr(descriptor, _ACCESS_LIST, access)


def _read_umask() -> int:
    """Read the umask from /proc; `os.umask` would change it for a moment, for every thread."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
    except (OSError, StopIteration):
        return 0o022


def _digest_current(folder: int, name: str) -> str | None:
    """Compute the digest of the file's content now; `None` when it is no longer a regular file."""
    found = stat_entry(folder, name)
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    with open(_open_nonblocking(folder, name), "rb", buffering=0) as file:
        return digest_stream(file)


def _open_nonblocking(folder: int, name: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOENT, errno.ENXIO):
            raise PathChanged from error
        raise


def _move_into_place(folder: int, temporary: str, name: str, *, new: bool) -> None:
    if new:
        try:
            # Unlike a rename, this fails when another process created the file meanwhile.
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            return
        except FileExistsError as error:
            raise PathChanged from error
        except OSError:
            # File systems without hard links.
            pass
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _fsync_folder(folder: int) -> None:
    """Fsync the folder, so that the rename survives a power cut."""
    # The rename is done: a file system that cannot fsync a folder is no failure.
    with contextlib.suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
