"""The mock server of the comparison: `python -m bench.peers.server` prints its port. Answers are bytes made once.

It keeps no state: the number of tool results in a request says which turn it is. `GET /errors` gives what was wrong
with requests since the last time.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import lru_cache

from bench.peers.answers import PROTOCOLS, Protocol, check_request, encode, plan_answer
from bench.peers.jobs import parse_script

_MODEL = re.compile(rb"bench((?:-[a-z]\d+)+)")
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\nx-request-id: req_bench\r\nrequest-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
_errors: list[str] = []


@lru_cache(maxsize=65536)
def render_answer(protocol: Protocol, model: bytes, turn: int) -> tuple[dict[str, int], list[bytes], bytes]:
    """The script, the answer as one write for each event, and as one write in all."""
    script = parse_script(model.decode())
    events = protocol.write(*plan_answer(script, turn), turn)
    chunks = [f"{len(event):x}\r\n".encode() + event + b"\r\n" for event in events]
    chunks[0] = _HEAD + chunks[0]
    chunks[-1] += b"0\r\n\r\n"
    return script, chunks, b"".join(chunks)


def _write_json(status: str, value: object) -> bytes:
    body = encode(value)
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Connection(asyncio.Protocol):
    """Reads one request after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while (end := buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(buffer, 0, end + 2)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(buffer) < whole:
                return
            path, body = bytes(buffer[:end]).split(b" ", 2)[1], bytes(buffer[end + 4 : whole])
            del buffer[:whole]
            self._answer(path, body)

    def _answer(self, path: bytes, body: bytes) -> None:
        transport = self._transport
        assert transport is not None
        if path == b"/errors":
            transport.write(_write_json("200 OK", _errors))
            _errors.clear()
            return
        known = next((known for end, known in PROTOCOLS.items() if path.partition(b"?")[0].endswith(end)), None)
        model = _MODEL.search(path) or _MODEL.search(body)
        if known is None or model is None:
            _errors.append(f"no such path or model: {path!r}")
            transport.write(_write_json("404 Not Found", {"error": {"message": _errors[-1]}}))
            return
        calls = re.search(rb"-k(\d+)", model[1])
        turn = body.count(known.mark) // max(1, int(calls[1]) if calls else 1)
        script, chunks, burst = render_answer(known, model[1], turn)
        if script["c"] and (problem := _find_problem(known, body, script)) is not None:
            _errors.append(problem)
            transport.write(_write_json("400 Bad Request", {"error": {"message": problem}}))
        elif script["p"]:
            self._write_paced(chunks, 0, script["p"] / 1000)
        else:
            transport.write(burst)

    def _write_paced(self, chunks: list[bytes], at: int, delay: float) -> None:
        if self._transport is not None:
            self._transport.write(chunks[at])
            if at + 1 < len(chunks):
                asyncio.get_running_loop().call_later(delay, self._write_paced, chunks, at + 1, delay)


def _find_problem(protocol: Protocol, body: bytes, script: dict[str, int]) -> str | None:
    try:
        check_request(protocol, json.loads(body), script)
    except Exception as error:  # noqa: BLE001  # whatever is wrong with a request is told to its client
        return f"{type(error).__name__}: {error}"
    return None


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
