"""The fast path: a connection of aiohttp on which the usual requests are sent and answered without aiohttp.

aiohttp opens the connection. A request is one write, and a chunked 200 response is read here, if its head and chunks
have the plainest form, which every parser takes for the same. Any other response is handed over to aiohttp, from its
first byte, and the rest of a body to aiohttp's parser, from its first byte that is not plain: so both accept the same
responses.
"""

from __future__ import annotations

import asyncio
import re
import select
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import ClientPayloadError, ClientRequest
from aiohttp.connector import Connection

from steersman.provider.http.chunks import CRLF, END_OF_HEAD, ChunkDecoder
from steersman.provider.http.response import Response, TakeBytes, receive_with_aiohttp

_OK = b"HTTP/1.1 200 "
# The only values of these headers after which the body is just its chunks, and the connection stays open.
_USUAL = {b"transfer-encoding": b"transfer-encoding: chunked", b"connection": b"connection: keep-alive"}
# Every parser takes a head of this form for the same, and none of aiohttp's limits is near.
_NAME = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}+"
_MAX_HEADERS = 100
_UNUSUAL = b"?"
_STATUS = re.compile(rb"HTTP/1\.1 200 [\t -~]{0,256}+")
_HEADER = re.compile(_NAME + rb":[\t -~]{0,7900}+")
_PLAIN_START = re.compile(
    _STATUS.pattern
    + rb"(?:\r\n"
    + _HEADER.pattern
    + rb"){0,%d}+" % _MAX_HEADERS
    + rb"(?:\r(?:\n(?:\r|"
    + _NAME
    + rb")?)?)?"
)
# The headers that may occur once only, or not at all.
_NOTABLE = re.compile(
    rb"\r\n(connection|content-(?:encoding|length|location|range|type)|etag|host|max-forwards|proxy-connection"
    rb"|sec-websocket-key1|server|trailer|transfer-encoding|upgrade|user-agent):"
)
# With one of these, the body is not just its chunks, or its end is not certain.
_NOT_PLAIN = frozenset((b"content-encoding", b"content-length", b"proxy-connection", b"sec-websocket-key1", b"trailer",
                        b"upgrade"))  # fmt: skip
# So many lines of heads are remembered, if they are no longer than this.
_MAX_KNOWN = 512
_MAX_KNOWN_LENGTH = 128
# Reading from the socket pauses while more than this was not read by the consumer.
_MAX_UNREAD = 512 * 1024

# There is no poll on Windows: there, a request that meets a closed connection is retried.
_CAN_POLL = hasattr(select, "poll")
if _CAN_POLL:
    # There is something to read, be it the end, or an answer that nobody asked for and that the next request would get.
    _UNUSABLE = select.POLLIN | select.POLLHUP | select.POLLERR


