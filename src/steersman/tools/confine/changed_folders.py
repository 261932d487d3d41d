"""Counts what the tools of this program may have changed in each workspace.

A program that runs from a workspace outside the sandbox, as an MCP server may, is not started again unseen after that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from steersman.safe_start import doubt_folders

_changes: Counter[str] = Counter()
_of_commands: set[str] = set()
_lock = threading.Lock()


def note_change(*folders: str) -> None:
    """Note that files of these folders, which are real paths, may have been changed."""
    with _lock:
        _changes.update(folders)


def note_command(*folders: str) -> None:
    """Note that a sandboxed command can write to these folders, which are real paths."""
    note_change(*folders)
    with _lock:
        _of_commands.update(folders)


def list_command_folders() -> list[str]:
    """List the folders of sandboxed commands: what is there must not run outside, nor a link in them be followed."""
    with _lock:
        return list(_of_commands)


def is_of_command(path: str) -> bool:
    """Whether a path leads through a folder of sandboxed commands, or through a link in one of them."""
    folders = list_command_folders()
    if not folders:
        return False
    from steersman.tools.confine.links import leads_through  # not before a command has run

    return leads_through(path, folders)


doubt_folders(is_of_command)


def count_changes(paths: Iterable[str]) -> int:
    """Count the changes in the noted folders that one of these paths is in, or leads through by a link."""
    from steersman.tools.confine.links import list_steps  # only for MCP servers

    with _lock:
        known = dict(_changes)
    try:
        steps = {step for path in paths for step in list_steps(path)}
    except OSError:
        steps = set(known)  # a path leads in a circle, and may lead anywhere next time
    return sum(count for folder, count in known.items() if folder in steps)
