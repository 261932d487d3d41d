"""Nothing that a model, a tool, a file name, an MCP server or a paste says reaches the terminal as anything but text.

Failures.md L15, L23.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.cli.chat.kit import READY, chatting
from tests.cli.command import Place

from steersman.testing import answer, call
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time

ESC = "\x1b"
FORMS = [
    f"{ESC}[2J", f"{ESC}[3J", f"{ESC}[H", f"{ESC}[5;5H", f"{ESC}[1;31m", f"{ESC}[8m", f"{ESC}[?1049h", f"{ESC}[?47h",
    f"{ESC}[?25l", f"{ESC}[?1000h", f"{ESC}[?1003h", f"{ESC}[?1006h", f"{ESC}[?2026h", f"{ESC}[6n", f"{ESC}[5n",
    f"{ESC}[c", f"{ESC}[>c", f"{ESC}[21t", f"{ESC}[18t", f"{ESC}[8;1;1t", f"{ESC}[4i", f"{ESC}[5i", f"{ESC}[r",
    f"{ESC}[2;3r", f"{ESC}[4h", f"{ESC}[20h", f"{ESC}[?5h", f"{ESC}[9A", f"{ESC}[99D", f"{ESC}[9L", f"{ESC}[9M",
    f"{ESC}[9P", f"{ESC}[9X", f"{ESC}[9S", f"{ESC}[9T", f"{ESC}[200~", f"{ESC}[201~", f"{ESC}[u", f"{ESC}[?1u",
    f"{ESC}]0;owned\x07", f"{ESC}]2;owned{ESC}\\", f"{ESC}]8;;https://evil.example{ESC}\\click{ESC}]8;;{ESC}\\",
    f"{ESC}]52;c;ZXZpbA==\x07", f"{ESC}]4;1;rgb:00/00/00\x07", f"{ESC}]10;?\x07", f"{ESC}]1337;File=x:eA==\x07",
    f"{ESC}]777;notify;a;b\x07", f"{ESC}]9;evil\x07", f"{ESC}]133;A\x07", f"{ESC}P$q q{ESC}\\", f"{ESC}P+q436f{ESC}\\",
    f"{ESC}_Gi=1;AAAA{ESC}\\", f"{ESC}^private{ESC}\\", f"{ESC}Xstring{ESC}\\", f"{ESC}c", f"{ESC}7", f"{ESC}8",
    f"{ESC}#8", f"{ESC}=", f"{ESC}>", f"{ESC}(0", f"{ESC})B", f"{ESC}%G", f"{ESC}N", f"{ESC}M", f"{ESC}D", f"{ESC}E",
    "\x9b2J", "\x9d0;owned\x9c", "\x90q\x9c", "\x84", "\x85", "\x8d", "\x98x\x9c", "\x9e x\x9c", "\x9f x\x9c",
    "\x07", "\x08\x08\x08", "\x0b", "\x0c", "\x0e", "\x0f", "\x05", "\x11", "\x13", "\x18", "\x1a", "\x7f", "\x00",
    "\r overwritten", "\u202e desrever", "\u2066", "\u2028", "\u2029", "\u200f", f"{ESC}{ESC}[2K", f"{ESC}\n[2K",
]  # fmt: skip

OURS = re.compile(
    rb"\x1b\[[0-9;]*m"  # letters in a style
    rb"|\x1b\[\d*[ABCDK]|\x1b\[0?J"  # a step of the cursor; the rest of a line, or of the window, erased
    rb"|\x1b\[\?(?:7|12|25|1|2004)[hl]"  # wrapping, the cursor, its keys, bracketed paste
    rb"|\x1b\[\d q"  # the form of the cursor
)


def strange(raw: bytes) -> list[bytes]:
    """Everything in the output that steers a terminal and is not what the chat sends itself."""
    rest = OURS.sub(b"", raw).decode(errors="replace")
    return re.findall(rb"[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae\x8f]", rest.encode())


def test_no_form_of_injection_reaches_the_terminal(place: Place, server: OpenAIChatServer) -> None:
    assert len(FORMS) >= 40
    everything = " ".join(f"form{number}:{form}" for number, form in enumerate(FORMS))
    project = place.project
    (project / "evil.txt").write_bytes(everything.encode())
    (project / "page.txt").write_text(everything.replace("\0", ""), encoding="utf-8")
    for number, form in enumerate(FORMS):
        if "/" not in form and "\x00" not in form:
            (project / f"name{number}{form}").touch()
    tools = place.home / "tools.json"
    tools.write_text(
        json.dumps([{"name": "echo", "description": f"Look: {everything}", "inputSchema": {"type": "object"}}])
    )
    small = Path(__file__).parents[2] / "tools" / "mcp" / "small_server.py"
    config = place.home / "mcp.json"
    server_of = {"command": sys.executable, "args": ["-E", "-S", str(small)], "env": {"TOOLS": str(tools)}}
    config.write_text(json.dumps({"mcpServers": {"evil": server_of}}))
    allowed = "bash(cat evil.txt)"
    server.say(
        answer(f"Text: {everything}", call("bash", command="cat evil.txt"), call("list", path=".")),
        answer(call("write", path=f"new{FORMS[0]}", content=everything)),
        answer(call("edit", path="page.txt", edits=[{"old": "form0:", "new": f"{FORMS[1]}\n"}])),
        answer(call("bash", command=f"echo {everything.replace(chr(0), '')}")),
        f"# {everything}\n\n```{FORMS[0]}\n{everything}\n```\n\n[{everything}](https://x.example)",
    )
    arguments = ["--mcp-config", str(config), "--allowed-tools", allowed, "--verbose"]
    with chatting(place, server, *arguments, columns=100, rows=60) as terminal:
        terminal.enter("/tools")
        terminal.wait_for("form0:")
        # Terminals leave the ends of a paste out of what is pasted.
        terminal.paste(f"Begin {everything}".replace("\x1b[200~", "").replace("\x1b[201~", ""))
        terminal.wait_for("form96:")
        terminal.press("enter")
        for number in (1, 2):
            terminal.wait_for("\n?")
            terminal.type("y")
            terminal.wait_for("\n? y")
            terminal.press("enter")
            terminal.wait_for(lambda at, number=number: at.everything.count("You said yes.") == number)
        terminal.wait_for("\n?")
        terminal.paste(f"no {FORMS[2]} instead")
        terminal.wait_for("instead")
        terminal.press("enter")
        terminal.wait_for(lambda at: len(server.requests) == 5 and READY in at.shown)
        terminal.press("ctrl+o", "ctrl+o")
        terminal.enter("/tree")
        terminal.wait_for("●")
        terminal.type("/branch \u202e\x9b2J")
        terminal.wait_for("\\u{202e}\\u{9b}2J")
        terminal.press("enter")
        terminal.wait_for("is not an entry")
        terminal.type("Read @")
        terminal.wait_for("evil.txt")
        terminal.press("ctrl+c", "ctrl+d")
        terminal.ended()
        raw = bytes(terminal.raw)
    assert strange(raw) == []
    # Those that look like what the chat sends itself must not be there either, as they were written.
    alike = [form for form in FORMS if OURS.fullmatch(form.encode())]
    assert [form for form in alike if b":" + form.encode() in raw] == []
    assert b"form40:" in raw
