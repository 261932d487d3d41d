"""The commands that run now, in any program of this user, and what was protected when each of them began.

What a command makes under a protected name is set aside when it is over. Another command that begins meanwhile must not
take it for a part of the project: the name is free as soon as the first one is over, and what the second one puts there
would stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from steersman.tools.confine.folder_snapshot import PROTECTED_NAMES, FolderSnapshot, is_empty_folder
from steersman.tools.confine.protected_paths import OWN_NAMES, Git, is_beneath
from steersman.tools.confine.scratch import Scratch, list_live_folders
from steersman.types.ids import new_id

_FOLDER = "running"
_here: dict[str, dict[str, Any]] = {}  # the commands of this program, by the file that tells others of them


class _Baseline(NamedTuple):
    """The protected names that a command found in its workspace when it began."""

    root: str
    git: Git
    known: frozenset[str]

    def is_new(self, path: str) -> bool:
        """Whether what is at a path came later, so that it is set aside when that command is over."""
        if path in self.known or not is_beneath(self.root, path):
            return False
        *folders, name = os.path.relpath(path, self.root).lower().split(os.sep)
        # What is in a repository is not searched.
        return PROTECTED_NAMES.isdisjoint(folders) and (self.git == "read-only" or name in OWN_NAMES)


class BegunCommand:
    """A command that has begun: `before` are the protected names below the workspace's own, which stay when it is over.

    `passing` are names of the workspace itself at which there is only what another command has made.
    """

    def __init__(self, before: set[str], passing: set[str], file: str) -> None:
        self.before = before
        self.passing = passing
        # Also where the call is cancelled before it has this object.
        self._removal = weakref.finalize(self, _remove, file, os.getpid())

    def close(self) -> None:
        """Tell other commands that this one is over, and what it made is set aside."""
        self._removal()


def begin_command(
    scratch: Scratch, snapshot: FolderSnapshot, root: str, *, git: Git, allowed: Sequence[str]
) -> BegunCommand:
    """Find the protected names of a workspace, and tell those that a running command has made apart.

    `allowed` are names that this command may make, or cannot make because it holds them.
    """
    ours = scratch.make_folder(_FOLDER)
    found, top = _drop_held(snapshot.refresh()), _list_top(root)
    others = _list_baselines(ours, (root, *allowed))
    # What one made that ended meanwhile is no longer there.
    new = {path for path in (*found, *top) if any(one.is_new(path) for one in others) or not os.path.lexists(path)}
    known = [*((found | top) - new), *allowed]
    file = os.path.join(ours, new_id("command"))
    words = {"root": root, "git": git, "known": known, "complete": snapshot.is_complete}
    _write(file, words)
    _here[file] = words
    return BegunCommand(found - new, top & new, file)


def _list_top(root: str) -> set[str]:
    """List the protected names in a workspace itself."""
    try:
        names = [name for name in os.listdir(root) if name.lower() in PROTECTED_NAMES]
    except OSError:
        return set()  # unreadable for us and so for the command
    return _drop_held(os.path.join(root, name) for name in names)


def _drop_held(paths: Iterable[str]) -> set[str]:
    """Drop each empty `.git`: it is no repository, and a command that holds the name in its workspace removes it."""
    return {path for path in paths if os.path.basename(path) != ".git" or not is_empty_folder(path)}


def _list_baselines(ours: str, writable: Iterable[str]) -> list[_Baseline]:
    """List the running commands. One of another tool that could not search all of its workspace says nothing."""
    here = [(os.path.dirname(file), words) for file, words in list(_here.items())]
    found = [*here, *_list_elsewhere()]
    places = [*writable, *(place for _, words in found for place in (words["root"], *words["known"]))]
    if any(is_beneath(place, ours) for place in places):
        found = here  # a command can write to the temporary folder, and may say there what it likes
    return [
        _Baseline(words["root"], words["git"], frozenset(words["known"]))
        for folder, words in found
        if words["complete"] or folder == ours
    ]


def _list_elsewhere() -> Iterator[tuple[str, dict[str, Any]]]:
    for folder in list_live_folders(_FOLDER):
        for name in os.listdir(folder):
            if not name.startswith(".") and (words := _read(os.path.join(folder, name))) is not None:
                yield folder, words


def _read(file: str) -> dict[str, Any] | None:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as source:
            return cast(dict[str, Any], json.load(source))
    except (OSError, ValueError):
        return None  # it has just ended


def _write(file: str, words: dict[str, Any]) -> None:
    """Write a file that is complete as soon as it has its name."""
    folder, name = os.path.split(file)
    new = os.path.join(folder, f".{name}")
    with open(new, "w", encoding="utf-8", errors="surrogateescape") as target:
        json.dump(words, target, ensure_ascii=False)
    os.rename(new, file)


def _remove(file: str, process: int) -> None:
    _here.pop(file, None)
    # A forked child must not end the command of its parent.
    if os.getpid() == process:
        with contextlib.suppress(OSError):  # deleted from outside
            os.unlink(file)
