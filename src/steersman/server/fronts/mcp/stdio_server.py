"""`McpServer`: agents as tools of another program, for programs that serve MCP over streams of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

from steersman.agent.named import Agents
from steersman.server.fronts.json_rpc import INVALID_REQUEST, encode_line
from steersman.server.fronts.mcp.front import DESCRIPTION, McpFront
from steersman.server.sessions import Sessions
from steersman.session.opening import open_store
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import Store

MAX_LINE: Final = 16 << 20
"""The most bytes of a message."""


class McpServer:
    """Agents as MCP tools: `run` for one agent, or one tool for each of several, under their names.

    Each call is a conversation of its own, kept in `store`, in memory by default. For HTTP, see `Server`: its `/mcp`
    does the same.
    """

    def __init__(
        self,
        agents: Agents,
        *,
        store: Store | str | os.PathLike[str] | None = None,
        description: str = DESCRIPTION,
        approval_timeout: float | None = None,
    ) -> None:
        where = MemoryStore() if store is None else open_store(store)
        self.sessions = Sessions(agents, where, approval_timeout=approval_timeout)
        self._description = description

    async def serve_stdio(self) -> None:
        """Serve the program at the other end of stdin and stdout, which must be pipes, until it hangs up.

        Write nothing else to stdout.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_LINE)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sys.stdout
        )
        await self.serve(reader, asyncio.StreamWriter(transport, protocol, None, loop))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client over two streams until it hangs up; runs that go on then are cut."""
        front = McpFront(
            self.sessions,
            lambda message: writer.write(encode_line(message)),
            description=self._description,
            wait_for_space=writer.drain,
        )
        try:
            await _read_lines(front, reader)
            await front.finish()
            await writer.drain()
        finally:
            await front.close()
            await self.sessions.close()
            writer.close()


async def _read_lines(front: McpFront, reader: asyncio.StreamReader) -> None:
    while True:
        try:
            line = await reader.readuntil()
        except asyncio.IncompleteReadError as error:
            if error.partial.strip():
                front.peer.receive(error.partial)
            return
        except asyncio.LimitOverrunError as error:
            front.peer.refuse(INVALID_REQUEST, f"A message has at most {MAX_LINE:,} bytes.")
            await _skip_line(reader, error.consumed)
            continue
        if line.strip():
            front.peer.receive(line)


async def _skip_line(reader: asyncio.StreamReader, size: int) -> None:
    while True:
        await reader.readexactly(size)
        try:
            await reader.readuntil()
        except asyncio.LimitOverrunError as error:
            size = error.consumed
        except asyncio.IncompleteReadError:
            return
        else:
            return
