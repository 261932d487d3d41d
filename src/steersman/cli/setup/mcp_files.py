"""The MCP servers of an agent: of the file that the user named, and of the project once its file is trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.setup.settings import Settings, find_config_folder
from steersman.cli.setup.trust import MCP_FILE, AskTrust, find_nearest, load_named_servers, load_project_servers
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.tools.mcp.servers import McpServers
from steersman.types.errors import MissingExtra


class McpFiles:
    """Enters the servers in a stack that ends them; `servers` are those that were entered."""

    def __init__(
        self,
        options: Options,
        settings: Settings,
        workspace: Path,
        stack: AsyncExitStack,
        *,
        notify: Callable[[str], None],
    ) -> None:
        self.servers: list[McpServers] = []
        self._named = options.mcp_config
        self._variables = settings.mcp_variables
        self._workspace = workspace
        self._stack = stack
        self._notify = notify
        self._project: McpServers | None = None

    @property
    def untrusted(self) -> Path | None:
        """The project's file, if there is one whose servers are not entered."""
        return None if self._project is not None else find_nearest(self._workspace, MCP_FILE)

    async def enter(self, ask: AskTrust | None) -> Sequence[McpServers]:
        """Enters all servers; those of the project if the user trusts them."""
        if self._named is not None:
            pins = find_config_folder() / "pins.json"
            named = load_named_servers(self._named, variables=self._variables, pins=pins, notify=self._notify)
            self.servers.append(await self._stack.enter_async_context(named))
        await self._enter_project(ask)
        return self.servers

    async def trust_project(self, ask: AskTrust) -> McpServers | None:
        """Asks whether to trust the project's file, and enters its servers; `None` without them."""
        if self.untrusted is None:
            known = find_nearest(self._workspace, MCP_FILE)
            raise UserError(
                f"This folder has no {MCP_FILE}."
                if known is None
                else f"{MCP_FILE} is trusted, and its servers are here."
            )
        return await self._enter_project(ask)

    async def _enter_project(self, ask: AskTrust | None) -> McpServers | None:
        pins = find_config_folder() / "pins.json"
        found = await load_project_servers(
            self._workspace, variables=self._variables, pins=pins, ask=ask, notify=self._notify
        )
        if found is None:
            return None
        try:
            self._project = await self._stack.enter_async_context(found)
        except MissingExtra as error:
            self._notify(sanitize_line(str(error)))
            return None
        self.servers.append(found)
        return found
