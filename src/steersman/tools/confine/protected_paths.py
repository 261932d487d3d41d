"""Finds the paths in a workspace that a sandboxed command must not change, because other programs run what is there.

These are git repositories, `.steersman`, `.mcp.json` and the Python we run from. A file or folder becomes a read-only
bind mount, which also fixes the names of the folders above it. A name that is missing or a symlink cannot be a mount
point: it is guarded instead, which means it is checked and restored after the command.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from steersman.tools.confine.enforcement import Guard, record_guard
from steersman.types.errors import ToolError

MAX_FOLDERS = 20_000
MAX_REPOSITORIES = 200

Git: TypeAlias = Literal["read-only", "read-write"]
GIT: tuple[Git, ...] = get_args(Git)

_MAX_POINTER_BYTES = 4_096
_NAMES = (".steersman", ".mcp.json")
# What git runs, or reads to find out what to run. Protected even where the repository can be written.
_SETTINGS = ("commondir", "config", "config.worktree", "hooks", "info")


def find_repositories(root: str, *, folders: int = MAX_FOLDERS, most: int = MAX_REPOSITORIES) -> tuple[str, ...]:
    """Find each `.git` below the root's own, nearest first, in at most `folders` folders.

    Raises `ToolError` where there are more than `most`.
    """
    found: list[str] = []
    waiting = deque([root])
    while waiting and folders:
        folders -= 1
        inside, git = _scan_folder(waiting.popleft())
        waiting.extend(inside)
        found += git
        if len(found) > most:
            raise ToolError(
                f"There are more than {most} repositories in the workspace {root!r}, too many to protect. Only the "
                "user can change that: with a smaller workspace, or with bash_tool(git='read-write')."
            )
    return tuple(path for path in found if os.path.dirname(path) != root)


def _scan_folder(folder: str) -> tuple[list[str], list[str]]:
    """List the folders in a folder, and its `.git`."""
    inside: list[str] = []
    git: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == ".git":
                    git.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    inside.append(entry.path)
    except OSError:
        pass  # deleted, or unreadable for us and so for the command
    return inside, git


def resolve_git_folders(path: str) -> list[str]:
    """Resolve a `.git`: its real path, the folder that a `gitdir:` file names, and the common folder of worktrees."""
    found = [os.path.realpath(path)]
    if target := _read_pointer(found[0], "gitdir:", os.path.dirname(path)):
        found.append(target)
    if common := _read_pointer(os.path.join(found[-1], "commondir"), "", found[-1]):
        found.append(common)
    return found


def _read_pointer(path: str, word: str, base: str) -> str | None:
    """Read the path that a small file names after a word; `None` for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        text = os.fsdecode(os.read(descriptor, _MAX_POINTER_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    target = text.removeprefix(word).strip()
    if not text.startswith(word) or not target or "\0" in target:
        return None
    return os.path.realpath(os.path.join(base, target))


@dataclass(frozen=True, slots=True)
class ProtectedPaths:
    """`pinned` are paths to bind mount, outer ones first, each with whether it stays writable; `guarded` the rest."""

    pinned: tuple[tuple[str, bool], ...] = ()
    guarded: tuple[Guard, ...] = ()


@dataclass(slots=True)
class _ProtectionBuilder:
    """Collects the protected paths beneath one root."""

    root: str
    read_only: set[str] = field(default_factory=set[str])
    writable: set[str] = field(default_factory=set[str])
    guards: dict[str, Guard] = field(default_factory=dict[str, Guard])

    def protect(self, path: str, *, free: bool = False) -> None:
        """Protect a name and its target; with `free`, the command may create the name if nothing exists there."""
        found = record_guard(path)
        if found is not None and not (free and found[1] is None):
            self.guards[path] = found
        self.make_read_only(os.path.realpath(path))

    def make_read_only(self, real: str) -> None:
        """Make a path read-only, if it exists beneath the root."""
        if is_beneath(self.root, real) and (os.path.isdir(real) or os.path.isfile(real)):
            self.read_only.add(real)

    def protect_repository(self, path: str, *, free: bool = False) -> None:
        """Protect all of a `.git`, wherever its folders are."""
        self.protect(path, free=free)
        if os.path.lexists(path):
            for place in resolve_git_folders(path):
                self.make_read_only(place)
                self.guard_missing(place)

    def protect_git_settings(self, path: str) -> None:
        """Protect the parts of a `.git` that name programs to run, and leave the rest writable."""
        if os.path.islink(path) or os.path.isfile(path):
            self.protect(path)
        for place in resolve_git_folders(path) if os.path.lexists(path) else ():
            self.guard_missing(place)
            if os.path.isdir(place) and is_beneath(self.root, place):
                self.read_only.discard(place)
                self.writable.add(place)
                for name in _SETTINGS:
                    self.protect(os.path.join(place, name))

    def guard_missing(self, place: str) -> None:
        """Guard the first missing name on the way to a path that is pointed to and does not exist."""
        if not is_beneath(self.root, place) or os.path.lexists(place):
            return
        while not os.path.lexists(parent := os.path.dirname(place)):
            place = parent
        if (found := record_guard(place)) is not None:
            self.guards[place] = found

    def build(self, allowed: set[str]) -> ProtectedPaths:
        guards = {path: each for path, each in self.guards.items() if path not in allowed}
        fixed = {path for path in self.read_only if allowed.isdisjoint((path, *_list_parents(path, self.root)))}
        fixed = {path for path in fixed if fixed.isdisjoint(_list_parents(path, self.root))}
        opened = self.writable - allowed
        pins = dict.fromkeys(opened, True)
        # A mount point cannot be renamed: mounting the folders above fixes the path of what is in them.
        pins |= {folder: True for path in (*fixed, *opened, *guards) for folder in _list_parents(path, self.root)}
        pins |= dict.fromkeys(fixed, False)
        pins = {
            path: writable
            for path, writable in pins.items()
            if writable is False or fixed.isdisjoint(_list_parents(path, self.root))
        }
        return ProtectedPaths(tuple(sorted(pins.items(), key=lambda pin: pin[0].split(os.sep))), tuple(guards.values()))


def protect_paths(
    root: str, *, repositories: Iterable[str], own: Iterable[str], allowed: Iterable[str], git: Git
) -> ProtectedPaths:
    """Find what a command in the workspace `root` must not change, except paths that are listed in `allowed`.

    `own` are the folders of the Python we run from, and `repositories` are those below the root's own.
    """
    keeping = _ProtectionBuilder(root)
    for name in _NAMES:
        keeping.protect(os.path.join(root, name))
    for path in own:
        if os.path.isdir(path):
            keeping.make_read_only(os.path.realpath(path))
    if git == "read-only":
        keeping.protect_repository(os.path.join(root, ".git"))
        for path in repositories:
            keeping.protect_repository(path, free=True)
    else:
        keeping.protect_git_settings(os.path.join(root, ".git"))
    return keeping.build(set(allowed))


def is_beneath(root: str, path: str) -> bool:
    """Whether a real path is below a root and not the root itself."""
    return path.startswith(root.rstrip(os.sep) + os.sep) and path != root


def _list_parents(path: str, root: str) -> list[str]:
    """The folders between a root and a path below it."""
    found: list[str] = []
    while is_beneath(root, path := os.path.dirname(path)):
        found.append(path)
    return found
