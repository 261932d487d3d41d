"""A model server in a process of its own, which costs as little as it can: OpenAI Chat Completions over HTTP/1.1.

python -m bench.mock      prints its port, and serves until its standard input is closed

The model's name says what it does: `text:9` answers in nine deltas, `paced:9` with a rest before each, `tools:9` asks
for an addition in each of nine turns, `work:9` too, with forty words before each, as models do, and `calls:9` for nine
at once. It adds up itself, and says "Wrong." to a wrong result.
"""

from __future__ import annotations

import asyncio
import sys
from functools import lru_cache
from itertools import pairwise
from subprocess import PIPE, Popen
from typing import Any, Self

import msgspec

REST = 0.0003
ANSWER = "It is 42, whoever asks."
WORDS = 40
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
    b"x-request-id: req_1\r\n\r\n"
)
END = b"0\r\n\r\n"


class _Message(msgspec.Struct):
    role: str
    content: Any = None


class _Request(msgspec.Struct):
    model: str
    messages: list[_Message]


_requests = msgspec.json.Decoder(_Request)


def framed(data: bytes) -> bytes:
    """An event in a chunk of its own, as servers flush them."""
    event = b"data: " + data + b"\n\n"
    return f"{len(event):x}\r\n".encode() + event + b"\r\n"


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-AbCdEfGhIjKl", "object": "chat.completion.chunk", "created": 1_700_000_000}
    return framed(msgspec.json.encode({**head, "model": "bench", "system_fingerprint": "fp_1", "choices": [choice]}))


_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
_TAIL = [
    framed(msgspec.json.encode({"id": "chatcmpl-AbCdEfGhIjKl", "choices": [], "usage": _USAGE})),
    framed(b"[DONE]"),
]


@lru_cache(maxsize=4096)
def text_events(words: str, deltas: int) -> tuple[bytes, ...]:
    """An answer of one text in so many deltas."""
    cuts = [len(words) * at // deltas for at in range(deltas + 1)]
    parts = [_chunk({"content": words[start:end]}) for start, end in pairwise(cuts)]
    return (_chunk({"role": "assistant", "content": ""}), *parts, _chunk({}, "stop"), *_TAIL)


@lru_cache(maxsize=4096)
def call_events(turn: int, calls: int, words: int = 0) -> tuple[bytes, ...]:
    """An answer that says so many words and asks for so many additions, each in three pieces."""
    events = [_chunk({"role": "assistant", "content": None}), *[_chunk({"content": "word "})] * words]
    for index in range(calls):
        arguments = f'{{"a": {turn}, "b": {index}}}'
        first = {"name": "add", "arguments": ""}
        events.append(_call({"index": index, "id": f"call_{turn}_{index}", "type": "function", "function": first}))
        events += [_call({"index": index, "function": {"arguments": part}}) for part in (arguments[:6], arguments[6:])]
    return (*events, _chunk({}, "tool_calls"), *_TAIL)


def _call(entry: dict[str, Any]) -> bytes:
    return _chunk({"tool_calls": [entry]})


def answer(request: _Request) -> tuple[bytes, ...]:
    """The events of the answer to a request."""
    kind, _, number = request.model.partition(":")
    count = int(number)
    if kind in ("text", "paced"):
        return text_events("word " * count, count)
    turn = sum(message.role == "assistant" for message in request.messages)
    last = request.messages[-1]
    if last.role == "tool":
        added = count - 1 if kind == "calls" else turn - 1
        if last.content != str(added):
            return text_events(f"Wrong: {last.content}", 1)
    if kind == "tools" and turn < count:
        return call_events(turn, 1)
    if kind == "work" and turn < count:
        return call_events(turn, 1, WORDS)
    if kind == "calls" and turn == 0:
        return call_events(0, count)
    return text_events(ANSWER, 4)


class _Connection(asyncio.Protocol):
    """Reads one request after the other, and writes each answer in one go."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._pacing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        request = _requests.decode(rest[:length])
        transport = self._transport
        assert transport is not None
        if request.model.startswith("paced"):
            self._pacing = asyncio.ensure_future(_paced(transport, answer(request)))
        else:
            transport.write(b"".join((HEAD, *answer(request), END)))


async def _paced(transport: asyncio.Transport, events: tuple[bytes, ...]) -> None:
    transport.write(HEAD)
    for event in events:
        await asyncio.sleep(REST)
        transport.write(event)
    transport.write(END)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


class Mock:
    """The server, started and stopped from here."""

    def __init__(self) -> None:
        self._process = Popen([sys.executable, "-m", "bench.mock"], stdin=PIPE, stdout=PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=10)


if __name__ == "__main__":
    asyncio.run(_serve())
