"""The repositories of git beneath a folder: where each `.git` stands, and where what it stands for really is."""

from __future__ import annotations

import os
import stat
from collections import deque

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
