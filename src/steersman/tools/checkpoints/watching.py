"""Puts the calls of tools that can change files, and the hooks after them, between two looks at the workspace."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from steersman.tools.checkpoints.checkpoints import Checkpoints
from steersman.tools.checkpoints.store import Place, StoreError
from steersman.tools.confine.path_errors import WorkspaceError
from steersman.tools.confine.workspace import Workspace
from steersman.tools.output import ToolContext
from steersman.tools.table import Toolset
from steersman.tools.threads import call_in_thread
from steersman.tools.tool import Tool
from steersman.types.tools import ToolOutput

T = TypeVar("T")

_ONE_FILE = ("write", "edit")
_OUTSIDE = ("fetch",)
"""A built-in tool that changes no file, although it is not only reading for an approval policy."""

_PATIENCE = 1.0
_COPYING = "Copying the files of this folder first, so that changes can be undone"


class WatchedTools:
    """Watches tools for checkpoints. `find_place` says which run is going on; without one, nothing is recorded.

    `open_checkpoints` is called in a thread, when the first call is recorded. `report` gets a text when a call cannot
    be recorded: the call is made all the same, and cannot be undone.
    """

    def __init__(
        self,
        open_checkpoints: Callable[[], Checkpoints],
        workspace: str | os.PathLike[str],
        find_place: Callable[[], Place | None],
        report: Callable[[str], None],
    ) -> None:
        self._open_checkpoints = open_checkpoints
        self._workspace = Workspace(workspace)
        self._find_place = find_place
        self._report = report
        self._reported: set[str] = set()
        self._begun: set[str] = set()

    def watch(self, tool: Tool) -> Tool:
        """The same tool, watched; one that only reads is left as it is."""
        if tool.access == "read" or tool.name in _OUTSIDE:
            return tool

        async def execute(arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            return await self._call(tool, arguments, ctx)

        watched = tool.with_function(execute)
        watched.preview = tool.preview
        return watched

    def watch_all(self, toolset: Toolset) -> Toolset:
        """The tools of a toolset, watched."""
        return _WatchedToolset(toolset, self)

    async def record(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something else that may change files, such as a hook of a call; it is recorded with the calls."""
        return await self._record(work, lambda _: None, "", {})

    async def _call(self, tool: Tool, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        async def call() -> ToolOutput:
            if tool.name in _ONE_FILE:
                # It is short, and its thread goes on after a cancel: what it changes then has to be recorded too.
                return await _finish(tool.call(arguments, ctx))
            return await tool.call(arguments, ctx)

        return await self._record(call, ctx.progress, tool.name, arguments)

    async def _record(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        show: Callable[[str], None],
        tool: str,
        arguments: dict[str, Any],
    ) -> T:
        name, place = os.urandom(8).hex(), self._find_place()
        if place is None:
            return await work()
        try:
            # The first look at a large folder copies all of it.
            notice = asyncio.get_running_loop().call_later(_PATIENCE, show, _COPYING)
            try:
                await _finish(call_in_thread(self._begin, name, place, tool, arguments))
            finally:
                notice.cancel()
            return await work()
        finally:
            await _finish(call_in_thread(self._end, name))

    def _begin(self, call: str, place: Place, tool: str, arguments: dict[str, Any]) -> None:
        try:
            path = None
            if tool in _ONE_FILE:
                path = self._workspace.relative(str(arguments.get("path", "")))
                if path == "." or path.startswith("/"):
                    return
            self._open_checkpoints().begin(call, place, path)
            self._begun.add(call)
        except WorkspaceError:
            return  # the tool fails in the same way
        except (OSError, StoreError, sqlite3.Error) as error:
            self._report_once("What this run changes cannot be undone", error)

    def _end(self, call: str) -> None:
        if call not in self._begun:
            return
        self._begun.remove(call)
        try:
            self._open_checkpoints().end(call)
        except (OSError, StoreError, WorkspaceError, sqlite3.Error) as error:
            self._report_once("What the last call changed could not be recorded, so it cannot be undone", error)

    def _report_once(self, what: str, error: Exception) -> None:
        text = f"{what}: {str(error).rstrip('.')}."
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)


class _WatchedToolset:
    def __init__(self, toolset: Toolset, watching: WatchedTools) -> None:
        self._toolset = toolset
        self._watching = watching
        self._watched: dict[int, tuple[Tool, Tool]] = {}

    @property
    def tools(self) -> Sequence[Tool]:
        found = {
            id(tool): self._watched.get(id(tool)) or (tool, self._watching.watch(tool)) for tool in self._toolset.tools
        }
        self._watched = found
        return [watched for _, watched in found.values()]


async def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Wait for the end of something, also if this task is cancelled meanwhile; the cancel goes on after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancel:
            cancelled = cancel
    if cancelled is not None:
        task.exception()  # it was asked for, so that it is not reported as forgotten
        raise cancelled
    return task.result()
