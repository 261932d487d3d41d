"""Trust: a project's settings, files and MCP servers count only after the user has seen and trusted them.

Trust is bound to path and content. Before it, nothing is applied nor started (failures.md L12).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from steersman.cli.exits import UserError
from steersman.cli.setup.settings import PROJECT_FILE, Settings
from steersman.cli.setup.settings_parser import parse_settings, read_settings_bytes
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.tools.mcp.errors import McpError, UntrustedFile
from steersman.tools.mcp.servers import McpServers, Problem
from steersman.tools.mcp.trust import Trust, hash_content
from steersman.tools.skills import find_project_folders
from steersman.types.visible import escape_invisible

AskTrust: TypeAlias = Callable[[str, str], Awaitable[bool]]
Notify: TypeAlias = Callable[[str], None]

MCP_FILE = ".mcp.json"
MAX_SHOWN = 256 * 1024
"""The most bytes that a user is asked to trust: more cannot be judged, and to show it takes long."""

MAX_LINES = 5_000
"""The most lines of it: terminals forget what scrolled away longer ago."""

MAX_PROBLEMS = 20
"""How many files that are left out are named; of more, only the number is told."""

_HOOKS = ", whose hooks run code of the project that is not judged, in the sandbox of bash"
_HOW = "To see and trust it, run `steersman` without -p in this folder, on a terminal."
_AGAIN = "You are asked again at the next start."


async def load_project_settings(workspace: Path, *, ask: AskTrust | None, notify: Notify) -> Settings:
    """Loads the project's settings if the user trusts them; otherwise returns empty ones and reports it."""
    path = find_nearest(workspace, PROJECT_FILE)
    content = None if path is None else read_settings_bytes(path, project=True)
    if path is None or content is None:
        return Settings()
    parse = partial(parse_settings, content, path, project=True)
    is_trusted = await trust_content(path, content, ask=ask, notify=notify, check=parse, about=_describe_hooks(parse))
    return parse() if is_trusted else Settings()


def _describe_hooks(parse: Callable[[], Settings]) -> str:
    try:
        return _HOOKS if parse().hooks else ""
    except UserError:
        return ""  # told after a yes; such settings do not count


async def trust_content(
    path: Path,
    content: bytes,
    *,
    ask: AskTrust | None,
    notify: Notify,
    check: Callable[[], object] | None = None,
    about: str = "",
) -> bool:
    """Whether the user trusts a file or folder of the project with this content; asks about what is new.

    `check` raises for a content that is wrong, and is not trusted even after a yes. `about` is added to the question.
    """
    try:
        if Trust().allows(path, content):
            return True
    except McpError as error:
        notify(f"{_quote_path(path)} is ignored: {sanitize_line(str(error))}")
        return False
    if too_much := _explain_size(len(content), content.count(b"\n") + 1):
        notify(f"{_quote_path(path)} is ignored: {too_much}")
        return False
    if not await _ask_user(path, _decode_exactly(content), ask, about):
        notify(f"{_quote_path(path)} is not trusted, so it is ignored. {_tell_how(ask)}")
        return False
    if check is not None:
        check()
    try:
        Trust().add(path, hash_content(content))
    except McpError as error:
        notify(f"{_quote_path(path)} is trusted for this run only: {sanitize_line(str(error))}")
    return True


async def load_project_servers(
    workspace: Path, *, variables: tuple[str, ...], pins: Path, ask: AskTrust | None, notify: Notify
) -> McpServers | None:
    """Loads the project's MCP servers if the user trusts their file; otherwise returns `None` and reports it."""
    path = find_nearest(workspace, MCP_FILE)
    if path is None:
        return None
    try:
        # In a program with several sessions, tools of another one may have written what a server runs.
        return _load_servers(path, variables, pins, notify, after_changes=ask is not None)
    except UntrustedFile as error:
        found = error
    except McpError as error:
        notify(f"{_quote_path(path)} is ignored: {sanitize_line(str(error))}")
        return None
    if too_much := _explain_size(sum(map(len, found.starts)), len(found.starts)):
        notify(f"{_quote_path(path)} is ignored: {too_much}")
        return None
    if not await _ask_user(path, "\n".join(escape_invisible(start) for start in found.starts), ask):
        notify(f"{_quote_path(path)} is not trusted, so its MCP servers are not started. {_tell_how(ask)}")
        return None
    try:
        Trust().add(path, found.sha256)
        return _load_servers(path, variables, pins, notify)
    except McpError as error:
        notify(f"{_quote_path(path)} is ignored: {sanitize_line(str(error))}")
        return None


def load_named_servers(path: Path, *, variables: tuple[str, ...], pins: Path, notify: Notify) -> McpServers:
    """Loads the MCP servers of a file that the user named; raises `UserError` if it is malformed."""
    try:
        return _load_servers(path, variables, pins, notify, trusted=True)
    except McpError as error:
        raise UserError(str(error), code=2) from error


def find_nearest(workspace: Path, name: str) -> Path | None:
    """Finds a file in a folder or in its parents, up to the root of the repository."""
    found = (folder / name for folder in find_project_folders(workspace))
    return next((path for path in found if os.path.lexists(path)), None)


def notify_of_problems(problems: Sequence[str], notify: Notify, where: str) -> None:
    """Reports the first problems with files, and how many more there are."""
    for problem in problems[:MAX_PROBLEMS]:
        notify(problem)
    if len(problems) > MAX_PROBLEMS:
        notify(f"{sanitize_line(where)}: {len(problems) - MAX_PROBLEMS:,} more are left out for such reasons.")


def _load_servers(
    path: Path,
    variables: tuple[str, ...],
    pins: Path,
    notify: Notify,
    *,
    trusted: bool = False,
    after_changes: bool = True,
) -> McpServers:
    def report(problem: Problem) -> None:
        notify(sanitize_line(str(problem)))

    return McpServers.from_file(
        path,
        trusted=trusted,
        expand=variables,
        pins=pins,
        required=False,
        on_problem=report,
        after_changes=after_changes,
    )


async def _ask_user(path: Path, content: str, ask: AskTrust | None, about: str = "") -> bool:
    """Shows the content and asks the user to trust it; `False` if there is no terminal to ask on."""
    return ask is not None and await ask(f"Trust {_quote_path(path)}{about}?", content)


def _explain_size(size: int, lines: int) -> str:
    """Says that this is more than a user can look at; empty if it is not."""
    for count, what, most in ((size, "bytes", MAX_SHOWN), (lines, "lines", MAX_LINES)):
        if count > most:
            return f"there is too much to look at before you trust it ({count:,} {what}; at most {most:,})."
    return ""


def _tell_how(ask: AskTrust | None) -> str:
    """Says how to trust a file later; a user who has just seen it and said no knows what it is about."""
    return _HOW if ask is None else _AGAIN


def _decode_exactly(content: bytes) -> str:
    return escape_invisible(content.decode("utf-8", "backslashreplace"))


def _quote_path(path: Path) -> str:
    return sanitize_line(str(path))
