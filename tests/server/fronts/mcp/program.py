"""A scripted agent as an MCP server over stdio: `python -m tests.server.fronts.mcp.program FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.server.fronts.reacting import make_agent

if __name__ == "__main__":
    asyncio.run(make_agent(Path(sys.argv[1])).as_mcp_server().serve_stdio())
