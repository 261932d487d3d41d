"""Servers to start in tests, calling their tools, and looking for what they left behind."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.timing import ample

from steersman import CancelToken, Tool, ToolContext, ToolOutput
from steersman.tools.mcp import McpServers, Problem, StdioServer
from steersman.types.content import TextContent
from steersman.types.errors import ToolError

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
AT_ONCE = 10.0
"""Seconds for what takes a moment; a wait in vain takes half a minute."""


async def is_at_once(seconds: float) -> bool:
    """Whether something took a moment only; on a busy machine, no longer than ten starts of a server with a call."""
    return seconds < AT_ONCE or seconds < await ample(_start_and_call, AT_ONCE)


async def _start_and_call() -> None:
    async with entered(small=small()) as servers:
        await call(servers, "mcp:small:echo", text="hi")


def small(*flags: str, env: dict[str, str] | None = None, **settings: Any) -> StdioServer:
    """The little server that does what others never do."""
    return StdioServer(
        command=sys.executable, args=["-E", "-S", str(HERE / "small_server.py"), *flags], env=env or {}, **settings
    )


def entered(**servers: Any) -> McpServers:
    """Servers whose problems are collected and not logged."""
    return McpServers(servers, on_problem=quiet)


def quiet(_: Problem) -> None: ...


def tool_of(servers: McpServers, name: str) -> Tool:
    return {tool.name: tool for tool in servers.tools}[name]


def names(servers: McpServers) -> list[str]:
    return [tool.name for tool in servers.tools]


async def use(tool: Tool, on_update: Callable[[Any], None] | None = None, /, **arguments: Any) -> ToolOutput:
    """One call; what the tool raises for the model is an error output, as the loop makes it one."""
    ctx = ToolContext("call_1", tool.name, CancelToken(), on_update=on_update or (lambda _: None))
    try:
        return await tool.call(tool.check(arguments), ctx)
    except ToolError as error:
        return ToolOutput(str(error), is_error=True)


async def call(servers: McpServers, name: str, /, **arguments: Any) -> ToolOutput:
    return await use(tool_of(servers, name), **arguments)


def text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    return "\n".join([block.text for block in output.content if isinstance(block, TextContent)])


def new_mark() -> str:
    return f"mark{secrets.token_hex(12)}"


def marked(mark: str) -> list[int]:
    """The processes that carry a mark in their environment or arguments; a zombie has neither."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                seen = [Path(f"/proc/{entry}/{name}").read_bytes() for name in ("environ", "cmdline")]
            except OSError:
                continue
            if any(mark.encode() in each for each in seen):
                found.append(int(entry))
    return found


def alive(pids: Sequence[int]) -> list[int]:
    """Which of these processes are there, be it as zombies."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def seen_by(pid: int) -> bytes:
    """The environment and the arguments of a process, as the system has them."""
    return b"".join([Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")])


@contextmanager
def own_port() -> Generator[int]:
    """A port for a server that is not there yet, or comes back later: no program that asks for any port gets it."""
    with socket.socket() as holding:
        # Held and not listened on, it can be bound by a program that names it and sets the same option.
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holding.bind(("127.0.0.1", 0))
        yield holding.getsockname()[1]


def lines(path: Path) -> Sequence[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
