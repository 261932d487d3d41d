"""One MCP server: started when needed, restarted with backoff when it fails, its tools listed after each start."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.tools.confine.changed_folders import count_changes
from steersman.tools.mcp.content import Definition, Progress, define, make_tool, to_output
from steersman.tools.mcp.errors import McpError, ServerLost
from steersman.tools.mcp.spec import ServerSpec, StdioServer
from steersman.tools.mcp.trust import ChangedTool, Pins
from steersman.tools.output import ToolContext
from steersman.tools.text import strip_invisible
from steersman.tools.tool import Access, Tool
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

if TYPE_CHECKING:
    from steersman.tools.mcp.connection import Connection

_FIRST_BACKOFF = 0.5
_MAX_BACKOFF = 60.0
# A call waits this many seconds for the backoff; for a longer backoff it fails at once.
_MAX_WAIT = 5.0
# How many tools a server may have named in all, for each that it may offer at a time.
_PINS_PER_TOOL = 10


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings that all servers of a set share."""

    max_bytes: int
    max_tools: int
    pins: Pins
    report: Callable[[str, str | None, str], None]
    accept_changes: Callable[[Sequence[ChangedTool]], Awaitable[set[str]]]
    find_access: Callable[[str], Access]
    after_changes: bool


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server as it is now: what it starts or where it is, its tools, and why it failed if it did.

    `held` are the names of tools that are not offered because their definition has changed.
    """

    name: str
    target: str
    running: bool
    tools: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    reason: str = ""


class Server:
    """One server: its current connection and the tools it offers."""

    def __init__(self, name: str, spec: ServerSpec, terms: ServerSettings) -> None:
        self.name = name
        self.spec = spec
        self._terms = terms
        self._pins_key = f"{name}#{spec.identity[:32]}"
        self._connections: set[Connection] = set()
        self._current: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._listing = asyncio.Lock()
        self._offered: dict[str, tuple[Definition, Tool]] = {}
        self._held: dict[str, tuple[Definition, ChangedTool]] = {}
        self._failures = 0
        self._not_before = -math.inf
        self._last_reason = ""
        self._home: asyncio.AbstractEventLoop | None = None
        self._closed = False
        # Before its first start: what it runs from, and how often tools had changed something there.
        self._places: list[str] | None = None
        self._changes = 0
        self._after_changes = terms.after_changes

    @property
    def tools(self) -> list[Tool]:
        """The tools it offers now, sorted by name."""
        return [self._offered[name][1] for name in sorted(self._offered)]

    @property
    def held(self) -> list[ChangedTool]:
        """The changed tools that are not offered until they are accepted."""
        return [self._held[name][1] for name in sorted(self._held)]

    @property
    def state(self) -> ServerState:
        """What it does now."""
        running = self._current is not None and self._current.usable
        tools, held = tuple(sorted(self._offered)), tuple(sorted(self._held))
        reason = "" if running else self._last_reason
        return ServerState(self.name, self.spec.target, running, tools, held, reason)

    # Connecting

    async def restart(self) -> None:
        """Start or connect it again, also if it works; running calls may finish. `McpError` says why that failed."""
        self.reset_backoff()
        self.allow_restart()
        if self._current is not None:
            self._current.retire()
            self._current = None
        await self.connect()

    async def connect(self) -> Connection:
        """Return the connection, after starting the server if needed. `McpError` says why that failed."""
        loop = asyncio.get_running_loop()
        self._home = self._home or loop
        if self._home is not loop:
            raise McpError("it was started in another event loop, and can only be used there")
        if self._closed:
            raise McpError("its connections were closed")
        if self._current is not None and self._current.usable:
            return self._current
        if self._opening is None:
            self._opening = loop.create_task(self._open())
            self._opening.add_done_callback(self._forget_opening)
        # A waiting caller may be cancelled, and others still need the connection.
        opening = self._opening
        await asyncio.wait([opening])
        if opening.cancelled():
            raise McpError("its connections were closed")
        try:
            return opening.result()
        except ServerLost as error:
            # No call was sent yet, so nothing can have taken effect.
            raise McpError(str(error)) from error

    def _forget_opening(self, opening: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # marks it as retrieved, also where every waiting caller was cancelled

    async def _open(self) -> Connection:
        from steersman.tools.mcp.connection import Connection

        self._check_unchanged()
        await self._back_off()
        self._check_unchanged()  # again: tools go on meanwhile
        if self._current is not None:
            self._current.retire()
        connection = Connection(
            self.spec,
            max_bytes=self._terms.max_bytes,
            max_tools=self._terms.max_tools,
            refused=self._report,
            on_change=self._relist,
            on_end=self._note_end,
        )
        self._connections.add(connection)
        try:
            await connection.open()
            await self.list_tools(connection)
        except BaseException as error:
            if isinstance(error, McpError) and not connection.over:
                self._count_failure(str(error))
            await connection.close()
            raise
        self._current = connection
        return connection

    def _check_unchanged(self) -> None:
        """Refuse to start a program again where a model may have written what it would run, outside the sandbox."""
        if not isinstance(self.spec, StdioServer):
            return
        places = self.spec.list_places()
        again = " again" if self._places is not None else ""
        if self._places is None:
            self._places, self._changes = places, count_changes(places) if self._after_changes else 0
        if count_changes([*self._places, *places]) != self._changes:
            raise McpError(
                f"it is not started{again}, because tools have changed files where it runs or has its program, and "
                "it would run them outside the sandbox. Only the user can start it again, with "
                "`await servers.refresh()` or in a new program"
            )

    def allow_restart(self) -> None:
        """Allow to start it again whatever has changed: the user asks for it."""
        self._places, self._after_changes = None, True

    async def _back_off(self) -> None:
        pause = self._not_before - asyncio.get_running_loop().time()
        if pause > _MAX_WAIT:
            raise McpError(
                f"it has failed {self._failures} times in a row, the last time because {self._last_reason}; "
                f"it will be tried again in {pause:.0f}s"
            )
        if pause > 0:
            await asyncio.sleep(pause)

    def _note_end(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._current is connection:
            self._current = None
        if not connection.dismissed:
            self._count_failure(connection.reason)

    def _count_failure(self, reason: str) -> None:
        self._failures += 1
        self._last_reason = reason
        # No backoff for the first failure after a success.
        pause = 0.0 if self._failures == 1 else min(_MAX_BACKOFF, _FIRST_BACKOFF * 2 ** min(self._failures - 2, 30))
        self._not_before = asyncio.get_running_loop().time() + pause

    def reset_backoff(self) -> None:
        """Allow the next attempt at once."""
        self._failures = 0
        self._not_before = -math.inf

    async def close(self) -> None:
        """Close all of its connections."""
        self._closed = True
        closing = [asyncio.get_running_loop().create_task(connection.close()) for connection in self._connections]
        if self._opening is not None:
            self._opening.cancel()
            closing.append(asyncio.ensure_future(_wait_until_done(self._opening)))
        if closing:
            await asyncio.wait(closing)

    def kill(self) -> None:
        """Kill its remaining processes at once."""
        self._closed = True
        for connection in [*self._connections]:
            connection.kill()

    # Listing

    async def _relist(self, connection: Connection) -> None:
        try:
            await self.list_tools(connection)
        except McpError as error:
            self._report(None, f"its tools could not be listed again: {error}")

    async def list_tools(self, connection: Connection) -> None:
        """List its tools and offer those that are valid and match their pinned definition."""
        async with self._listing:
            found = self._leave_out_excess(await self._define_tools(await connection.list_tools()))
            changes = {
                change.tool: change for definition in found if (change := self._find_change(definition)) is not None
            }
            accepted = await self._terms.accept_changes([*changes.values()]) if changes else set[str]()
            offered: dict[str, tuple[Definition, Tool]] = {}
            held: dict[str, tuple[Definition, ChangedTool]] = {}
            for definition in found:
                await asyncio.sleep(0)
                name = definition.tool
                if name in changes and name not in accepted:
                    held[name] = (definition, changes[name])
                    self._report(name, f"its definition has changed (to {definition.digest[:12]}); it is not offered")
                elif (tool := self._make_tool(definition)) is not None:
                    offered[name] = (definition, tool)
            fresh = {name: definition.digest for name, (definition, _) in offered.items()}
            await self._terms.pins.save(self._pins_key, fresh)
            self._offered, self._held = offered, held

    async def _define_tools(self, tools: Iterable[Any]) -> list[Definition]:
        """Define the tools that are valid. Other tasks run in between: hundreds of large schemas take seconds."""
        found: dict[str, Definition] = {}
        duplicates: set[str] = set()
        for tool in tools:
            await asyncio.sleep(0)
            try:
                definition = define(tool.name, tool.description, tool.input_schema)
            except McpError as error:
                self._report(tool.name, str(error))
                continue
            if definition.tool in found:
                duplicates.add(definition.tool)
            found[definition.tool] = definition
        for name in duplicates:
            self._report(name, "it is listed more than once, and it is unclear which one is meant")
        return [definition for name, definition in found.items() if name not in duplicates]

    def _leave_out_excess(self, found: list[Definition]) -> list[Definition]:
        """Leave out new tools of a server that has named very many: all are pinned, in one file for all servers."""
        most = _PINS_PER_TOOL * self._terms.max_tools
        room = max(0, most - self._terms.pins.count(self._pins_key))
        new = [each.tool for each in found if self._terms.pins.find_digest(self._pins_key, each.tool) is None]
        excess = set(new[room:])
        if excess:
            self._report(None, f"it has named more than {most:,} different tools; new ones are left out")
        return [each for each in found if each.tool not in excess]

    def _find_change(self, definition: Definition) -> ChangedTool | None:
        pinned = self._terms.pins.find_digest(self._pins_key, definition.tool)
        if pinned is None or pinned == definition.digest:
            return None
        return ChangedTool(
            self.name, definition.tool, pinned, definition.digest, definition.description, definition.parameters
        )

    def _make_tool(self, definition: Definition) -> Tool | None:
        known = self._offered.get(definition.tool)
        if known is not None and known[0].digest == definition.digest:
            return known[1]
        name = f"mcp:{self.name}:{definition.tool}"

        async def execute(arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            return await self._call(definition, arguments, ctx)

        try:
            return make_tool(name, definition, execute, self._terms.find_access(name))
        except McpError as error:
            self._report(definition.tool, str(error))
            return None

    async def accept(self, change: ChangedTool) -> bool:
        """Offer a changed tool from now on, if its definition is still the accepted one."""
        async with self._listing:
            definition, held = self._held.get(change.tool, (None, None))
            if definition is None or held != change or (tool := self._make_tool(definition)) is None:
                return False
            await self._terms.pins.save(self._pins_key, {definition.tool: definition.digest})
            del self._held[definition.tool]
            self._offered = {**self._offered, definition.tool: (definition, tool)}
            return True

    def _report(self, tool: str | None, text: str) -> None:
        self._terms.report(self.name, None if tool is None else strip_invisible(tool, 128, lines=False), text)

    # Calling

    async def _call(self, definition: Definition, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        progress = Progress(ctx.update)
        try:
            connection = await self.connect()
            self._check_offered(definition)
            result = await connection.call(definition.tool, arguments, progress.show)
        except ServerLost as error:
            raise ToolError(
                f"The MCP server {self.name!r} was lost during the call: {error}. Whether the call took effect is not "
                "known; it was not repeated. The next call starts or connects the server again."
            ) from error
        except McpError as error:
            raise ToolError(f"The MCP server {self.name!r} could not do it: {error}.") from error
        finally:
            progress.close()
        self.reset_backoff()
        return to_output(self.name, result, self.spec.secrets)

    def _check_offered(self, definition: Definition) -> None:
        """Refuse a call to a tool whose definition is no longer the one the model got."""
        offered = self._offered.get(definition.tool)
        if offered is not None and offered[0].digest == definition.digest:
            return
        if definition.tool in self._held or offered is not None:
            raise McpError(
                f"the definition of its tool {definition.tool!r} has changed since it was offered; "
                "it can be used again when the change is accepted and a new run begins"
            )
        raise McpError(f"it no longer has a tool {definition.tool!r}")


async def _wait_until_done(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
