"""Names that may be read and not written: whoever writes there decides what other programs will run.

A name counts however it is disguised: by case, by characters nobody sees, or by what some file systems make of it.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable

from steersman.tools.confine.beneath import Place, Root, locate, look, split
from steersman.tools.confine.refusals import ProtectedPath, WorkspaceError

PROTECTED = (".git", ".steersman", ".mcp.json")
"""Hooks and settings of git, and what tells this library which servers to start and what to allow."""

_LONGEST_POINTER = 4_096
# What NTFS also calls it.
_SHORT_GIT = re.compile(r"git~\d+", re.IGNORECASE)


class Protection:
    """Which places are protected: a bare name wherever it stands, a path with a slash from the root."""

    def __init__(self, protected: Iterable[str]) -> None:
        if isinstance(protected, str):
            raise TypeError(f"'protected' is a list of names, got {protected!r}.")
        paths = [tuple(split(name)) for name in protected]
        self._names = {undisguised(path[0]): path[0] for path in paths if len(path) == 1}
        self._paths = [tuple(map(undisguised, path)) for path in paths if len(path) > 1]

    def check(self, root: Root, place: Place, shown: str) -> None:
        """Raise `ProtectedPath` if the place is one of them, or leads through one."""
        real = tuple(map(undisguised, place.real))
        covered = [name for name in (*real, *map(undisguised, place.links)) if name in self._names]
        covered += ["/".join(path) for path in self._paths if real[: len(path)] == path]
        covered += [name for name, home in self._elsewhere(root) if real[: len(home)] == home]
        if covered:
            raise ProtectedPath(f"{shown!r} is protected by {covered[0]!r}: it can be read and not written.")

    def _elsewhere(self, root: Root) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Where the protected names of the root really are, when they are links or point somewhere else."""
        for name in self._names.values():
            found = look(root.folder, name)
            if found is not None and (stat.S_ISLNK(found.st_mode) or stat.S_ISREG(found.st_mode)):
                home = _home(root, name, found)
                if home:
                    yield name, home


def undisguised(name: str) -> str:
    """A name as the most forgiving file system reads it."""
    if _SHORT_GIT.fullmatch(name):
        return ".git"
    seen = "".join(letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    seen = seen.casefold().partition(":")[0].rstrip(". ")
    return seen or name


def _home(root: Root, name: str, found: os.stat_result) -> tuple[str, ...]:
    try:
        target = name if stat.S_ISLNK(found.st_mode) else _pointer(root, name)
        if target is None:
            return ()
        place = locate(root, split(target), name)
    except (OSError, ValueError, WorkspaceError):
        # Outside, nowhere or not ours to read: not for these tools to write anyway.
        return ()
    os.close(place.folder)
    return tuple(map(undisguised, place.real))


def _pointer(root: Root, name: str) -> str | None:
    """Where a file says that the folder is which it stands for, as git's do."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root.folder)
    try:
        words = os.read(descriptor, _LONGEST_POINTER)
    finally:
        os.close(descriptor)
    if not words.startswith(b"gitdir:"):
        return None
    target = os.fsdecode(words[7:].strip())
    if not target.startswith("/"):
        return target
    names, depth = split(target), len(root.parts)
    return "/".join(names[depth:]) if tuple(names[:depth]) == root.parts else None
