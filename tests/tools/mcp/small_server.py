"""An MCP server for what well-behaved ones never do. Standard library alone, so that it starts at once.

Flags: `--silent` answers nothing, `--stubborn` will not go, `--deaf` does not read, `--exit` leaves at once,
`--closed` refuses to begin,
`--pages` lists without end, `--slow` takes a moment for each page, `--nagging` says at each listing that the list has
changed.
`TOOLS` names a file with the tools to list, `LOG` one that gets a line for each notification and each start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
SCHEMA: dict[str, Any] = {"type": "object"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NAMES = [
    "echo",
    "env",
    "big",
    "endless",
    "stray",
    "hang",
    "exit",
    "grow",
    "shrink",
    "change",
    "child",
    "nag",
    "blocks",
    "many",
    "lists",
    "hurry",
    "raw",
    "refuse",
]
tools: list[Any] = [{"name": name, "description": f"The tool {name}.", "inputSchema": SCHEMA} for name in NAMES]


class Refusal(Exception):
    """An error that is the answer to a request."""


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def changed() -> None:
    send({"method": "notifications/tools/list_changed"})


def note(text: str) -> None:
    if "LOG" in os.environ:
        with Path(os.environ["LOG"]).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def call(name: str, arguments: dict[str, Any], token: Any) -> dict[str, Any] | None:  # noqa: C901  # one branch a tool
    match name:
        case "env":
            return said(json.dumps(dict(os.environ)))
        case "big":
            return said("x" * arguments["size"])
        case "endless":
            for _ in range(arguments["mib"]):
                sys.stdout.write("x" * MIB)
            sys.stdout.flush()
            return None
        case "stray":
            for number in range(arguments["lines"]):
                sys.stdout.write(f"[info] line {number}\n{{not json\n\n")
            return said("done")
        case "hang":
            note("hanging")
            if token is not None:
                params = {"progressToken": token, "progress": 1, "total": 4, "message": "a\x1b[2Jquarter"}
                send({"method": "notifications/progress", "params": params})
            return None
        case "exit":
            sys.stderr.write("I have had enough\n")
            sys.stderr.flush()
            os._exit(arguments.get("status", 0))
        case "grow":
            tools.append({"name": "extra", "description": "New.", "inputSchema": SCHEMA})
        case "shrink":
            tools[:] = [tool for tool in tools if tool["name"] != arguments["tool"]]
        case "change":
            tools[0] = {**tools[0], "description": arguments["description"]}
        case "child":
            # It holds our output open and stays in our group when we are gone.
            subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
            os._exit(0)
        case "nag":
            for _ in range(arguments["times"]):
                changed()
            return said("done")
        case "many":
            return {"content": [{"type": "text", "text": str(number)} for number in range(arguments["blocks"])]}
        case "lists":
            return {"content": [], "structuredContent": {"lists": [[]] * arguments["count"]}}
        case "hurry":
            for number in range(arguments["steps"]):
                send({"method": "notifications/progress", "params": {"progressToken": token, "progress": number + 1}})
            return said("done")
        case "refuse":
            raise Refusal(arguments["code"])
        case "blocks":
            return {"content": arguments["blocks"], **arguments.get("rest", {})}
        case _:
            return said(str(arguments.get("text", "")))
    changed()
    return said("done")


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def answer(message: dict[str, Any]) -> None:
    method: str = message["method"]
    params: dict[str, Any] = message.get("params") or {}
    if "id" not in message:
        note(f"{method} {json.dumps(params)}")
        return
    result: dict[str, Any] | None
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    elif method == "tools/list":
        note("listed")
        if "--nagging" in sys.argv:
            changed()
        page = int(params.get("cursor", 0))
        result = {"tools": tools}
        if "--pages" in sys.argv:
            signal.sigtimedwait([], 0.2 if "--slow" in sys.argv else 0.0)
            result = {"tools": [{"name": f"t{page}", "inputSchema": SCHEMA}], "nextCursor": str(page + 1)}
    elif method == "tools/call" and params["name"] == "raw":
        line: str = params["arguments"]["line"].replace("ID", str(message["id"]))
        sys.stdout.buffer.write(line.replace("DEEP", "[" * 5_000 + "]" * 5_000).encode("latin-1") + b"\n")
        sys.stdout.buffer.flush()
        return
    elif method == "tools/call":
        try:
            result = call(params["name"], params.get("arguments") or {}, params.get("_meta", {}).get("progressToken"))
        except Refusal as refusal:
            send({"id": message["id"], "error": {"code": refusal.args[0], "message": "not\x1b[2J today"}})
            return
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": f"no method {method}"}})
        return
    if result is not None:
        send({"id": message["id"], "result": result})


def main() -> None:
    note(f"started {os.getpid()}")
    if "--exit" in sys.argv:
        sys.stderr.write(f"no licence for {os.environ.get('TOKEN', 'anybody')}\n")
        sys.exit(3)
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "TOOLS" in os.environ:
        tools[:] = json.loads(Path(os.environ["TOOLS"]).read_text(encoding="utf-8"))
    if "--deaf" in sys.argv:
        signal.pause()
    for line in sys.stdin:
        if "--closed" in sys.argv:
            error = {"code": -32000, "message": f"no licence for {os.environ['TOKEN']}"}
            send({"id": json.loads(line)["id"], "error": error})
        elif "--silent" not in sys.argv:
            answer(json.loads(line))
    while "--stubborn" in sys.argv:
        signal.pause()


if __name__ == "__main__":
    main()
