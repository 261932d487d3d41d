"""Small servers on real sockets that answer with whatever bytes they are told to, and remember who asked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]


Answer: TypeAlias = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def reply(body: bytes | str = b"", status: str = "200 OK", **headers: str) -> bytes:
    """An HTTP answer; a header's name is written with underscores. `Transfer_Encoding` takes the place of a length."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    if "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + data


def page(body: bytes | str, kind: str = "text/plain; charset=utf-8", **headers: str) -> bytes:
    """A page that is there."""
    return reply(body, Content_Type=kind, **headers)


def redirect(target: str, status: str = "302 Found") -> bytes:
    """A redirect."""
    return reply(status=status, Location=target)


class Site:
    """A server whose paths have fixed answers; `other` answers for the rest. `asked` says what came.

    Of an answer that is a function, `answering` says that it began, and `left` that the client went.
    """

    def __init__(
        self,
        routes: Mapping[str, Answer] | None = None,
        *,
        other: Answer | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        everywhere: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.routes = dict(routes or {})
        self.other = reply("not here", "404 Not Found") if other is None else other
        self.asked: list[Asked] = []
        self.connections = 0
        self.answering = asyncio.Event()
        self.left = asyncio.Event()
        self._socket = _everywhere() if everywhere else _at(host, port)
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Its root, without a slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def opening(self) -> str:
        """The entry of `allow` that opens it."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8", "replace").split("\r\n")
            method, target, _ = head[0].split(" ")
            fields = (line.partition(":") for line in head[1:] if line)
            self.asked.append(Asked(method, target, {name.lower(): value.strip() for name, _, value in fields}))
            answer = self.routes.get(target, self.other)
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                self.answering.set()
                watching = asyncio.ensure_future(self._until_left(reader))
                try:
                    await answer(writer)
                finally:
                    watching.cancel()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client went, or the test is over
        finally:
            writer.close()

    async def _until_left(self, reader: asyncio.StreamReader) -> None:
        try:
            while await reader.read(1_000):
                pass
        except ConnectionError:
            pass
        self.left.set()


def _at(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    return made


def _everywhere() -> socket.socket:
    """Every address of this machine, of IPv4 and, where there is such, of IPv6, on one port."""
    if not socket.has_dualstack_ipv6():
        return _at("0.0.0.0", 0)
    made = socket.socket(socket.AF_INET6)
    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.bind(("::", 0))
    return made
