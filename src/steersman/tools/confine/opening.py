"""Opens regular files and nothing else, without waiting: a pipe, a device or a socket is named and left alone."""

from __future__ import annotations

import errno
import os
import stat

from steersman.tools.confine.beneath import Moved, Place
from steersman.tools.confine.kernel import made_by_the_kernel
from steersman.tools.confine.missing import missing
from steersman.tools.confine.refusals import WorkspaceError, WrongKind

_ALWAYS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))


def open_file(place: Place, path: str, flags: int, mode: int, *, writing: bool) -> int:
    """The file at a place, as a descriptor."""
    found, name = place.found, place.rest[-1] if place.rest else ""
    if not name:
        raise WrongKind(f"{path!r} is a folder, not a file.")
    if path.endswith(("/", "/.")):
        raise WrongKind(f"{path!r} names a folder. Give the path of a file.")
    if found is None and (len(place.rest) > 1 or not flags & os.O_CREAT):
        missing(place, path)
    if found is not None:
        # Before it is opened: opening is an act for some devices.
        _check_kind(found, path, writing=writing)
    try:
        # Cut off only once it is known to be a file that may be.
        descriptor = os.open(name, flags & ~os.O_TRUNC | _ALWAYS, mode, dir_fd=place.folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO) or (error.errno == errno.ENOENT and found is not None):
            raise Moved from error
        raise
    try:
        _check_kind(os.fstat(descriptor), path, writing=writing)
        if made_by_the_kernel(descriptor):
            raise WrongKind(f"{path!r} is made by the kernel and is no file of the workspace.")
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_kind(found: os.stat_result, path: str, *, writing: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        words = next((words for test, words in _KINDS if test(found.st_mode)), "a device")
        raise WrongKind(f"{path!r} is {words}, not a regular file.")
    if writing and found.st_nlink > 1:
        raise WorkspaceError(f"{path!r} has {found.st_nlink} names (hard links), and not all need be in the workspace.")
