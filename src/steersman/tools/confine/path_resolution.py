"""Resolves a path beneath a root folder through file descriptors, so that no TOCTOU race can lead outside.

A system call here resolves one name, or it is `openat2`, which cannot leave the folder. A symlink is read, and its
target is resolved by the same rule. `..` goes back along the names resolved so far. Only regular files are opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from steersman.tools.confine.denied_paths import has_denied_paths
from steersman.tools.confine.path_errors import MissingPath, WorkspaceError, WrongKind, make_outside_error
from steersman.tools.confine.syscalls import FOLDER, is_pseudo_file, openat2
from steersman.tools.text import find_similar

_MAX_SYMLINKS = 40
_MAX_NAMES = 5_000
_CHANGED = frozenset((errno.ENOTDIR, errno.ELOOP, errno.ENOENT))
_ALWAYS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))


class PathChanged(Exception):
    """Another process changed the path between two steps (TOCTOU); the caller starts again from the root."""


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """Where a path leads. `folder` is a file descriptor of the deepest folder that exists; the caller closes it.

    `names` lead from the root to that folder, without symlinks. `rest` is empty for the folder itself, has one name for
    an entry of it, and several where folders are missing. `found` is the stat of the target, `None` where nothing
    exists, and never a symlink. `links` are the names of the symlinks that were followed.
    """

    folder: int
    names: tuple[str, ...]
    rest: tuple[str, ...]
    found: os.stat_result | None
    links: tuple[str, ...] = ()

    @property
    def real_names(self) -> tuple[str, ...]:
        """The names from the root to the target, symlinks resolved."""
        return self.names + self.rest


@dataclass(frozen=True, slots=True)
class Root:
    """The folder that paths must stay beneath: its path and its file descriptor. `kernel` enables `openat2`."""

    parts: tuple[str, ...]
    folder: int
    kernel: bool


def split_path(path: str) -> list[str]:
    """Split a path into names; `.` and repeated slashes are dropped."""
    return [name for name in path.split("/") if name not in ("", ".")]


def stat_entry(folder: int, name: str) -> os.stat_result | None:
    """Stat an entry of an open folder without following a symlink; `None` where nothing exists."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_subfolder(folder: int, name: str) -> int:
    """Open a folder in an open folder as a file descriptor; raise `PathChanged` when it is no longer a folder."""
    try:
        return os.open(name, FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in _CHANGED:
            raise PathChanged from error
        raise


def resolve_path(root: Root, names: Sequence[str], shown: str) -> ResolvedPath:
    """Resolve the names from the root; raise `PathChanged` when something changes meanwhile."""
    if root.kernel and names and ".." not in names:
        place = _resolve_with_openat2(root, names)
        if place is not None:
            return place
    walk = _Walk(root, names, shown)
    try:
        return walk.run()
    except BaseException:
        os.close(walk.folder)
        raise


def _resolve_with_openat2(root: Root, names: Sequence[str]) -> ResolvedPath | None:
    """Open the parent folder with one `openat2` call, for the usual path without symlinks.

    `None` means that the step-by-step walk has to decide.
    """
    try:
        folder = openat2(root.folder, "/".join(names[:-1]) or ".")
    except (OSError, ValueError):
        return None
    try:
        found = stat_entry(folder, names[-1])
        if found is not None and stat.S_ISDIR(found.st_mode):
            inner = open_subfolder(folder, names[-1])
            os.close(folder)
            return ResolvedPath(inner, tuple(names), (), found)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return ResolvedPath(folder, tuple(names[:-1]), (names[-1],), found)
    except (OSError, ValueError, PathChanged):
        # The walk meets the same problem and raises the error that explains it.
        pass
    os.close(folder)
    return None


class _Walk:
    """Resolves names one by one from the root. `folder` is the current folder's file descriptor, always open."""

    def __init__(self, root: Root, names: Sequence[str], shown: str) -> None:
        self.root = root
        self.shown = shown
        self.todo = deque(names)
        self.names: list[str] = []
        self.links: list[str] = []
        self.folder = os.dup(root.folder)

    def run(self) -> ResolvedPath:
        """Resolve all names."""
        while self.todo:
            name = self.todo.popleft()
            if name == "..":
                self.go_up()
                continue
            found = stat_entry(self.folder, name)
            if found is None:
                return self.stop_at_missing(name)
            if stat.S_ISLNK(found.st_mode):
                self.follow(name)
            elif stat.S_ISDIR(found.st_mode):
                self.enter(open_subfolder(self.folder, name))
                self.names.append(name)
            elif self.todo:
                raise WrongKind(f"{self.shown!r} goes through {name!r}, which is not a folder.")
            else:
                return self.build_result((name,), found)
        return self.build_result((), os.fstat(self.folder))

    def build_result(self, rest: tuple[str, ...], found: os.stat_result | None) -> ResolvedPath:
        """Build the result for the current folder."""
        return ResolvedPath(self.folder, tuple(self.names), rest, found, tuple(self.links))

    def stop_at_missing(self, name: str) -> ResolvedPath:
        """Stop at a name that does not exist: the remaining names can only be created."""
        if ".." in self.todo:
            raise MissingPath(f"{self.shown!r} goes through {name!r}, which does not exist.")
        return self.build_result((name, *self.todo), None)

    def enter(self, folder: int) -> None:
        """Make another folder the current one."""
        os.close(self.folder)
        self.folder = folder

    def restart(self) -> None:
        """Go back to the root."""
        self.names.clear()
        self.enter(os.dup(self.root.folder))

    def go_up(self) -> None:
        """Go back to the folder this one was entered from. The system's own `..` may lead elsewhere after a move."""
        if not self.names:
            raise make_outside_error(self.shown, "/" + "/".join(self.root.parts))
        names = self.names[:-1]
        self.restart()
        for name in names:
            self.enter(open_subfolder(self.folder, name))
        self.names = names

    def follow(self, name: str) -> None:
        """Continue with the target of a symlink; an absolute target must begin with the root."""
        self.links.append(name)
        if len(self.links) > _MAX_SYMLINKS:
            raise WorkspaceError(f"{self.shown!r} goes through symbolic links that lead in a circle.")
        try:
            target = os.readlink(name, dir_fd=self.folder)
        except OSError as error:
            raise PathChanged from error
        parts = split_path(target)
        if target.startswith("/"):
            length = len(self.root.parts)
            if tuple(parts[:length]) != self.root.parts:
                raise make_outside_error(self.shown, "/" + "/".join(self.root.parts))
            parts = parts[length:]
            self.restart()
        self.todo.extendleft(reversed(parts))


def raise_missing(place: ResolvedPath, path: str) -> NoReturn:
    """Raise `MissingPath`, with similar names that do exist."""
    name = place.rest[0]
    where = "/".join(place.names)
    text = f"{path!r} does not exist."
    if len(place.rest) > 1:
        text += f" There is no {name!r} in {where or '.'!r}."
    # Where a rule denies paths, their names are not told either.
    names = [] if has_denied_paths() else _list_names(place.folder)
    by_case = {known.casefold(): known for known in names}
    near = [by_case[known] for known in find_similar(name.casefold(), by_case, 3)]
    if near:
        text += f" Similar names in {where or '.'!r}: {', '.join(map(repr, near))}."
    raise MissingPath(text)


def _list_names(folder: int) -> list[str]:
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            return [entry.name for entry in islice(entries, _MAX_NAMES)]
    except OSError:
        return []
    finally:
        os.close(descriptor)


def open_file(place: ResolvedPath, path: str, flags: int, mode: int, *, writing: bool) -> int:
    """Open a regular file as a file descriptor, without blocking; named pipes, sockets and devices are refused."""
    found, name = place.found, place.rest[-1] if place.rest else ""
    if not name:
        raise WrongKind(f"{path!r} is a folder, not a file.")
    if path.endswith(("/", "/.")):
        raise WrongKind(f"{path!r} names a folder. Give the path of a file.")
    if found is None and (len(place.rest) > 1 or not flags & os.O_CREAT):
        raise_missing(place, path)
    if found is not None:
        # Checked before it is opened, because opening some devices has an effect.
        _check_kind(found, path, writing=writing)
    try:
        # Truncated below, once the open file is known to be one that may be written.
        descriptor = os.open(name, flags & ~os.O_TRUNC | _ALWAYS, mode, dir_fd=place.folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO) or (error.errno == errno.ENOENT and found is not None):
            raise PathChanged from error
        raise
    try:
        _check_kind(os.fstat(descriptor), path, writing=writing)
        if is_pseudo_file(descriptor):
            raise WrongKind(f"{path!r} is made by the kernel and is not a file of the workspace.")
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
