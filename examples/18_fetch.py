"""Let a model read the web: public addresses only, and those you opened. Here a page on loopback stands for the web."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import fetch_tool

PAGE = b"<title>Tides</title><h1>Today</h1><p>High water at <b>14:20</b>. <a href='/tomorrow'>Tomorrow</a></p>"


class Site(BaseHTTPRequestHandler):
    """A site with one page, and a link to a forbidden address."""

    def do_GET(self) -> None:
        moved = self.path == "/moved"
        self.send_response(302 if moved else 200)
        self.send_header("Location" if moved else "Content-Type", "http://[::1]/secrets" if moved else "text/html")
        self.end_headers()
        self.wfile.write(b"" if moved else PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_port}"
        urls = [f"http://{place}/tides", f"http://{place}/moved", "http://169.254.169.254/", "http://0x7f000001/"]
        script = ScriptedModel(answer(*(call("fetch", url=url) for url in urls)), "High water is at 14:20.")
        # For the public web it is fetch_tool(), or `from steersman.tools.builtin import fetch`.
        agent = Agent(script.model, tools=[fetch_tool(allow=[place])])
        result = agent.run_sync("When is high water?")
        server.shutdown()
    for message in result.messages[2:]:
        print(f"{message.role}: {message.text.replace(place, 'tides.example')}")


if __name__ == "__main__":
    main()
