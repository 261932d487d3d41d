"""Google's token endpoint on loopback, and a service account that it knows."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


class TokenServer:
    """Gives the tokens in turn, the last one again and again; `refusal` is the error it gives instead."""

    def __init__(self, *tokens: str, seconds: int = 3600, refusal: str | None = None) -> None:
        self.count = 0
        server = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                status, body = server.answer(tokens, seconds, refusal)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._thread = Thread(target=self._http.serve_forever, daemon=True)

    def answer(self, tokens: tuple[str, ...], seconds: int, refusal: str | None) -> tuple[int, dict[str, Any]]:
        """Give the next token, or the refusal."""
        self.count += 1
        if refusal is not None:
            return 400, {"error": refusal, "error_description": "Account not found."}
        token = tokens[min(self.count, len(tokens)) - 1]
        return 200, {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def write_key_file(self, folder: Path, project: str = "acme") -> str:
        """Write the key file of a service account, and return its path."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        path = folder / "service-account.json"
        account = {
            "type": "service_account",
            "project_id": project,
            "private_key_id": "1",
            "private_key": pem,
            "client_email": "agent@acme.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": f"http://127.0.0.1:{self._http.server_port}/token",
        }
        path.write_text(json.dumps(account))
        return str(path)
