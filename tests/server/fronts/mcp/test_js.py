"""The MCP server judged by the client of the JavaScript SDK, over stdio and over HTTP (server.md 5)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.server.fronts.reacting import make_agent
from tests.server.judging import judge
from tests.server.kit import run_server

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_javascript_client_understands_all_of_it(transport: str, tmp_path: Path) -> None:
    """Progress, questions (yes, no, cannot be asked), an error and a cancel."""
    if transport == "stdio":
        seen = await judge("mcp.mjs", sys.executable, "-m", "tests.server.fronts.mcp.program", str(tmp_path))
    else:
        gate = asyncio.Event()
        async with run_server(lambda: make_agent(tmp_path, gate)) as server:
            seen = await judge("mcp.mjs", f"{server.url}/mcp?token={server.token}")
    assert "".join(seen.pop("progress")) == "Thought.[wait]"
    assert "that is prompt 1." in seen.pop("after")
    assert seen == {
        "tools": ["run"],
        "text": "Thought.",
        "asked": 2,
        "yes": "Done.",
        "no": "Not done.",
        "failed": True,
        "unknown": -32602,
        "cancelled": True,
        "mute": "Not done.",
    }
