"""Errors of MCP servers and their settings.

McpError            a server, its settings or its answer cannot be used
  UntrustedFile     a `.mcp.json` whose content the user has not trusted
  ServerLost        the connection ended while a request was waiting
"""

from __future__ import annotations

from pathlib import Path

from steersman.types.errors import SteersmanError


class McpError(SteersmanError):
    """A server, its settings or its answer cannot be used; the text says which and why."""


class UntrustedFile(McpError):
    """A file that names servers to start, and that the user has not trusted with this content.

    `sha256` is the hash of the content that was read: `Trust.add(path, sha256)` does not trust any later content.
    """

    def __init__(self, path: Path, sha256: str, starts: tuple[str, ...]) -> None:
        listed = "\n".join(f"  {line}" for line in starts) or "  (no servers)"
        super().__init__(
            f"{str(path)!r} is not trusted with its current content, so nothing in it was started. It would start:\n"
            f"{listed}\nRead it. If you want these servers, allow this content: "
            f"Trust().add({str(path)!r}, {sha256!r})."
        )
        self.path = path
        self.sha256 = sha256
        self.starts = starts


class ServerLost(McpError):
    """The connection to a server ended; whether the request took effect is unknown."""
