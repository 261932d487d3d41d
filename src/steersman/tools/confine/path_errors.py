"""The errors for a path that is refused. The model reads them, so each names the path and says what to do instead.

ToolError
  WorkspaceError      any other reason
    OutsideWorkspace  the path leads out of the workspace
    ProtectedPath     the path can be read but not written
    DeniedPath        a rule of the approval policy denies the path
    MissingPath       nothing exists at the path
    WrongKind         a folder where a file is wanted, a file where a folder is wanted, or neither
    TooLarge          more bytes than the caller accepts
    StaleFile         the file has changed since it was last read
"""

from __future__ import annotations

import errno
import os

from steersman.types.errors import ToolError


class WorkspaceError(ToolError):
    """A path cannot be used as requested."""


class OutsideWorkspace(WorkspaceError):
    """The path leads out of the workspace."""


class ProtectedPath(WorkspaceError):
    """The path can be read but not written."""


class DeniedPath(WorkspaceError):
    """A rule of the approval policy denies the path, or what it leads to."""


class MissingPath(WorkspaceError):
    """Nothing exists at the path."""


class WrongKind(WorkspaceError):
    """A folder where a file is wanted, a file where a folder is wanted, or something that is neither."""


class TooLarge(WorkspaceError):
    """The file has more bytes than the caller accepts."""


class StaleFile(WorkspaceError):
    """The file has changed since it was last read."""


def make_outside_error(path: str, root: str) -> OutsideWorkspace:
    """Make the error for a path that leads out of the workspace."""
    return OutsideWorkspace(f"{path!r} is outside the workspace {root!r}. Use a path inside it, relative to it.")


_WORDS: dict[int, tuple[type[WorkspaceError], str]] = {
    errno.ENOENT: (MissingPath, "does not exist."),
    errno.EACCES: (WorkspaceError, "is not allowed by its permissions or those of its folder."),
    errno.EPERM: (WorkspaceError, "is not allowed by its permissions or those of its folder."),
    errno.EROFS: (WorkspaceError, "is on a file system that is read-only."),
    errno.ENAMETOOLONG: (WorkspaceError, "has a name that is too long. Use a shorter one."),
    errno.ELOOP: (WorkspaceError, "goes through symbolic links that lead in a circle."),
    errno.ENOTDIR: (WrongKind, "goes through something that is not a folder."),
    errno.EISDIR: (WrongKind, "is a folder, not a file."),
    errno.ENXIO: (WrongKind, "is not a regular file."),
    errno.ENOSPC: (WorkspaceError, "was not written: the disk is full. What was there before is unchanged."),
    errno.EDQUOT: (WorkspaceError, "was not written: the disk quota is used up. What was there before is unchanged."),
    errno.EFBIG: (WorkspaceError, "was not written: it would be too large. What was there before is unchanged."),
    errno.EBUSY: (WorkspaceError, "is in use in a way that does not let it be replaced."),
}


def translate_os_error(error: OSError, path: str) -> WorkspaceError:
    """Translate an `OSError` about a path into an error that the model can act on."""
    number = error.errno or 0
    if number not in _WORDS:
        return WorkspaceError(f"{path!r}: {os.strerror(number) if number else error}.")
    kind, words = _WORDS[number]
    return kind(f"{path!r:.300} {words}")
