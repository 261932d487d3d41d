"""What in a workspace is not for a command to change: whoever writes there decides what other programs will run.

A file or a folder is made read-only, and the folders above it keep their names. A name that is free or a link is
guarded: it is looked at again when the command is over.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from steersman.tools.confine.guards import Guard, guard
from steersman.types.errors import ToolError

MOST_FOLDERS = 20_000
MOST_REPOSITORIES = 200

_LONGEST_POINTER = 4_096


def repositories(root: str, *, folders: int = MOST_FOLDERS, most: int = MOST_REPOSITORIES) -> tuple[str, ...]:
    """Each `.git` below the root's own, nearest first, in so many folders; `ToolError` where there are too many."""
    found: list[str] = []
    waiting = deque([root])
    while waiting and folders:
        folders -= 1
        inside, git = _look(waiting.popleft())
        waiting.extend(inside)
        found += git
        if len(found) > most:
            raise ToolError(
                f"There are more than {most} repositories in the workspace {root!r}, too many to protect. Only the "
                "user can change that: with a smaller workspace, or with bash_tool(git='read-write')."
            )
    return tuple(path for path in found if os.path.dirname(path) != root)


def _look(folder: str) -> tuple[list[str], list[str]]:
    """The folders in a folder, and its `.git`."""
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
        pass  # gone, or not ours to read, and then not a command's either
    return inside, git


def leads_to(path: str) -> list[str]:
    """What a `.git` stands for: where it is, the folder that its file names, the one that shares its settings."""
    found = [os.path.realpath(path)]
    if target := _pointer(found[0], "gitdir:", os.path.dirname(path)):
        found.append(target)
    if common := _pointer(os.path.join(found[-1], "commondir"), "", found[-1]):
        found.append(common)
    return found


def _pointer(path: str, word: str, base: str) -> str | None:
    """The place that a small file names after a word."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        text = os.fsdecode(os.read(descriptor, _LONGEST_POINTER))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    target = text.removeprefix(word).strip()
    if not text.startswith(word) or not target or "\0" in target:
        return None
    return os.path.realpath(os.path.join(base, target))


Git: TypeAlias = Literal["read-only", "read-write"]
GIT: tuple[Git, ...] = get_args(Git)

_NAMES = (".steersman", ".mcp.json")
# What git runs, or reads to find out what to run, even where its repository can be written.
_SETTINGS = ("commondir", "config", "config.worktree", "hooks", "info")


@dataclass(frozen=True, slots=True)
class Kept:
    """`pinned` are paths that keep their names, outer ones first, each with whether it can be written."""

    pinned: tuple[tuple[str, bool], ...] = ()
    guarded: tuple[Guard, ...] = ()


@dataclass(slots=True)
class _Keeping:
    """What was found so far, beneath one root."""

    root: str
    fixed: set[str] = field(default_factory=set[str])
    open: set[str] = field(default_factory=set[str])
    guards: dict[str, Guard] = field(default_factory=dict[str, Guard])

    def keep(self, path: str, *, free: bool = False) -> None:
        """Keep a name as it is, and what it leads to; a `free` one may be used if nothing is there."""
        found = guard(path)
        if found is not None and not (free and found[1] is None):
            self.guards[path] = found
        self.fix(os.path.realpath(path))

    def fix(self, real: str) -> None:
        """Make a place read-only, if it is in the root and there."""
        if beneath(self.root, real) and (os.path.isdir(real) or os.path.isfile(real)):
            self.fixed.add(real)

    def keep_repository(self, path: str, *, free: bool = False) -> None:
        """Keep a `.git` as a whole, wherever it is."""
        self.keep(path, free=free)
        if os.path.lexists(path):
            for place in leads_to(path):
                self.fix(place)
                self.hold_free(place)

    def keep_settings(self, path: str) -> None:
        """Keep what a `.git` says of programs to run, and leave the rest open."""
        if os.path.islink(path) or os.path.isfile(path):
            self.keep(path)
        for place in leads_to(path) if os.path.lexists(path) else ():
            self.hold_free(place)
            if os.path.isdir(place) and beneath(self.root, place):
                self.fixed.discard(place)
                self.open.add(place)
                for name in _SETTINGS:
                    self.keep(os.path.join(place, name))

    def hold_free(self, place: str) -> None:
        """Guard a place that something points to and that is not there: the first name on the way that is missing."""
        if not beneath(self.root, place) or os.path.lexists(place):
            return
        while not os.path.lexists(parent := os.path.dirname(place)):
            place = parent
        if (found := guard(place)) is not None:
            self.guards[place] = found

    def kept(self, allowed: set[str]) -> Kept:
        guards = {path: each for path, each in self.guards.items() if path not in allowed}
        fixed = {path for path in self.fixed if allowed.isdisjoint((path, *_above(path, self.root)))}
        fixed = {path for path in fixed if fixed.isdisjoint(_above(path, self.root))}
        opened = self.open - allowed
        pins = dict.fromkeys(opened, True)
        # A mount point cannot be renamed, so a folder above keeps its name, and what lies in it its path.
        pins |= {folder: True for path in (*fixed, *opened, *guards) for folder in _above(path, self.root)}
        pins |= dict.fromkeys(fixed, False)
        pins = {
            path: writable
            for path, writable in pins.items()
            if writable is False or fixed.isdisjoint(_above(path, self.root))
        }
        return Kept(tuple(sorted(pins.items(), key=lambda pin: pin[0].split(os.sep))), tuple(guards.values()))


def keep(root: str, *, repositories: Iterable[str], own: Iterable[str], allowed: Iterable[str], git: Git) -> Kept:
    """What a command in the workspace `root` may not change, apart from what was `allowed` by its very path.

    `own` is where we run from, and `repositories` are those below the root's own.
    """
    keeping = _Keeping(root)
    for name in _NAMES:
        keeping.keep(os.path.join(root, name))
    for path in own:
        if os.path.isdir(path):
            keeping.fix(os.path.realpath(path))
    if git == "read-only":
        keeping.keep_repository(os.path.join(root, ".git"))
        for path in repositories:
            keeping.keep_repository(path, free=True)
    else:
        keeping.keep_settings(os.path.join(root, ".git"))
    return keeping.kept(set(allowed))


def beneath(root: str, path: str) -> bool:
    """Whether a real path is below a root and not the root itself."""
    return path.startswith(root.rstrip(os.sep) + os.sep) and path != root


def _above(path: str, root: str) -> list[str]:
    """The folders between a root and a path below it."""
    found: list[str] = []
    while beneath(root, path := os.path.dirname(path)):
        found.append(path)
    return found
