"""MCP servers as tools. What a server sends is untrusted; only the user decides what it may start, read or change.

    servers                 McpServers, the toolset that is passed to an agent
    spec, config_file       how a server is reached, and `.mcp.json`
    trust                   which files may start programs, and the pinned definitions of tools
    server, connection      one server, restarted when needed; one session with it, in a task of its own
    transports, process     stdio and HTTP transports, and the server's process
    screen, definitions     checks of what a server lists, and the tools made from it
    content                 results of calls, as tool output

The SDK is imported when servers are entered, and not before; it comes with the extra `steersman[mcp]`.
"""

from __future__ import annotations

from steersman.tools.mcp.errors import McpError, ServerLost, UntrustedFile
from steersman.tools.mcp.server import ServerState
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
    "ServerState",
    "StdioServer",
    "Trust",
    "UntrustedFile",
]
