"""Which paths of a workspace can be read but not written: what decides which programs run outside the sandbox.

These are the protected names, git repositories of any name, the Python that we run from, the folders of PATH, and our
session stores.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import unicodedata
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from pathlib import Path

from steersman.tools.confine.own_files import list_own_files
from steersman.tools.confine.path_errors import ProtectedPath, WorkspaceError
from steersman.tools.confine.path_resolution import (
    ResolvedPath,
    Root,
    open_subfolder,
    resolve_path,
    split_path,
    stat_entry,
)
from steersman.tools.confine.python_folders import list_python_paths

_MAX_POINTER_BYTES = 4_096
# The short name of .git on NTFS.
_SHORT_GIT = re.compile(r"git~\d+", re.IGNORECASE)
# By these git knows a repository without the name `.git`: a file HEAD, and either both folders or a file commondir.
_HEAD, _OBJECTS, _REFS, _COMMON = _PARTS = ("head", "objects", "refs", "commondir")
repository_writes = threading.Lock()
"""Held while a file is written that could make a folder a repository, together with what is written beside it.

So the last of several writes sees the others, and so does the search for repositories after a command.
"""


class Protection:
    """The protected paths: a bare name is protected everywhere, a path with a slash from the root on.

    Protected as well are git repositories of any name, and below the root the Python that we run from and the folders
    of PATH: what is written there would run in place of a program that a rule allows.
    """

    def __init__(self, protected: Iterable[str], root: Path) -> None:
        if isinstance(protected, str):
            raise TypeError(f"'protected' is a list of names, got {protected!r}.")
        paths = [tuple(split_path(name)) for name in protected]
        self._names = {normalize_name(path[0]): path[0] for path in paths if len(path) == 1}
        paths = [*(path for path in paths if len(path) > 1), *_find_programs(root)]
        self._paths = [tuple(map(normalize_name, path)) for path in paths]

    @contextmanager
    def admit(self, root: Root, place: ResolvedPath, shown: str) -> Generator[None]:
        """Admit a write, or raise `ProtectedPath`: for a protected path, and for a part of a repository."""
        self._check_names(root, place, shown)
        with repository_writes if any(name.casefold() in _PARTS for name in place.real_names) else nullcontext():
            if ".git" in self._names:
                _check_repositories(root, place, shown)
            yield

    def _check_names(self, root: Root, place: ResolvedPath, shown: str) -> None:
        real = tuple(map(normalize_name, place.real_names))
        covered = [name for name in (*real, *map(normalize_name, place.links)) if name in self._names]
        covered += ["/".join(path) for path in self._paths if real[: len(path)] == path]
        covered += [name for name, home in self._find_real_locations(root) if real[: len(home)] == home]
        absolute = os.sep + os.sep.join((*root.parts, *place.real_names))
        covered += [path for path in list_own_files() if absolute == path or absolute.startswith(path + os.sep)]
        if covered:
            raise ProtectedPath(f"{shown!r} is protected by {covered[0]!r}: it can be read but not written.")

    def _find_real_locations(self, root: Root) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Resolve the protected names in the root that are symlinks, or files that point elsewhere as `.git` can."""
        for name in self._names.values():
            found = stat_entry(root.folder, name)
            if found is not None and (stat.S_ISLNK(found.st_mode) or stat.S_ISREG(found.st_mode)):
                home = _resolve_home(root, name, found)
                if home:
                    yield name, home


def normalize_name(name: str) -> str:
    """Normalize a name as the most lenient file system does: case, Unicode form, invisible characters, NTFS streams."""
    if _SHORT_GIT.fullmatch(name):
        return ".git"
    seen = "".join(letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    seen = seen.casefold().partition(":")[0].rstrip(". ")
    return seen or name


def _resolve_home(root: Root, name: str, found: os.stat_result) -> tuple[str, ...]:
    try:
        target = name if stat.S_ISLNK(found.st_mode) else _read_pointer(root, name)
        if target is None:
            return ()
        place = resolve_path(root, split_path(target), name)
    except (OSError, ValueError, WorkspaceError):
        # Outside, missing or unreadable: these tools cannot write there in any case.
        return ()
    os.close(place.folder)
    return tuple(map(normalize_name, place.real_names))


def _read_pointer(root: Root, name: str) -> str | None:
    """Read the folder that a `gitdir:` file names; `None` for another file or a folder outside the root."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root.folder)
    try:
        words = os.read(descriptor, _MAX_POINTER_BYTES)
    finally:
        os.close(descriptor)
    if not words.startswith(b"gitdir:"):
        return None
    target = os.fsdecode(words[7:].strip())
    if not target.startswith("/"):
        return target
    names, depth = split_path(target), len(root.parts)
    return "/".join(names[depth:]) if tuple(names[:depth]) == root.parts else None


def _find_programs(root: Path) -> list[tuple[str, ...]]:
    """Find the folders of the Python that we run from and those of PATH, as names below the root."""
    folders = filter(None, os.environ.get("PATH", "").split(os.pathsep))
    real = {Path(path) for path in (*list_python_paths(str(root)), *map(os.path.realpath, folders))}
    return [path.relative_to(root).parts for path in real if path != root and path.is_relative_to(root)]


def _check_repositories(root: Root, place: ResolvedPath, shown: str) -> None:
    """Raise `ProtectedPath` where a folder on the way is a git repository, or would be one with this file."""
    folder = os.dup(root.folder)
    try:
        for depth, name in enumerate(place.real_names):
            if makes_repository(folder, name, is_file=depth == len(place.real_names) - 1):
                where = "/".join(place.real_names[:depth]) or "."
                raise ProtectedPath(
                    f"{shown!r} would be part of a git repository, the folder {where!r} with its HEAD: repositories "
                    "can be read but not written."
                )
            if depth == len(place.names):
                return  # what comes next does not exist yet
            inner = open_subfolder(folder, name)
            os.close(folder)
            folder = inner
    finally:
        os.close(folder)


def makes_repository(folder: int, name: str, *, is_file: bool) -> bool:
    """Whether a folder is a repository for git once it has an entry of this name as well."""
    new = name.casefold()
    if new == _HEAD:
        has_head = is_file
    else:
        head = stat_entry(folder, "HEAD")
        has_head = head is not None and not stat.S_ISDIR(head.st_mode)

    def has(part: str) -> bool:
        return new == part or stat_entry(folder, part) is not None

    return has_head and (has(_COMMON) or (has(_OBJECTS) and has(_REFS)))
