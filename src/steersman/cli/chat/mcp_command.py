"""`/mcp`: shows the MCP servers with their tools and errors, restarts one, and asks to trust what is not trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.cli.exits import UserError, suggest_nearest
from steersman.cli.setup.mcp_files import McpFiles
from steersman.cli.terminal.numbers import format_count
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.policy.preview import write_json
from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.server import ServerState
from steersman.tools.mcp.servers import McpServers
from steersman.types.visible import escape_invisible

if TYPE_CHECKING:
    from steersman.cli.chat.commands import Chat

MAX_TOOLS = 60
"""The most tools of a server that are listed by name."""

_MAX_NAME, _MAX_REASON = 80, 400


async def run_mcp_command(chat: Chat, rest: str) -> None:
    """Shows the servers; `restart NAME` and `trust [NAME]` change what they do."""
    files = chat.mcp
    if files is None:
        chat.say("notice", "MCP servers are off: this agent has no tools.")
        return
    word, _, name = rest.partition(" ")
    match word:
        case "":
            chat.say("notice", "\n".join(render_servers(files)))
        case "restart":
            await _restart(chat, files, name.strip())
        case "trust":
            await _trust(chat, files, name.strip())
        case _:
            near = suggest_nearest(word, ("restart", "trust"))
            chat.say("error", f"/mcp is followed by restart NAME or trust [NAME], got {_escape(word)!r}.{near}")


def render_servers(files: McpFiles) -> list[str]:
    """Renders the servers, one below another; all that servers and files say is escaped."""
    lines: list[str] = []
    for servers in files.servers:
        for state in servers.states:
            lines += _render_state(state)
            lines += [
                f"  {_escape(problem.tool)}: {_escape(problem.text, _MAX_REASON)}"
                for problem in servers.problems
                if problem.server == state.name and problem.tool is not None and problem.tool not in state.held
            ]
    if (path := files.untrusted) is not None:
        lines.append(f"{_escape(str(path), _MAX_REASON)} is not trusted: /mcp trust shows what it starts.")
    return lines or ["There are no MCP servers. A file .mcp.json in the project, or --mcp-config FILE, names some."]


def _render_state(state: ServerState) -> list[str]:
    running = f"running · {format_count(len(state.tools), 'tool')}"
    told = (
        running if state.running else f"not running{f': {_escape(state.reason, _MAX_REASON)}' if state.reason else ''}"
    )
    lines = [f"{_escape(state.name)}  {told}", f"  {_escape(state.target, _MAX_REASON)}"]
    if state.tools:
        more = len(state.tools) - MAX_TOOLS
        names = ", ".join(_escape(name) for name in state.tools[:MAX_TOOLS])
        lines.append(f"  {names}{f' and {more} more' if more > 0 else ''}")
    if state.held:
        names = ", ".join(_escape(name) for name in state.held[:MAX_TOOLS])
        lines.append(f"  changed, so not offered: {names}; /mcp trust {_escape(state.name)} shows the change")
    if not state.running:
        lines.append(f"  /mcp restart {_escape(state.name)} tries it again")
    return lines


async def _restart(chat: Chat, files: McpFiles, name: str) -> None:
    servers = _find_servers(files, name)
    await servers.restart(name)
    state = next(state for state in servers.states if state.name == name)
    chat.say("notice", f"{_escape(name)} is running again, with {format_count(len(state.tools), 'tool')}.")


async def _trust(chat: Chat, files: McpFiles, name: str) -> None:
    if name:
        await _accept_changes(chat, files, name)
        return
    entered = await files.trust_project(chat.confirm)
    if entered is None:
        return
    agent = chat.conversation.agent
    agent.tools = [*agent.context.tools, *([entered] if chat.files is None else chat.files.watch([entered]))]
    chat.say("notice", "\n".join(render_servers(files)))


async def _accept_changes(chat: Chat, files: McpFiles, name: str) -> None:
    """Shows each changed tool as it is now, and offers it again after a yes."""
    servers = _find_servers(files, name)
    changes = [change for change in servers.held if change.server == name]
    if not changes:
        raise UserError(f"No tool of {_escape(name)!r} has changed.")
    for change in changes:
        content = f"{change.description}\n{write_json(change.parameters)}"
        if await chat.confirm(f"Trust the tool {change.tool!r} of the MCP server {name!r} as it is now?", content):
            await servers.accept(change)
            chat.say("notice", f"{_escape(change.name)} is offered from the next run on.")


def _find_servers(files: McpFiles, name: str) -> McpServers:
    """Finds the set of servers that one belongs to."""
    names = [state.name for servers in files.servers for state in servers.states]
    for servers in files.servers:
        if name and any(state.name == name for state in servers.states):
            return servers
    listed = ", ".join(map(_escape, names)) or "none"
    raise McpError(f"No MCP server {_escape(name)!r}.{suggest_nearest(name, names)} Servers: {listed}.")


def _escape(text: str, most: int = _MAX_NAME) -> str:
    shown = sanitize_line(escape_invisible(text))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
