"""MCP servers as tools. What a server says is a stranger's data; what it may start, read or change is the user's word.

    servers     McpServers, the toolset an agent is given
    spec, file  how servers are reached, and `.mcp.json`
    trust, pins which files may start programs, and what tools were when they were first seen
    server      one server through all of its lives; connection: one of them, in a task of its own

Nothing here loads the SDK before servers are entered; it comes with the extra `steersman[mcp]`.
"""

from __future__ import annotations

from steersman.tools.mcp.errors import McpError, ServerLost, UntrustedFile
from steersman.tools.mcp.servers import McpServers, Problem
from steersman.tools.mcp.spec import HttpServer, StdioServer
from steersman.tools.mcp.trust import ChangedTool, Trust

__all__ = [
    "ChangedTool",
    "HttpServer",
    "McpError",
    "McpServers",
    "Problem",
    "ServerLost",
    "StdioServer",
    "Trust",
    "UntrustedFile",
]
