"""`McpServers`: a set of MCP servers whose tools an agent can use inside `async with`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast, get_args

from steersman.tools.mcp.config_file import read_config_file
from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.server import Server, ServerSettings, ServerState
from steersman.tools.mcp.spec import HttpServer, ServerSpec, StdioServer, check_name
from steersman.tools.mcp.trust import ChangedTool, Pins, Trust
from steersman.tools.threads import call_in_thread
from steersman.tools.tool import Access, Tool
from steersman.types.errors import MissingExtra, describe_exception

_log = logging.getLogger("steersman")

MAX_TOOLS = 200
MAX_BYTES = 8 * 1024 * 1024
_CLOSE_SECONDS = 8.0
_KILL_SECONDS = 2.0
_ACCEPT_SECONDS = 60.0
_MAX_PROBLEMS = 50
# The modules of the extra; any other missing module is another problem.
_SDK_MODULES = ("anyio", "httpx2", "mcp", "mcp_types", "pydantic")

OnChange = Callable[[ChangedTool], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a server that did not stop the others: what was left out, and why."""

    server: str
    tool: str | None
    text: str

    def __str__(self) -> str:
        what = "" if self.tool is None else f"Tool {self.tool!r} of "
        return f"{what}MCP server {self.server!r}: {self.text}."


