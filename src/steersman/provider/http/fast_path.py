"""A POST over a connection of the pool, where the usual answer takes a short way to us.

The usual answer has the status 200 and comes in chunks: those of a network read are put together in one go. Any other
is left to the client's own reader, from its first byte.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.provider.http.chunks import ChunkDecoder
from steersman.provider.http.response import Response, receive_with_aiohttp

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientSession, ClientTimeout
    from aiohttp.connector import Connection

_USUAL = b"HTTP/1.1 200 "
_CHUNKED = b"\r\ntransfer-encoding: chunked\r\n"
_ALIVE = b"\r\nconnection: keep-alive\r\n"
# With one of these a body is not just its chunks, or nobody knows where it ends.
_UNUSUAL = re.compile(rb"\r\n(?:content-encoding|content-length|trailer|upgrade)[ \t]*:|\n[ \t]|\0")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_LONGEST_HEAD = 32 * 1024
_PAUSE = 512 * 1024
# Connections of the pool that are given up, one after the other, before the request is.
_TRIED = 100
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Route(NamedTuple):
    """The way to an address: what the pool needs to know of it, and how each request to it begins."""

    request: ClientRequest
    head: str


def build_route(url: str) -> Route | None:
    """The way to an address, or `None` where the client itself must take it, or tell what is wrong with it."""
    from aiohttp import ClientRequest, TCPConnector
    from aiohttp.client_proto import ResponseHandler
    from yarl import URL

    try:
        address = URL(url)
    except ValueError:
        return None
    if address.scheme not in ("http", "https") or not address.host:
        return None
    if not supports_fast_path(TCPConnector, ResponseHandler, ClientRequest):
        return None
    request = ClientRequest("POST", address, loop=asyncio.get_running_loop())
    return Route(request, f"POST {request.url.raw_path_qs} HTTP/1.1\r\nHost: {request.headers['Host']}\r\n")


def supports_fast_path(connector: type, reader: type, request: type) -> bool:
    """Whether these are of a version of the client that lends its connections in the way we know."""
    names = ("data_received", "read", "set_response_params", "should_close")
    try:
        signature(request).bind("POST", "", loop=None)
    except TypeError:
        return False
    return (
        "traces" in signature(getattr(connector, "connect", len)).parameters
        and "read_until_eof" in signature(getattr(reader, "set_response_params", len)).parameters
        and all(hasattr(reader, name) for name in names)
    )


async def post(
    client: ClientSession, route: Route, headers: Mapping[str, str], body: bytes, timeout: ClientTimeout
) -> Response:
    """Send a request and wait for the head of its answer; raises what the client raises."""
    head = _encode_head(route.head, headers, len(body))
    line = FastResponse(await _connect(client, route, timeout))
    try:
        return await line.send(b"".join((head, body)), route.request)
    except BaseException:
        line.close()
        raise


async def _connect(client: ClientSession, route: Route, timeout: ClientTimeout) -> Connection:
    import aiohttp

    connector = client.connector
    if connector is None:
        raise aiohttp.ClientConnectionError("Connector is closed")
    for _ in range(_TRIED):
        try:
            connection = await connector.connect(route.request, [], timeout)
        except TimeoutError:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {route.request.url}") from None
        reader = connection.protocol
        if reader is not None and reader.transport is not None and not reader.should_close:
            return connection
        # It was lost, or something came on it that nobody asked for, since its last answer.
        connection.close()
    raise aiohttp.ServerDisconnectedError


def _encode_head(head: str, headers: Mapping[str, str], length: int) -> bytes:
    if _FORBIDDEN.search("".join((*headers, *headers.values()))) is not None:
        raise ValueError("A header holds a character that ends it.")
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{head}{lines}Content-Length: {length}\r\n\r\n".encode()


class FastResponse(asyncio.Protocol):
    """One request and its answer; stands in the place of the client's own reader until the answer is read."""

    __slots__ = (
        "_call", "_chunks", "_connection", "_error", "_head", "_loop", "_parts", "_paused", "_reader", "_size",
        "_transport", "_waiter",
    )  # fmt: skip

    status = 200

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._reader: Any = connection.protocol
        self._transport: Any = connection.transport
        self._loop = asyncio.get_running_loop()
        self._head = b""
        # Until the head has come it is not known whether the answer is a usual one.
        self._chunks: ChunkDecoder | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._paused = False
        self._error: Exception | None = None
        self._call: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def send(self, data: bytes, request: ClientRequest) -> Response:
        """Send a request and wait for the head of its answer."""
        self._transport.set_protocol(self)
        self._transport.write(data)
        await self._wait_for_data()
        if self._chunks is not None:
            return self
        connection, self._connection = self._connection, None
        assert connection is not None
        return await receive_with_aiohttp(connection, request, packed="content-encoding" in self.headers)

    @property
    def headers(self) -> Mapping[str, str]:
        """What the head says, by lower-case names; of two of a name the first."""
        headers: dict[str, str] = {}
        for line in self._head.split(b"\r\n")[1:]:
            name, _, value = line.decode("utf-8", "surrogateescape").partition(":")
            headers.setdefault(name.strip().lower(), value.strip())
        return headers

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come, read or not."""
        return self._chunks is not None and self._chunks.is_complete

    def read_nowait(self) -> bytes:
        """What has come and was not read."""
        parts = self._parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def read(self) -> bytes:
        """The next bytes, b"" at the end."""
        while not (data := self.read_nowait()) and not self.is_complete:
            if self._error is not None:
                raise self._error
            await self._wait_for_data()
        return data

    def on_complete(self, call: Callable[[], None]) -> None:
        """Call this once all of it has come."""
        self._call = call

    def release(self) -> None:
        """Give the connection back, for others to use."""
        chunks = self._chunks
        if chunks is None or not chunks.is_complete or chunks.has_surplus or self._transport.get_write_buffer_size():
            self.close()
        elif (connection := self._restore_protocol()) is not None:
            if self._paused:
                # The end came behind more than anybody read; whoever is next on this connection must be heard.
                self._transport.resume_reading()
            connection.release()

    def close(self) -> None:
        """Close the connection unless it was given back."""
        connection = self._restore_protocol()
        if connection is not None:
            connection.close()
            self._fail("Connection closed")

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self._chunks is None:
            data = self._read_head(data)
        chunks = self._chunks
        if chunks is None:
            return
        if part := chunks.feed(data):
            self._parts.append(part)
            self._size += len(part)
            if self._size > _PAUSE and not self._paused:
                self._paused = True
                self._transport.pause_reading()
        if chunks.error is not None:
            self._fail(chunks.error)
        elif chunks.is_complete and self._call is not None:
            self._call()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever reads the answer, and the client, whose connection it was."""
        if self._chunks is None:
            self._hand_over_to_aiohttp()
        elif not self._chunks.is_complete:
            self._fail("the connection was closed" if exc is None else f"{type(exc).__name__}: {exc}")
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client's own reader keeps count, for when it is put back."""
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        """As above."""
        self._reader.resume_writing()

    def _read_head(self, data: bytes) -> bytes:
        """Look for the end of the head: what is behind it, if it is a usual one."""
        self._head += data
        head, end, body = self._head.partition(b"\r\n\r\n")
        if end and len(head) <= _LONGEST_HEAD and _is_plain_chunked(head):
            self._head = head
            self._chunks = ChunkDecoder()
            return body
        if (
            end
            or len(head) > _LONGEST_HEAD
            or not _USUAL.startswith(head[: len(_USUAL)])
            or _BARE_LINE_FEED.search(head)
        ):
            self._transport.set_protocol(self._reader)
            self._hand_over_to_aiohttp()
        return b""

    def _hand_over_to_aiohttp(self) -> None:
        """Leave the answer to the client's own reader, from its first byte."""
        self._reader.set_response_params(read_until_eof=True)
        self._reader.data_received(self._head)
        self._wake()

    def _restore_protocol(self) -> Connection | None:
        """The connection with the client's own reader in its place, if it is still ours."""
        connection, self._connection = self._connection, None
        if connection is not None and self._reader.transport is not None:
            self._transport.set_protocol(self._reader)
        return connection

    def _fail(self, why: str) -> None:
        from aiohttp import ClientPayloadError

        if self._error is None:
            self._error = ClientPayloadError(why)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait_for_data(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _is_plain_chunked(head: bytes) -> bool:
    """Whether a body in chunks follows, and nothing else is to be minded."""
    lines = head.lower() + b"\r\n"
    if not head.startswith(_USUAL) or _CHUNKED not in lines or lines.count(b"transfer-encoding") > 1:
        return False
    if _UNUSUAL.search(lines) is not None or _BARE_LINE_FEED.search(lines) is not None:
        return False
    said = lines.count(b"connection:")
    return not said or (said == 1 and _ALIVE in lines)
