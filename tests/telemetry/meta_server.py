"""An MCP server whose one tool answers with the `_meta` of its call. Standard library alone: it starts at once."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {"name": "meta", "description": "Answers with its _meta.", "inputSchema": {"type": "object"}}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a request; `None` for a notification."""
    if "id" not in message:
        return None
    params: dict[str, Any] = message.get("params") or {}
    result: dict[str, Any] | None = None
    match message["method"]:
        case "initialize":
            info = {"name": "meta", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps(params.get("_meta") or {})}]}
        case _:
            error = {"code": -32601, "message": "no such method"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


if __name__ == "__main__":
    for line in sys.stdin:
        found = answer(json.loads(line))
        if found is not None:
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
