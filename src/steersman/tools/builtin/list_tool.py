"""The `list` tool lists a folder, one entry per line."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Annotated

import msgspec

from steersman.tools.builtin.walk import Deadline, DeadlinePassed, format_path, resolve_start
from steersman.tools.confine.denied_paths import make_name_filter
from steersman.tools.confine.workspace import DeniedPath, OutsideWorkspace, Workspace, WorkspaceError, WrongKind
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool, tool
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

MAX_ENTRIES = 500

Path = Annotated[str, msgspec.Meta(description="The folder, relative to the workspace.")]


def list_tool(workspace: Workspace) -> Tool:
    """Make the `list` tool for a workspace."""

    @tool(name="list", access="read", idempotent=True)
    def list_(ctx: ToolContext, path: Path = ".") -> ToolOutput:
        """List a folder: folders first, with a slash behind their names, then files with their sizes in bytes.

        Hidden entries are listed too. Links are shown with where they lead. Use glob to find files further down.
        """
        return _list_folder(workspace, path, ctx)

    return list_


def _list_folder(workspace: Workspace, path: str, ctx: ToolContext) -> ToolOutput:
    start = resolve_start(workspace, path)
    try:
        descriptor = workspace.open_folder(path)
    except WrongKind as error:
        raise ToolError(f"{path!r} is not a folder, so it has no entries. Use read to see a file.") from error
    try:
        first, count, denied = _choose_entries(descriptor, make_name_filter(str(workspace.root / start)), Deadline(ctx))
        lines = [_describe_entry(workspace, start, descriptor, name) for _, name in first]
    except DeadlinePassed as error:
        raise ToolError(f"{path!r} has too many entries to list. Use glob with a pattern.") from error
    except OSError as error:
        raise ToolError(f"{path!r} cannot be listed: {error.strerror}.") from error
    finally:
        os.close(descriptor)
    if not lines and not denied:
        return ToolOutput(f"{path!r} is an empty folder.", details={"entries": 0})
    if denied:
        lines.append(f"[Left out, because a rule denies to read it: {denied:,}.]")
    if count > len(first):
        lines.append(f"[{count - len(first):,} more of {count:,} entries. Use glob with a pattern to see fewer.]")
    return ToolOutput("\n".join(lines), details={"entries": count})


def _choose_entries(
    descriptor: int, shows: Callable[[str], bool] | None, watch: Deadline
) -> tuple[list[tuple[bool, str]], int, int]:
    """Choose the entries to show, folders first; count those that may be shown, and those that a rule denies."""
    count = denied = 0

    def keys() -> Iterator[tuple[bool, str]]:
        nonlocal count, denied
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if (count + denied) % 1_000 == 999:
                    watch.check()
                if shows is None or shows(entry.name):
                    count += 1
                    yield not entry.is_dir(follow_symlinks=False), entry.name
                else:
                    denied += 1

    # Keeps only the entries that will be shown, however many there are.
    return nsmallest(MAX_ENTRIES, keys()), count, denied


def _describe_entry(workspace: Workspace, folder: str, descriptor: int, name: str) -> str:
    try:
        found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return f"{format_path(name)} (cannot be accessed)"
    if stat.S_ISDIR(found.st_mode):
        return f"{format_path(name)}/"
    if stat.S_ISREG(found.st_mode):
        return f"{format_path(name)} ({found.st_size:,} bytes)"
    if stat.S_ISLNK(found.st_mode):
        return _describe_link(workspace, f"{folder}/{name}" if folder else name, descriptor, name)
    kinds = ((stat.S_ISFIFO, "named pipe"), (stat.S_ISSOCK, "socket"))
    return f"{format_path(name)} ({next((words for test, words in kinds if test(found.st_mode)), 'device')})"


def _describe_link(workspace: Workspace, path: str, descriptor: int, name: str) -> str:
    try:
        text = f"{format_path(name)} -> {format_path(os.readlink(name, dir_fd=descriptor))}"
    except OSError:
        return f"{format_path(name)} (a link that cannot be read)"
    try:
        return f"{text}/" if stat.S_ISDIR(workspace.stat(path).st_mode) else text
    except DeniedPath:
        return f"{format_path(name)} (a link to what a rule denies to read)"
    except OutsideWorkspace:
        return f"{text} (leads out of the workspace)"
    except WorkspaceError:
        return f"{text} (leads nowhere)"
