"""Finds files of the workspace by parts of their paths, for completion after `@`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_FILES, MAX_LENGTH = 20_000, 2_000_000
"""The most files that are looked at, and the most characters of their paths together."""

_FRESH = 5.0
_SECONDS = 0.3
_SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "target", "build", "dist"))


class FileIndex:
    """The files of a workspace, listed again after a few seconds; hidden ones and those of packages are left out."""

    def __init__(self, workspace: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._workspace = workspace
        self._clock = clock
        self._paths: list[str] = []
        self._listed = float("-inf")

    def find(self, typed: str, most: int) -> list[str]:
        """Returns the paths that have the typed letters in this order, the best matches first."""
        now = self._clock()
        if now - self._listed > _FRESH:
            self._paths, self._listed = list(_walk(self._workspace)), now
        ranked = [(rank, len(path), path) for path in self._paths if (rank := rank_path(path, typed)) is not None]
        return [path for _, _, path in sorted(ranked)[:most]]


def rank_path(path: str, typed: str) -> int | None:
    """Ranks a match, the best as 0: a name that begins so, one that has it, a path that has it, letters in order."""
    wanted, whole = typed.lower(), path.lower()
    name = whole.rpartition("/")[2]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if wanted in whole:
        return 2
    letters = iter(whole)
    return 3 if all(letter in letters for letter in wanted) else None


def _walk(workspace: Path) -> Iterator[str]:
    """Lists files by breadth, so that a large tree shows its upper part; stops after a moment."""
    until, count, length = time.monotonic() + _SECONDS, 0, 0
    folders = [""]
    while folders:
        below: list[str] = []
        for folder in folders:
            try:
                with os.scandir(workspace / folder) as entries:
                    for entry in entries:
                        if count > MAX_FILES or length > MAX_LENGTH or time.monotonic() > until:
                            return
                        if entry.name.startswith(".") or entry.is_symlink():
                            continue
                        path = f"{folder}{entry.name}"
                        if not entry.is_dir():
                            count, length = count + 1, length + len(path)
                            yield path
                        elif entry.name not in _SKIPPED:
                            below.append(f"{path}/")
            except OSError:
                continue
        folders = sorted(below)