def watch_peer(transport: asyncio.BaseTransport | None) -> Callable[[], object]:
    """A function that is true once the other side has closed or sent something, even before the event loop knows."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or not _CAN_POLL:
        return lambda: False
    poll = select.poll()
    poll.register(socket.fileno(), _UNUSABLE)
    return partial(poll.poll, 0)


class FastConnection(asyncio.Protocol):
    """A connection with one request and its response at a time. It replaces aiohttp's protocol on the transport.

    Once a response is complete, `release` gives the connection to `keep` for the next request. A response that is
    handed over to aiohttp takes the connection along.
    """

    __slots__ = (
        "_call", "_chunks", "_connection", "_error", "_has_peer_acted", "_head", "_is_answering", "_keep", "_loop",
        "_parts", "_paused", "_reader", "_size", "_take", "_transport", "_waiter",
    )  # fmt: skip

    status = 200

    def __init__(self, connection: Connection, keep: Callable[[FastConnection], None]) -> None:
        # None once aiohttp has it back.
        self._connection: Connection | None = connection
        self._keep = keep
        self._reader: Any = connection.protocol
        self._transport: Any = connection.transport
        self._loop = asyncio.get_running_loop()
        self._has_peer_acted = watch_peer(connection.transport)
        # From a request until its response is released or closed.
        self._is_answering = False
        self._head = b""
        # None until the head has arrived and is that of a plain chunked response.
        self._chunks: ChunkDecoder | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._paused = False
        self._error: Exception | None = None
        self._call: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        # Takes what comes while a read waits.
        self._take: TakeBytes | None = None
        self._transport.set_protocol(self)

    def send(self, data: bytes) -> asyncio.Future[None]:
        """Send a request; the future is done once the head of its response has arrived."""
        self._is_answering = True
        self._head = b""
        self._chunks = self._call = None
        self._transport.write(data)
        return self._wait_for_data()

    @property
    def is_plain(self) -> bool:
        """Whether the response is read here; any other one is for `receive_with_aiohttp`."""
        return self._chunks is not None

    async def receive_with_aiohttp(self, request: ClientRequest) -> Response:
        """Wait for the response that aiohttp reads, and give it the connection."""
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

    @property
    def is_read(self) -> bool:
        """Whether the whole body has arrived and was read."""
        return not self._parts and self.is_complete

    def is_usable(self) -> bool:
        """Whether the connection is open, and nothing came on it since the last response."""
        return self._connection is not None and not self._transport.is_closing() and not self._has_peer_acted()

    def read_nowait(self) -> bytes:
        """The bytes that have arrived and were not read yet."""
        parts = self._parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._size = 0
        if self._paused:
            self._resume_reading()
        return data

    async def read(self, take: TakeBytes | None = None) -> bytes:
        """The next bytes, b"" at the end, and once `wake` was called.

        With `take`, plain bytes that come while it waits are given to that function, which may take them.
        """
        while not (data := self.read_nowait()) and not self.is_complete:
            if self._error is not None:
                raise self._error
            self._take = take
            try:
                await self._wait_for_data()
            finally:
                self._take = None
            if take is not None and not self._parts and self._error is None:
                return b""
        return data

    def wake(self) -> None:
        """End a wait for more."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def on_complete(self, call: Callable[[], None]) -> None:
        """Call this once the whole body has arrived."""
        self._call = call

    def release(self) -> None:
        """Keep the connection for another request if this one was sent and answered, and nothing more came."""
        chunks = self._chunks
        is_answered = chunks is not None and chunks.is_complete and not chunks.has_surplus
        if not is_answered or self._transport.get_write_buffer_size():
            self.close()
        elif self._is_answering:
            self._is_answering = False
            if self._parts:
                self.read_nowait()  # more came than was read, and the next response must be read again
            self._keep(self)

    def close(self) -> None:
        """Close the connection, unless it was released."""
        if self._is_answering:
            self._is_answering = False
            self.discard()
            self._fail("Connection closed")

    def discard(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._reader.transport is not None:
                self._transport.set_protocol(self._reader)
            connection.close()

    def abort(self) -> None:
        """Close the connection without a goodbye of TLS, which may take longer than the event loop runs."""
        self.discard()
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Decode what has arrived (called by the event loop)."""
        if not self._is_answering:
            self.discard()  # the server sends something that was not asked for
            return
        chunks = self._chunks
        if chunks is None:
            part, chunks = self._read_head(data), self._chunks
            if chunks is None:
                return
        else:
            part = chunks.feed(data)
            if not chunks.is_complete and chunks.error is None:
                take, waiter = self._take, self._waiter
                if not part or (take is not None and waiter is not None and not waiter.done() and take(part)):
                    return
        if part:
            self._parts.append(part)
            self._size += len(part)
            if self._size > _MAX_UNREAD and not self._paused:
                self._paused = True
                self._transport.pause_reading()
        if chunks.error is not None:
            self._fail(chunks.error)
        elif chunks.is_complete and self._call is not None:
            self._call()
        self.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail a pending read, and tell aiohttp, whose connection it is (called by the event loop)."""
        if not self._is_answering:
            self._reader.connection_lost(exc)
            self.discard()
            return
        if self._chunks is None:
            self._hand_over_to_aiohttp()
        elif not self._chunks.is_complete:
            self._chunks.end()
        if self._chunks is not None and not self._chunks.is_complete:
            self._fail("the connection was closed" if exc is None else f"{type(exc).__name__}: {exc}")
        self.wake()
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on: aiohttp's protocol keeps count, for when it is restored."""
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on, as `pause_writing` does."""
        self._reader.resume_writing()

    def _read_head(self, data: bytes) -> bytes:
        """Look for the end of the head; return the part of the body behind it if the response is a plain chunked one.

        What comes together with the head must be plain as well: aiohttp refuses a response whole if it is malformed
        anywhere in the bytes that end its head.
        """
        self._head += data
        head, end, body = self._head.partition(END_OF_HEAD)
        if not end and _may_be_plain(head):
            return b""
        if end and _is_plain_chunked(head):
            chunks = ChunkDecoder(head)
            part = chunks.feed(body)
            if chunks.is_plain:
                self._head, self._chunks = head, chunks
                return part
        self._transport.set_protocol(self._reader)
        self._hand_over_to_aiohttp()
        return b""

    def _hand_over_to_aiohttp(self) -> None:
        """Let aiohttp's own parser read the response, from its first byte."""
        self._reader.set_response_params(read_until_eof=True)
        self._reader.data_received(self._head)
        self.wake()

    def _resume_reading(self) -> None:
        self._paused = False
        self._transport.resume_reading()

    def _fail(self, why: str) -> None:
        if self._error is None:
            self._error = ClientPayloadError(why)
        self.wake()

    def _wait_for_data(self) -> asyncio.Future[None]:
        waiter = self._waiter = self._loop.create_future()
        return waiter


def _may_be_plain(start: bytes) -> bool:
    """Whether this can be the start of the head of a plain chunked response, and aiohttp waits for more of it too."""
    if len(start) < len(_OK):
        return _OK.startswith(start)
    return _PLAIN_START.fullmatch(start) is not None and _find_notable(start.lower()) is not None


def _is_plain_chunked(head: bytes) -> bool:
    """Whether this is the head of a 200 response with a chunked body and nothing else to observe."""
    status, *lines = head.split(CRLF)
    names: list[bytes] = list(filter(None, map(_find_name, lines)))
    if b"transfer-encoding" not in names or _UNUSUAL in names or len(set(names)) < len(names):
        return False
    return len(lines) <= _MAX_HEADERS and _STATUS.fullmatch(status) is not None


class _Names(dict[bytes, bytes]):
    """What the lines of a head are about, see `_judge_header`; most come again with the next response of a server."""

    def __missing__(self, line: bytes) -> bytes:
        name = _judge_header(line)
        if len(line) <= _MAX_KNOWN_LENGTH:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[line] = name
        return name


_find_name: Callable[[bytes], bytes] = _Names().__getitem__


def _judge_header(line: bytes) -> bytes:
    """The name of a header that says something about the body or the connection, and b"" of any other.

    `_UNUSUAL` if parsers may differ about the line, or what it says is for aiohttp.
    """
    if _HEADER.fullmatch(line) is None:
        return _UNUSUAL
    line = line.lower()
    names = _find_notable(CRLF + line)
    if not names:
        return _UNUSUAL if names is None else b""
    return names[0] if _USUAL.get(names[0], line) == line else _UNUSUAL


def _find_notable(lines: bytes) -> list[bytes] | None:
    """The names in these lines that say something about the body or the connection; `None` if they need aiohttp."""
    names = _NOTABLE.findall(lines)
    return names if len(set(names)) == len(names) and _NOT_PLAIN.isdisjoint(names) else None
