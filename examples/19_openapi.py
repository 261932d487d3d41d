"""Turn an OpenAPI description into tools, one for each operation. Here an API on loopback stands for a real one."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import openapi_tools

DEPTH = {"name": "depth", "in": "query", "schema": {"type": "number", "minimum": 0}}
HARBOUR = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
SPEC: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {
        "/harbours": {"get": {"operationId": "list_harbours", "summary": "Find harbours.", "parameters": [DEPTH]}},
        "/harbours/{name}": {"get": {"operationId": "show_harbour", "parameters": [HARBOUR]}},
    },
}


class Api(BaseHTTPRequestHandler):
    """An API that says what it was asked, and knows who asked."""

    def do_GET(self) -> None:
        key = self.headers["Authorization"]
        self.send_response(200 if key == "Bearer harbour-key-1" else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"asked": self.path, "by": key}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    asked = [
        call("list_harbours", depth="2.5"),
        call("show_harbour", name="Port A/B?"),
        call("show_harbour", name=".."),
    ]
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        tools = openapi_tools(SPEC, url, headers={"Authorization": "Bearer harbour-key-1"}, reads=["list_harbours"])
        result = Agent(ScriptedModel(answer(*asked), "Port A is deep enough.").model, tools=tools).run_sync("Where to?")
        server.shutdown()
    for tool in tools:
        print(f"{tool.name} ({tool.access}): {tool.description.splitlines()[-1]}")
    for message in result.messages[2:]:
        print(f"{message.role}: {message.text}")


if __name__ == "__main__":
    main()
