"""`/mcp`: servers with their tools and errors, restarted and trusted from the chat; nothing they say steers a terminal.

Failures.md L12, L15.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.chat.kit import READY, SIZES, below, chatting
from tests.cli.chat.test_injection import FORMS, strange
from tests.cli.command import Place
from tests.cli.pty_terminal import Terminal

from steersman.cli.chat.layout import MARK
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time

SMALL = Path(__file__).parents[2] / "tools" / "mcp" / "small_server.py"


def describe(*arguments: str, **env: str) -> dict[str, Any]:
    """A server of `.mcp.json`."""
    return {"command": sys.executable, "args": ["-E", "-S", str(SMALL), *arguments], "env": env}


def _answer(terminal: Terminal, command: str, said: str) -> None:
    """Give a command, and answer its question."""
    terminal.enter(command)
    terminal.wait_for(lambda at: at.cursor_line == "?")
    terminal.type(said)
    terminal.wait_for(lambda at: at.cursor_line == f"? {said}")
    terminal.press("enter")


def test_servers_are_shown_restarted_and_trusted(place: Place, server: OpenAIChatServer) -> None:
    """A project's servers start only after the question; a changed tool is offered only after a yes (L12)."""
    everything = " ".join(f"form{number}:{form}" for number, form in enumerate(FORMS)).replace("\0", "")
    tools, config = place.home / "tools.json", place.home / "mcp.json"

    def list_tools(says: str) -> None:
        tools.write_text(json.dumps([{"name": "echo", "description": says, "inputSchema": {"type": "object"}}]))

    list_tools("It echoes.")
    # A name is the server's own word too, also where it is told that it is refused; the first 50 are told.
    half = (len(FORMS) + 1) // 2
    names = [f"name{number}{''.join(FORMS[number::half])}" for number in range(half)]
    (place.home / "evil.json").write_text(
        json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in names])
    )
    evil = describe(TOOLS=str(place.home / "evil.json"))
    broken = describe("--exit", TOKEN="\x1b[31mred")
    config.write_text(json.dumps({"mcpServers": {"good": describe(TOOLS=str(tools)), "names": evil, "broken": broken}}))
    (place.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": describe(f"--{everything}")}}))
    arguments = ["--mcp-config", str(config)]
    with chatting(place, server, *arguments, columns=120, rows=40, ready="\n?") as terminal:
        terminal.type("n\r")
        terminal.wait_for(READY)
        for number, (columns, rows) in enumerate(SIZES):
            terminal.resize(columns, rows)
            terminal.enter("/mcp")
            # The path before it may be so long that a line breaks within the name.
            untrusted = ".mcp.json is not trusted: /mcp trust shows what it starts.".replace(" ", "")
            terminal.wait_for(lambda at, untrusted=untrusted: untrusted in below(at, "\u276f /mcp\n").replace(" ", ""))
            shown = below(terminal, "\u276f /mcp\n")
            assert "good running · 1 tool " in shown
            assert " echo " in shown
            assert "broken not running: " in shown
            assert [shown.count(f"name{index}") for index in (0, half - 1)] == [1, 1]
            terminal.enter("/tools")
            terminal.wait_for("mcp:good:echo")
            terminal.enter("/mcp restrat good")
            terminal.wait_for(lambda at: "Did you mean 'restart'?" in below(at, "/mcp restrat good\n"))
            terminal.enter("/mcp restart broken")
            terminal.wait_for(lambda at: "cannot be used" in below(at, "/mcp restart broken\n"))
            list_tools(f"It is evil {number}: {everything}")
            terminal.enter("/mcp restart good")
            again = "good is running again, with 0 tools."
            terminal.wait_for(lambda at, again=again: again in below(at, "/mcp restart good\n"))
            _answer(terminal, "/mcp trust good", "y" if number else "n")
            if not number:
                terminal.wait_for(lambda at: at.cursor_line.startswith(MARK.strip()))  # the status line may be old
                _answer(terminal, "/mcp trust good", "y")
            terminal.wait_for(
                lambda at: "mcp:good:echo is offered from the next run on." in below(at, "/mcp trust good")
            )
            _answer(terminal, "/mcp trust", "y" if columns == 40 else "n")
            terminal.wait_for(lambda at: at.cursor_line.startswith(MARK.strip()))
        terminal.wait_for(lambda at: "theirs running · 18 tools" in below(at, "/mcp trust"))
        terminal.enter("/mcp trust")
        terminal.wait_for(".mcp.json is trusted, and its servers")
        terminal.enter("Say it.")
        terminal.wait_for(lambda at: len(server.requests) == 1)
        raw = bytes(terminal.raw)
    assert strange(raw) == []
    offered = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert [name.rpartition("_")[0] for name in offered if "good" in name] == ["mcp_good_echo"]
    assert sum("theirs" in name for name in offered) == 18


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_servers_of_a_project_start_after_a_yes_in_the_chat(
    place: Place, server: OpenAIChatServer, columns: int, rows: int
) -> None:
    (place.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": describe()}}))
    with chatting(place, server, columns=columns, rows=rows, ready="\n?") as terminal:
        terminal.type("n\r")
        terminal.wait_for(READY)
        _answer(terminal, "/mcp trust", "y")
        terminal.wait_for(lambda at: "theirs running · 18 tools" in below(at, "/mcp trust\n"))
        assert "│ theirs: " in below(terminal, "/mcp trust\n").partition("theirs running")[0]
        terminal.enter("Say it.")
        terminal.wait_for(lambda _: len(server.requests) == 1)
    assert sum("theirs" in tool["function"]["name"] for tool in server.requests[0]["tools"]) == 18
