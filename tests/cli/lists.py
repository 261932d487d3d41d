"""Servers on loopback that give fixed JSON by path, as model servers do when they are asked what they have."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


def model_list(*ids: str) -> dict[str, Any]:
    """The list of models as OpenAI's API gives it."""
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "x"} for name in ids]}


@contextmanager
def listing(pages: Mapping[str, Any]) -> Generator[str]:
    """The address, without a path, of a server with these pages; bytes are sent as they are, the rest as JSON."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            body = page if isinstance(page, bytes) else msgspec.json.encode(page)
            self.send_response(404 if page is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
