"""A server made with the official SDK: `sdk_server.py stdio`, or `sdk_server.py http PORT`, which prints its address.

`LOG` names a file that gets a line for each call that begins or is cancelled.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import InputRequiredResult

server = MCPServer("sdk", log_level="ERROR")


def note(text: str) -> None:
    if "LOG" in os.environ:
        with Path(os.environ["LOG"]).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def headers(ctx: Context) -> str:
    """The headers this request came with."""
    return repr(dict(ctx.headers or {}))


@server.tool()
async def wait(ctx: Context) -> str:
    """Report progress, then wait for ever."""
    await ctx.report_progress(1, 2, "half")
    note("waiting")
    try:
        await anyio.sleep_forever()
    finally:
        note("cancelled")
    return "never"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool."""

    def extra() -> str:
        """New."""
        return "extra"

    server.add_tool(extra)
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
async def ask() -> InputRequiredResult:
    """Ask for something in the midst of the call."""
    return InputRequiredResult(request_state="where we were")


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


async def serve(port: int) -> None:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        anyio.run(serve, int(sys.argv[2]))
    else:
        server.run("stdio")