class McpServers:
    """MCP servers as a toolset: `async with McpServers({...}) as servers: Agent(..., tools=[servers])`.

    Each tool is named `mcp:server:tool`. A tool whose definition differs from the first one is not offered until
    `on_change` returns true or `accept` is called; `pins` is a file that keeps definitions across programs. `access`
    maps patterns such as `mcp:time:*` to what their tools can change; what servers say about themselves is ignored.
    With `required=False` a server that does not start is a problem and not an error. With `after_changes=False` none is
    started that runs from where tools of this program have changed files before.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerSpec],
        *,
        pins: str | Path | None = None,
        on_change: OnChange | None = None,
        on_problem: Callable[[Problem], None] | None = None,
        access: Mapping[str, Access] | None = None,
        required: bool = True,
        max_tools: int = MAX_TOOLS,
        max_message_bytes: int = MAX_BYTES,
        after_changes: bool = True,
    ) -> None:
        for name, spec in _check_servers(servers).items():
            check_name(name)
            if not isinstance(spec, StdioServer | HttpServer):
                # The value is not shown: a server that is written as a dict may hold keys.
                kind = type(spec).__name__
                raise TypeError(f"The server {name!r} is a StdioServer(...) or an HttpServer(...), got a {kind}.")
        self._pins = Pins(pins)
        self._on_change = on_change
        self._on_problem = on_problem
        self._access = _check_access(access or {})
        self._required = required
        self._problems: dict[str, list[Problem]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False
        terms = ServerSettings(
            _check_count("max_message_bytes", max_message_bytes),
            _check_count("max_tools", max_tools),
            self._pins,
            self._report,
            self._accept_changes,
            self._find_access,
            after_changes,
        )
        self._servers = {name: Server(name, spec, terms) for name, spec in servers.items()}

    @classmethod
    def from_file(
        cls,
        path: str | Path = ".mcp.json",
        *,
        trust: Trust | None = None,
        trusted: bool = False,
        expand: Collection[str] = (),
        **settings: Any,
    ) -> Self:
        """Read the servers of a `.mcp.json` whose content the user has trusted; raises `UntrustedFile` otherwise.

        `trusted=True` is for a file that the user named, rather than one that was found. `expand` lists the
        environment variables that the file may use as `${NAME}`. The settings are those of `McpServers`.
        """
        if isinstance(expand, str):
            raise TypeError(f"'expand' is a list of names, such as expand=[{expand!r}], got {expand!r}.")
        required_trust = None if trusted else trust or Trust()
        return cls(read_config_file(path, trust=required_trust, expand=expand, source=os.environ), **settings)

    # For agents

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of all servers, as they are now."""
        if self._loop is None:
            raise RuntimeError("These MCP servers are not running. Enter them first: async with servers: ...")
        if self._ended:
            raise RuntimeError("These MCP servers were closed; use the agent inside their 'async with'.")
        return [tool for server in self._servers.values() for tool in server.tools]

    @property
    def held(self) -> Sequence[ChangedTool]:
        """The tools that are not offered because their definition has changed."""
        return [change for server in self._servers.values() for change in server.held]

    @property
    def states(self) -> Sequence[ServerState]:
        """What each server does now."""
        return [server.state for server in self._servers.values()]

    @property
    def problems(self) -> Sequence[Problem]:
        """What was left out and why: the first problems of each server."""
        return [problem for found in self._problems.values() for problem in found]

    async def accept(self, change: ChangedTool) -> None:
        """Accept a changed tool; the next run has it. `McpError` if it has changed again in the meantime."""
        server = self._servers.get(change.server)
        if server is None or not await server.accept(change):
            raise McpError(f"There is no such change of {change.name!r} to accept; look at 'held' again.")

    async def restart(self, name: str) -> None:
        """Start or connect one server again, also one that works; `McpError` says why that failed."""
        server = self._servers.get(name)
        if server is None:
            raise McpError(f"There is no MCP server {name!r}. Servers: {', '.join(self._servers) or 'none'}.")
        self._problems.pop(name, None)
        try:
            await server.restart()
        except McpError as error:
            raise McpError(f"The MCP server {name!r} ({server.spec.target}) cannot be used: {error}.") from error

    async def refresh(self) -> None:
        """List all tools again; servers that are down are tried at once. `McpError` names those that fail."""
        await self._for_each_server(self._relist)

    # Entering and closing

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("These MCP servers were entered before; make a new McpServers(...).")
        self._loop = asyncio.get_running_loop()
        await call_in_thread(_import_sdk)
        await self._pins.load()
        try:
            await self._for_each_server(Server.connect, required=self._required)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._ended = True
        closing = [asyncio.get_running_loop().create_task(server.close()) for server in self._servers.values()]
        if not closing:
            return
        try:
            await asyncio.wait(closing, timeout=_CLOSE_SECONDS)
        finally:
            # Also when this task is cancelled: no process may be left.
            if not all(task.done() for task in closing):
                for server in self._servers.values():
                    server.kill()
                await asyncio.wait(closing, timeout=_KILL_SECONDS)

    async def _for_each_server(self, work: Callable[[Server], Awaitable[object]], *, required: bool = True) -> None:
        """Run `work` for all servers concurrently; one that fails does not stop the others."""
        doing = {asyncio.ensure_future(work(server)): server for server in self._servers.values()}
        if not doing:
            return
        try:
            await asyncio.wait(doing)
        except asyncio.CancelledError:
            for task in doing:
                task.cancel()
            await asyncio.wait(doing)
            raise
        failed: list[str] = []
        for task, server in doing.items():
            try:
                task.result()
            except McpError as error:
                failed.append(f"The MCP server {server.name!r} ({server.spec.target}) cannot be used: {error}.")
                if not required:
                    self._report(server.name, None, f"it cannot be used: {error}")
        if failed and required:
            raise McpError("\n".join(failed))

    async def _relist(self, server: Server) -> None:
        server.reset_backoff()
        server.allow_restart()
        await server.list_tools(await server.connect())

    # For the servers

    def _report(self, server: str, tool: str | None, text: str) -> None:
        problem = Problem(server, tool, text)
        found = self._problems.setdefault(server, [])
        # A server with many problems must not fill the logs.
        if problem in found or len(found) >= _MAX_PROBLEMS:
            return
        found.append(problem)
        if self._on_problem is None:
            _log.warning("%s", problem)
            return
        try:
            self._on_problem(problem)
        except Exception:  # noqa: BLE001  # a failing callback must not break a server
            _log.exception("on_problem raised for: %s", problem)

    async def _accept_changes(self, changes: Sequence[ChangedTool]) -> set[str]:
        """Return the tools whose change is accepted; a timeout or an error of `on_change` means no."""
        accepted: set[str] = set()
        if self._on_change is None:
            return accepted
        try:
            async with asyncio.timeout(_ACCEPT_SECONDS):
                for change in changes:
                    answer = self._on_change(change)
                    if (await answer if isinstance(answer, Awaitable) else answer) is True:
                        accepted.add(change.tool)
        except Exception as error:  # noqa: BLE001  # a guard that failed must not count as one that agreed
            self._report(changes[0].server, None, f"on_change failed, which counts as no: {describe_exception(error)}")
        return accepted

    def _find_access(self, name: str) -> Access:
        """Find the access the user set for a tool; the widest one where several patterns match."""
        matches = [access for pattern, access in self._access.items() if fnmatchcase(name, pattern)]
        return "full" if not matches or "full" in matches else "edit" if "edit" in matches else "read"


def _import_sdk() -> None:
    """Import the SDK; called in a thread, because it takes long."""
    try:
        for name in ("connection", "content"):
            import_module(f"steersman.tools.mcp.{name}")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _SDK_MODULES:
            raise
        raise MissingExtra(
            f"MCP servers need the package {error.name!r}, which is not installed: pip install 'steersman[mcp]'"
        ) from error


def _check_servers(servers: Any) -> Mapping[str, Any]:
    if not isinstance(servers, Mapping):
        kind = type(servers).__name__
        raise TypeError(f"Servers are given by name, such as {{'time': StdioServer(...)}}, got a {kind}.")
    return cast(Mapping[str, Any], servers)


def _check_access(access: Mapping[str, Any]) -> dict[str, Access]:
    for pattern, right in access.items():
        if right not in get_args(Access):
            raise ValueError(f"The access of {pattern!r} is 'read', 'edit' or 'full', got {right!r}.")
    return dict(access)


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name!r} is a whole number above 0, got {value!r}.")
    return value
