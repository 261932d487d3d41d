"""`steersman acp`: the agent of an editor. Each session has the agent of its folder, and is kept with the others."""

from __future__ import annotations

import argparse
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from steersman.cli.arguments import Options
from steersman.cli.exits import UserError
from steersman.cli.serving.folder import add_approval_timeout, open_folder_store, open_stderr, start_served_agent
from steersman.cli.serving.stdio import take_stdio
from steersman.cli.setup.settings import find_config_folder, get_current_folder
from steersman.cli.terminal.stderr import StderrMessages
from steersman.provider.models.registry import get_model
from steersman.server.fronts.acp.editor_sessions import Workplace
from steersman.server.fronts.acp.front import AcpFront
from steersman.server.fronts.acp.prompts import ServerOfClient
from steersman.server.fronts.json_rpc import INTERNAL_ERROR, RpcError
from steersman.session.stores.store import Store
from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.servers import McpServers
from steersman.tools.mcp.spec import HttpServer, ServerSpec, StdioServer
from steersman.tools.table import Toolset
from steersman.types.errors import MissingExtra

_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]+")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    add_approval_timeout(parser)


async def run(options: Options) -> int:
    """Serves an editor until its end of the pipe is closed; returns the exit code."""
    arguments = options.arguments
    assert arguments is not None
    async with open_stderr(options) as stderr, take_stdio() as stdio:
        front = AcpFront(Folders(options, stderr), stdio.output, approval_timeout=arguments.approval_timeout)
        try:
            stdio.read_lines(front.receive)
            await stdio.ended.wait()
        finally:
            await front.close()
    return 0


class Folders:
    """The folders of this machine: the agent that `steersman` would run there, and its sessions."""

    def __init__(self, options: Options, stderr: StderrMessages) -> None:
        self.home = get_current_folder()
        self._options = options
        self._stderr = stderr

    def find_store(self, cwd: Path) -> Store:
        """The store that the command uses in a folder."""
        return open_folder_store(self._options, cwd)

    @asynccontextmanager
    async def start(self, cwd: Path, servers: Sequence[ServerOfClient]) -> AsyncGenerator[Workplace]:
        """Start the agent of a folder."""
        async with AsyncExitStack() as stack:
            toolsets = await self._enter_servers(cwd, servers, stack)
            starting = start_served_agent(self._options, self._stderr, workspace=cwd, toolsets=toolsets)
            try:
                started = await stack.enter_async_context(starting)
            except UserError as error:
                raise RpcError(INTERNAL_ERROR, str(error)) from error
            fallbacks = [get_model(model).name for model in started.agent.config.fallbacks]
            yield Workplace(started.agent, self.find_store(cwd), [started.model.name, *fallbacks])

    async def _enter_servers(
        self, cwd: Path, servers: Sequence[ServerOfClient], stack: AsyncExitStack
    ) -> Sequence[Toolset]:
        """Start the editor's servers: the user has set them up there, so they are trusted as a named file is."""
        found: dict[str, ServerSpec] = {}
        for server in servers:
            try:
                found[_UNNAMEABLE.sub("-", server.name).strip("-.")[:64]] = _read_server(cwd, server)
            except McpError as error:
                self._stderr.notify(f"MCP server {server.name!r}: {error}")
        if not found:
            return ()
        pins = find_config_folder() / "pins.json"
        try:
            entered = McpServers(found, pins=pins, required=False, on_problem=lambda one: self._stderr.notify(str(one)))
            return [await stack.enter_async_context(entered)]
        except (McpError, MissingExtra) as error:
            self._stderr.notify(str(error))
            return ()


def _read_server(cwd: Path, server: ServerOfClient) -> ServerSpec:
    match server.type:
        case "stdio":
            env = {one.name: one.value for one in server.env}
            return StdioServer(command=server.command, args=server.args, env=env, cwd=cwd)
        case "http":
            return HttpServer(url=server.url, headers={one.name: one.value for one in server.headers})
        case kind:
            raise McpError(f"the transport {kind!r:.50} is not supported.")
