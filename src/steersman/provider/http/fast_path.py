"""The fast path: a POST on a pooled aiohttp connection whose chunked 200 response is read without aiohttp's parser.

All chunks of one network read are decoded in one go. Any other response is handed over to aiohttp, from its first byte.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, NamedTuple

from aiohttp import ClientPayloadError, ClientRequest, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from steersman.provider.http.response import Response, receive_with_aiohttp

# A size and its extensions. A stray CR, LF or NUL in there is refused: another parser on the way may split at it.
_SIZE = re.compile(rb"(0*[0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?")
_CRLF = b"\r\n"
# The sizes of most chunks, as servers write them, and what they mean.
_LENGTHS = {size % length: length for length in range(1024) for size in (b"%x", b"%X")}
# A size with its extensions, or a line of the trailer. No server needs nearly as much.
_MAX_LINE = 8192
_MAX_SHOWN = 20


class ChunkDecoder:
    """One body: `is_complete` once all has arrived, `has_surplus` if more came, `error` says what is wrong with it."""

    __slots__ = ("_left", "_rest", "_trailer", "error", "has_surplus", "is_complete")

    def __init__(self) -> None:
        # How much of the open chunk has not arrived yet, including its CRLF.
        self._left = 0
        # The start of a line, or of the CRLF behind a chunk.
        self._rest = b""
        self._trailer = False
        self.is_complete = False
        self.has_surplus = False
        self.error: str | None = None

    def feed(self, data: bytes) -> bytes:
        """The part of the body in these bytes; b"" once it is complete or malformed."""
        if self.error is not None:
            return b""
        if self._rest:
            data, self._rest = self._rest + data, b""
        out: list[bytes] = []
        at = 0
        tried = self._trailer
        while at < len(data) and not self.is_complete and self.error is None and not self._rest:
            if self._left:
                at = self._take_open_chunk(data, at, out)
            elif tried:
                at = self._read_line(data, at)
            else:
                # Only once per read: chunks that cannot be taken in one go would be split again and again.
                tried = True
                at = self._take_whole_chunks(data, at, out)
        self.has_surplus = self.has_surplus or (self.is_complete and at < len(data))
        return out[0] if len(out) == 1 else b"".join(out)

    def _take_whole_chunks(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take all whole chunks, if every one is plain; return where the next one begins."""
        end = data.rfind(_CRLF)
        if end < at:
            return at
        # Sizes and contents alternate, unless a content holds a CRLF of its own.
        lines = data[at:end].split(_CRLF)
        if len(lines) % 2:
            end -= len(lines.pop()) + len(_CRLF)
        contents = lines[1::2]
        if not contents or list(map(_LENGTHS.get, lines[::2])) != list(map(len, contents)) or b"" in contents[:-1]:
            return at
        self.is_complete = not contents[-1]
        out += contents
        return end + len(_CRLF)

    def _take_open_chunk(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take what there is of the open chunk, and the CRLF behind it."""
        content = self._left - len(_CRLF)
        if content > 0:
            taken = data[at : at + content]
            out.append(taken)
            self._left -= len(taken)
            return at + len(taken)
        end = data[at : at + len(_CRLF)]
        if not _CRLF.startswith(end):
            self.error = "a chunk is longer than its size says"
        elif len(end) < len(_CRLF):
            self._rest = end
        else:
            self._left = 0
        return at + len(end)

    def _read_line(self, data: bytes, at: int) -> int:
        """Read the line that begins here: the size of a chunk, or a line of the trailer."""
        end = data.find(_CRLF, at)
        if end < 0:
            self._rest = data[at:]
            if len(self._rest) > _MAX_LINE:
                self.error = f"a line between chunks is longer than {_MAX_LINE:,} bytes"
            return len(data)
        line = data[at:end]
        if self._trailer:
            self.is_complete = not line
        elif (size := _SIZE.fullmatch(line)) is None:
            # Shown whole or not at all: a part of an API key that the server repeats would not be found and redacted.
            shown = repr(line) if len(line) <= _MAX_SHOWN else f"a line of {len(line):,} bytes"
            self.error = f"{shown} is not the size of a chunk"
        elif length := int(size[1], 16):
            self._left = length + len(_CRLF)
        else:
            self._trailer = True
        return end + len(_CRLF)


_OK = b"HTTP/1.1 200 "
_CHUNKED = b"\r\ntransfer-encoding: chunked\r\n"
_KEEP_ALIVE = b"\r\nconnection: keep-alive\r\n"
# With one of these, the body is not just its chunks, or its end is not certain.
_NOT_PLAIN = re.compile(rb"\r\n(?:content-encoding|content-length|trailer|upgrade)[ \t]*:|\n[ \t]|\0")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_FORBIDDEN_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_HEAD = 32 * 1024
# Reading from the socket pauses while more than this was not read by the consumer.
_MAX_UNREAD = 512 * 1024


class Route(NamedTuple):
    """What the pool needs to connect to a URL, and how the head of each request to it begins."""

    request: ClientRequest
    head: str


def build_route(url: str) -> Route | None:
    """The route to a URL; `None` where aiohttp must send the request, or say what is wrong with the URL."""
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
    """Whether these classes are of an aiohttp version whose connections can be borrowed in the way we know."""
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


def encode_head(start: str, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a request; `ValueError` for a header with a character that would end it."""
    if _FORBIDDEN_IN_HEADER.search("".join((*headers, *headers.values()))) is not None:
        raise ValueError("A header holds a character that ends it.")
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{start}{lines}Content-Length: {length}\r\n\r\n".encode()


class FastResponse(asyncio.Protocol):
    """One request and its response. It replaces aiohttp's protocol on the transport until the response is read."""

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
        # None until the head has arrived and is that of a plain chunked response.
        self._chunks: ChunkDecoder | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._paused = False
        self._error: Exception | None = None
        self._call: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def send(self, data: bytes, request: ClientRequest) -> Response:
        """Send a request and wait for the head of its response."""
        self._transport.set_protocol(self)
        self._transport.write(data)
        await self._wait_for_data()
        if self._chunks is not None:
            return self
        connection, self._connection = self._connection, None
        assert connection is not None
        return await receive_with_aiohttp(connection, request, encoded="content-encoding" in self.headers)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by lower-case name; of two with one name, the first."""
        headers: dict[str, str] = {}
        for line in self._head.split(b"\r\n")[1:]:
            name, _, value = line.decode("utf-8", "surrogateescape").partition(":")
            headers.setdefault(name.strip().lower(), value.strip())
        return headers

    @property
    def is_complete(self) -> bool:
        """Whether the whole body has arrived, read or not."""
        return self._chunks is not None and self._chunks.is_complete

    def read_nowait(self) -> bytes:
        """The bytes that have arrived and were not read yet."""
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
        """Call this once the whole body has arrived."""
        self._call = call

    def release(self) -> None:
        """Return the connection to the pool; close it if more came than the response, or the request is not sent."""
        chunks = self._chunks
        if chunks is None or not chunks.is_complete or chunks.has_surplus or self._transport.get_write_buffer_size():
            self.close()
        elif (connection := self._restore_protocol()) is not None:
            if self._paused:
                # More arrived before the end than was read; the next response on this connection must be read again.
                self._transport.resume_reading()
            connection.release()

    def close(self) -> None:
        """Close the connection, unless it was released."""
        connection = self._restore_protocol()
        if connection is not None:
            connection.close()
            self._fail("Connection closed")

    def data_received(self, data: bytes) -> None:
        """Decode what has arrived (called by the event loop)."""
        if self._chunks is None:
            data = self._read_head(data)
        chunks = self._chunks
        if chunks is None:
            return
        if part := chunks.feed(data):
            self._parts.append(part)
            self._size += len(part)
            if self._size > _MAX_UNREAD and not self._paused:
                self._paused = True
                self._transport.pause_reading()
        if chunks.error is not None:
            self._fail(chunks.error)
        elif chunks.is_complete and self._call is not None:
            self._call()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail a pending read, and tell aiohttp, whose connection it is (called by the event loop)."""
        if self._chunks is None:
            self._hand_over_to_aiohttp()
        elif not self._chunks.is_complete:
            self._fail("the connection was closed" if exc is None else f"{type(exc).__name__}: {exc}")
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on: aiohttp's protocol keeps count, for when it is restored."""
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on, as `pause_writing` does."""
        self._reader.resume_writing()

    def _read_head(self, data: bytes) -> bytes:
        """Look for the end of the head; return the bytes behind it if the response is a plain chunked one."""
        self._head += data
        head, end, body = self._head.partition(b"\r\n\r\n")
        if end and len(head) <= _MAX_HEAD and _is_plain_chunked(head):
            self._head = head
            self._chunks = ChunkDecoder()
            return body
        if end or len(head) > _MAX_HEAD or not _OK.startswith(head[: len(_OK)]) or _BARE_LINE_FEED.search(head):
            self._transport.set_protocol(self._reader)
            self._hand_over_to_aiohttp()
        return b""

    def _hand_over_to_aiohttp(self) -> None:
        """Let aiohttp's own parser read the response, from its first byte."""
        self._reader.set_response_params(read_until_eof=True)
        self._reader.data_received(self._head)
        self._wake()

    def _restore_protocol(self) -> Connection | None:
        """Give the transport aiohttp's protocol back; return the connection if it is still ours."""
        connection, self._connection = self._connection, None
        if connection is not None and self._reader.transport is not None:
            self._transport.set_protocol(self._reader)
        return connection

    def _fail(self, why: str) -> None:
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
    """Whether this is the head of a 200 response with a chunked body and nothing else to observe."""
    lines = head.lower() + b"\r\n"
    if not head.startswith(_OK) or _CHUNKED not in lines or lines.count(b"transfer-encoding") > 1:
        return False
    if _NOT_PLAIN.search(lines) is not None or _BARE_LINE_FEED.search(lines) is not None:
        return False
    count = lines.count(b"connection:")
    return not count or (count == 1 and _KEEP_ALIVE in lines)
