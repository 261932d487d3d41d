"""Connections after a pause without a check: one that the server closed meanwhile is not used again.

A process that was suspended wakes up before its event loop has heard of anything. Here the loop is held up in the same
way, from the close of the connection to the next request, by waiting for the server's thread.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import MODELS, Text, spoken
from tests.rows import each_row

from steersman.provider.http.client import aclose_http
from steersman.provider.models.registry import find_stream_fn
from steersman.provider.streaming.normalize import stream_events
from steersman.types.messages import user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done

pytestmark = pytest.mark.real_time

SHORT, LONG = "Hi.", "x" * 1_500_000
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


class Parting:
    """A server that answers each request on a connection it keeps, until it is told to close what it keeps."""

    def __init__(self, answer: bytes, *, whole: bool) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        body = f"{len(answer):x}\r\n".encode() + answer + b"\r\n0\r\n\r\n"
        length = f"content-length: {len(answer)}\r\n\r\n".encode()
        self._answer = HEAD + (length + answer if whole else b"transfer-encoding: chunked\r\n\r\n" + body)
        self.requests: list[int] = []
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._accept, name="parting", daemon=True).start()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return  # it was closed
            number += 1
            self._kept.append(peer)
            threading.Thread(target=self._serve, args=(peer, number), name="parting", daemon=True).start()

    def _serve(self, peer: socket.socket, number: int) -> None:
        try:
            with peer.makefile("rb") as read:
                while line := read.readline():
                    length = 0
                    while line not in (b"\r\n", b""):
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                        line = read.readline()
                    read.read(length)
                    self.requests.append(number)
                    peer.sendall(self._answer)
        except OSError:
            pass  # it was closed while it waited for the next request

    def part(self) -> None:
        """Close what is kept, while the caller, and with it the client's event loop, waits."""
        kept, self._kept = self._kept, []
        for peer in kept:
            peer.shutdown(socket.SHUT_RDWR)
            peer.close()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.part()


@contextmanager
def parting(name: str, *, whole: bool = False) -> Generator[Parting]:
    server = Parting(spoken(name, Text("Fine."), end="stop"), whole=whole)
    try:
        yield server
    finally:
        server.close()


async def ask(model: Model, prompt: str) -> Any:
    request = Request("", [user_message(prompt)], [])
    events = [event async for event in stream_events(find_stream_fn(model), model, request, StreamOptions())]
    return events[-1]


@each_row("whole", [True, False])
@each_row("prompt", [SHORT, LONG], ids=["short", "long"])
@each_row("name", SERVERS)
async def test_a_connection_that_was_closed_during_a_pause_is_not_asked(name: str, prompt: str, whole: bool) -> None:
    """failures.md E14: the request goes out once, on a connection that works; nothing is asked twice for it."""
    with parting(name, whole=whole) as server:
        model = Model(
            SERVERS[name].provider,
            MODELS.get(name, "test-model"),
            base_url=f"http://127.0.0.1:{server.port}/v1",
            api_key="test-key",
        )
        assert isinstance(await ask(model, prompt), Done)
        assert isinstance(await ask(model, prompt), Done)
        assert server.requests == [1, 1]
        server.part()
        last = await ask(model, prompt)
        assert isinstance(last, Done), last
        assert server.requests == [1, 1, 2]
        await aclose_http()
