"""What a project brings along counts only after its user has seen it: settings and MCP servers, by path and content.

Nothing of it is read as settings, and nothing is started, before that (failures.md L12).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from steersman.cli.exits import UserError
from steersman.cli.setup.settings import PROJECT_FILE, Settings, content_of, parse_settings
from steersman.cli.terminal.sanitize import exact, one_line
from steersman.tools.mcp.errors import McpError, UntrustedFile
from steersman.tools.mcp.trust import Trust, hash_content
from steersman.tools.skills import find_project_folders

if TYPE_CHECKING:
    from steersman.tools.mcp.servers import McpServers

AskTrust: TypeAlias = Callable[[str, str], Awaitable[bool]]
Tell: TypeAlias = Callable[[str], None]

MCP_FILE = ".mcp.json"
_HOW = "To look at it and trust it, run `steersman` without -p in this folder, on a terminal."


async def project_settings(workspace: Path, *, ask: AskTrust | None, tell: Tell) -> Settings:
    """The settings of the project around a folder, if its user trusts them; else empty ones, and a notice."""
    path = nearest(workspace, PROJECT_FILE)
    content = None if path is None else content_of(path)
    if path is None or content is None:
        return Settings()
    try:
        trusted = Trust().allows(path, content)
    except McpError as error:
        tell(f"{_shown(path)} does not count: {one_line(str(error))}")
        return Settings()
    if not trusted and not await _asked(path, _text(content), ask):
        tell(f"{_shown(path)} is not trusted, so it does not count. {_HOW}")
        return Settings()
    settings = parse_settings(content, path, project=True)
    if not trusted:
        try:
            Trust().add(path, hash_content(content))
        except McpError as error:
            tell(f"{_shown(path)} counts this time only: {one_line(str(error))}")
    return settings


async def project_servers(
    workspace: Path, *, variables: tuple[str, ...], pins: Path, ask: AskTrust | None, tell: Tell
) -> McpServers | None:
    """The MCP servers of the project around a folder, if its user trusts its file; `None` and a notice if not."""
    path = nearest(workspace, MCP_FILE)
    if path is None:
        return None
    try:
        return _servers(path, variables, pins, tell)
    except UntrustedFile as error:
        found = error
    except McpError as error:
        tell(f"{_shown(path)} does not count: {one_line(str(error))}")
        return None
    if not await _asked(path, "\n".join(exact(start) for start in found.starts), ask):
        tell(f"{_shown(path)} is not trusted, so none of its MCP servers is started. {_HOW}")
        return None
    try:
        Trust().add(path, found.sha256)
        return _servers(path, variables, pins, tell)
    except McpError as error:
        tell(f"{_shown(path)} does not count: {one_line(str(error))}")
        return None


def named_servers(path: Path, *, variables: tuple[str, ...], pins: Path, tell: Tell) -> McpServers:
    """The MCP servers of a file that the user named; `UserError` where it is no such file."""
    try:
        return _servers(path, variables, pins, tell, trusted=True)
    except McpError as error:
        raise UserError(str(error), code=2) from error


def nearest(workspace: Path, name: str) -> Path | None:
    """A file in a folder, or above it up to its repository."""
    found = (folder / name for folder in find_project_folders(workspace))
    return next((path for path in found if os.path.lexists(path)), None)


def _servers(path: Path, variables: tuple[str, ...], pins: Path, tell: Tell, *, trusted: bool = False) -> McpServers:
    from steersman.tools.mcp.servers import McpServers, Problem

    def told(problem: Problem) -> None:
        tell(one_line(str(problem)))

    return McpServers.from_file(path, trusted=trusted, expand=variables, pins=pins, required=False, on_problem=told)


async def _asked(path: Path, content: str, ask: AskTrust | None) -> bool:
    """Whether the user, who sees the content, trusts it; without anybody to ask, nobody does."""
    return ask is not None and await ask(f"Trust {_shown(path)}?", content)


def _text(content: bytes) -> str:
    return exact(content.decode("utf-8", "backslashreplace"))


def _shown(path: Path) -> str:
    return one_line(str(path))
