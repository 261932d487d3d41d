"""`steersman mcp` as a real process: one tool, kept sessions, and nothing but messages on stdout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.cli.command import make_place, run_command, spawn


def test_a_call_is_answered_and_its_session_is_kept(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    settings = place.home / "config/steersman/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[[hooks]]\nat = 'end'\ncommand = 'cat > {tmp_path}/told'\nsandbox = false\n")
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    requests = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/list"},
        {"id": 2, "method": "tools/call", "params": {"name": "run", "arguments": {"prompt": "cuckoo"}}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **request}) for request in requests]
    with spawn(["mcp", "--model", "scripted:echo"], place=place, stdin=subprocess.PIPE) as command:
        command.send("".join(f"{line}\n" for line in lines).encode())
        command.wait_for("cuckoo")
        command.hang_up()
        done = command.wait()
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.code == 0, done.errors
    assert [message["id"] for message in messages] == [0, 1, 2]
    assert "cuckoo" in messages[2]["result"]["content"][0]["text"]
    assert "cuckoo" in run_command(["sessions", "list"], place=place).text
    assert json.loads((tmp_path / "told").read_text())["end_reason"] == "done"
