"""Walks the files beneath a folder in a fixed order, by file descriptor and without following symlinks.

A folder's own files come before those of its subfolders, sorted by name. `.git` and pseudo file systems such as /proc
are skipped. A deadline and a limit of entries end the walk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from steersman.tools.builtin.gitignore import NO_RULES, IgnoreRules, load_outer_rules, read_rules
from steersman.tools.confine.denied_paths import make_name_filter
from steersman.tools.confine.syscalls import is_pseudo_file
from steersman.tools.confine.workspace import Workspace, WorkspaceError
from steersman.tools.output import ToolContext
from steersman.types.errors import ToolError

MAX_ENTRIES = 300_000
MAX_IN_FOLDER = 100_000
DEFAULT_SECONDS = 30.0


class DeadlinePassed(Exception):
    """The deadline has passed; `file` is the index of the file that was being searched, where it is known."""

    def __init__(self, file: int | None = None) -> None:
        super().__init__(file)
        self.file = file


class Deadline:
    """The deadline of a tool call, to be checked often."""

    def __init__(self, ctx: ToolContext, seconds: float = DEFAULT_SECONDS) -> None:
        self.ctx = ctx
        self.seconds = seconds
        self.until = time.monotonic() + seconds

    def check(self) -> None:
        """Raise `DeadlinePassed` after the deadline, and `ToolError` when the call was cancelled."""
        if self.ctx.cancelled:
            raise ToolError("The call was cancelled.")
        if time.monotonic() > self.until:
            raise DeadlinePassed


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the walk, open until the next one: its path (`""` for the workspace) and the names in it."""

    path: str
    descriptor: int
    files: list[str]
    links: list[str]
    folders: list[str]

    def join(self, name: str) -> str:
        """Build the path of an entry."""
        return f"{self.path}/{name}" if self.path else name


@dataclass(slots=True)
class Walk:
    """Iterates over the folders from a start, until the deadline.

    Afterwards, `hidden` counts the entries that `.gitignore` hides, `denied` those that a rule denies; `unreadable`
    lists folders that could not be read, and `cut` says that there were more entries than the limit.
    """

    workspace: Workspace
    start: str
    deadline: Deadline
    ignored: bool = False
    entries: int = 0
    hidden: int = 0
    denied: int = 0
    cut: bool = False
    unreadable: list[str] = field(default_factory=list[str])

    def __iter__(self) -> Iterator[Folder]:
        rules = NO_RULES if self.ignored else _load_rules_above(self.workspace, self.start, self.deadline)
        waiting = [(self.start, rules)]
        while waiting:
            path, above = waiting.pop()
            self.deadline.check()
            try:
                descriptor = self.workspace.open_folder(path or ".")
            except WorkspaceError:
                if path == self.start:
                    raise
                # Deleted since it was listed, or not readable.
                self.unreadable.append(path)
                continue
            try:
                folder, rules = self._list_folder(path, descriptor, above)
                yield folder
                waiting += [(folder.join(name), rules) for name in reversed(folder.folders)]
            finally:
                os.close(descriptor)

    def _list_folder(self, path: str, descriptor: int, above: IgnoreRules) -> tuple[Folder, IgnoreRules]:
        folder = Folder(path, descriptor, [], [], [])
        if is_pseudo_file(descriptor):
            return folder, above
        text = None if self.ignored else read_rules(descriptor)
        rules = above if text is None else above.extend(path, text)
        shows = make_name_filter(str(self.workspace.root / path))
        for entry in self._scan_entries(folder):
            self.entries += 1
            self.deadline.check()
            if shows is None or shows(entry.name):
                self._classify(folder, entry, rules)
            else:
                self.denied += 1
        for names in (folder.files, folder.links, folder.folders):
            names.sort()
        return folder, rules

    def _scan_entries(self, folder: Folder) -> Iterator[os.DirEntry[str]]:
        most = min(MAX_IN_FOLDER, MAX_ENTRIES - self.entries)
        try:
            with os.scandir(folder.descriptor) as entries:
                yield from islice(entries, most)
                self.cut = self.cut or next(entries, None) is not None
        except OSError:
            self.unreadable.append(folder.path)

    def _classify(self, folder: Folder, entry: os.DirEntry[str], rules: IgnoreRules) -> None:
        name = entry.name
        if name == ".git":
            return
        is_link = entry.is_symlink()
        is_folder = not is_link and entry.is_dir(follow_symlinks=False)
        if not self.ignored and rules.hides(folder.join(name), folder=is_folder, check=self.deadline.check):
            self.hidden += 1
        elif is_link:
            folder.links.append(name)
        elif is_folder:
            folder.folders.append(name)
        elif entry.is_file(follow_symlinks=False):
            folder.files.append(name)


def _load_rules_above(workspace: Workspace, start: str, deadline: Deadline) -> IgnoreRules:
    """Load the rules of the folders above the start folder."""
    if start.startswith("/"):
        return NO_RULES
    rules = load_outer_rules(workspace.root)
    if not start:
        return rules
    names = start.split("/")
    for depth in range(len(names)):
        deadline.check()
        path = "/".join(names[:depth])
        descriptor = workspace.open_folder(path or ".")
        try:
            text = read_rules(descriptor)
        finally:
            os.close(descriptor)
        rules = rules if text is None else rules.extend(path, text)
    return rules


def resolve_start(workspace: Workspace, path: str) -> str:
    """Resolve the start of a walk: the real path relative to the workspace, `""` for the workspace itself."""
    if not path:
        raise ToolError("The path is empty. Use '.' for the whole workspace, or leave it out.")
    found = workspace.relative(path)
    return "" if found == "." else found


def format_path(path: str) -> str:
    """Format a path on one line: as a JSON string where it has characters that are not printable."""
    return path if path.isprintable() else json.dumps(path)


def describe_omissions(walk: Walk) -> list[str]:
    """Describe what a walk did not see."""
    notes: list[str] = []
    if walk.denied:
        notes.append(f"Left out, because a rule denies to read it: {walk.denied:,}.")
    if walk.cut:
        notes.append(f"Only the first {walk.entries:,} entries were looked at; give a path to look further down.")
    if walk.unreadable:
        more = f" and {len(walk.unreadable) - 3:,} more" if len(walk.unreadable) > 3 else ""
        names = ", ".join(format_path(path or ".") for path in walk.unreadable[:3])
        notes.append(f"Not readable: {names}{more}.")
    return notes
