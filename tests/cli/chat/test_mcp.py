"""`/mcp`: servers with their tools and errors, restarted and trusted from the chat; nothing they say steers a terminal.

Failures.md L12, L15.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.chat.kit import READY, chatting
from tests.cli.chat.test_injection import FORMS, strange
from tests.cli.command import Place

from steersman.cli.chat.layout import MARK
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time

SMALL = Path(__file__).parents[2] / "tools" / "mcp" / "small_server.py"


def describe(*arguments: str, **env: str) -> dict[str, Any]:
    """A server of `.mcp.json`."""
    return {"command": sys.executable, "args": ["-E", "-S", str(SMALL), *arguments], "env": env}


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
        terminal.enter("/mcp")
        terminal.wait_for(lambda at: "good  running · 1 tool" in at.everything)
        terminal.wait_for(lambda at: "  echo" in at.everything)
        terminal.wait_for("broken  not running: ")
        terminal.wait_for(lambda at: at.everything.count(f"name{half - 1}") == 2)
        terminal.wait_for(lambda at: "project/.mcp.json is not trusted: /mcp trust" in " ".join(at.shown.split()))
        terminal.enter("/tools")
        terminal.wait_for("mcp:good:echo")
        terminal.enter("/mcp restrat good")
        terminal.wait_for("Did you mean 'restart'?")
        terminal.enter("/mcp restart broken")
        terminal.wait_for(lambda at: "cannot be used" in " ".join(at.shown.split()))
        terminal.resize(80, 24)
        list_tools(f"It is evil: {everything}")
        terminal.enter("/mcp restart good")
        terminal.wait_for("good is running again, with 0 tools.")
        terminal.enter("/mcp trust good")
        terminal.wait_for("\n?")
        terminal.type("n")
        terminal.wait_for("\n? n")
        terminal.press("enter")
        terminal.wait_for(lambda at: at.cursor_line.startswith(MARK.strip()))  # the status line may be old
        terminal.enter("/mcp trust good")
        terminal.wait_for("\n?")
        terminal.type("y")
        terminal.wait_for("\n? y")
        terminal.press("enter")
        terminal.wait_for("mcp:good:echo is offered from the next run on.")
        terminal.resize(40, 15)
        terminal.enter("/mcp trust")
        terminal.wait_for("\n?")
        terminal.type("y")
        terminal.wait_for("\n? y")
        terminal.press("enter")
        terminal.wait_for(lambda at: "theirs  running · 18 tools" in at.everything)
        terminal.enter("/mcp trust")
        terminal.wait_for(".mcp.json is trusted, and its servers")
        terminal.enter("Say it.")
        terminal.wait_for(lambda at: len(server.requests) == 1)
        raw = bytes(terminal.raw)
    assert strange(raw) == []
    offered = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert [name.rpartition("_")[0] for name in offered if "good" in name] == ["mcp_good_echo"]
    assert sum("theirs" in name for name in offered) == 18
