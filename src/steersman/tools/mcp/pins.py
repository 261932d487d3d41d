"""What a tool was when it was first seen. A definition that changed since is held back until the user accepts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steersman.tools.mcp.store import JsonFile
from steersman.tools.threads import in_thread


@dataclass(frozen=True, slots=True)
class ChangedTool:
    """A tool whose description or schema is no longer what was pinned; `pinned` and `found` are the two digests."""

    server: str
    tool: str
    pinned: str
    found: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The tool as agents and approval rules name it."""
        return f"mcp:{self.server}:{self.tool}"


class Pins:
    """The digests of the definitions that were first seen, by server and tool; in memory, or in a file as well."""

    __slots__ = ("_file", "_known")

    def __init__(self, path: str | Path | None = None) -> None:
        self._file = None if path is None else JsonFile(path, "file of pinned MCP tools")
        self._known: dict[str, dict[str, str]] = {}

    async def load(self) -> None:
        """Read the file, if there is one."""
        if self._file is not None:
            self._known = await in_thread(self._file.read)

    def pinned(self, server: str, tool: str) -> str | None:
        """The digest that a tool is held to, or `None` for one that was never seen."""
        return self._known.get(server, {}).get(tool)

    async def keep(self, server: str, found: Mapping[str, str]) -> None:
        """Hold these tools to these digests from now on."""
        if not found:
            return
        self._known.setdefault(server, {}).update(found)
        if self._file is not None:
            await in_thread(self._file.change, lambda entries: entries.setdefault(server, {}).update(found))
