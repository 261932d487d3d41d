"""Counts what the tools of this program may have changed in each workspace.

A program that runs from a workspace outside the sandbox, as an MCP server may, is not started again unseen after that.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable

_changes: Counter[str] = Counter()
_lock = threading.Lock()


def note_change(folder: str) -> None:
    """Note that a file of a folder, which is a real path, may have been changed."""
    with _lock:
        _changes[folder] += 1


def count_changes(paths: Iterable[str]) -> int:
    """Count the changes in the noted folders that hold one of these paths, or are one of them."""
    real = [os.path.realpath(path) + os.sep for path in paths]
    with _lock:
        known = dict(_changes)
    return sum(count for folder, count in known.items() if any(path.startswith(folder + os.sep) for path in real))
