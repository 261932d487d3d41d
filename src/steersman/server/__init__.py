"""The server: agents behind HTTP, with a page. It owns no behaviour of the loop; the log is the only truth.

from steersman.server import Server, serve
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.server.fronts.mcp.stdio_server import McpServer
    from steersman.server.hub import Hub
    from steersman.server.server import Server, serve
    from steersman.server.sessions import Sessions

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "fronts.mcp.stdio_server": "McpServer",
        "hub": "Hub",
        "server": "Server serve",
        "sessions": "Sessions",
    },
)

__all__ = ["Hub", "McpServer", "Server", "Sessions", "serve"]
