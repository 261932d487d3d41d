"""The fast path: a POST on a pooled aiohttp connection whose chunked 200 response is read without aiohttp's parser.

All chunks of one network read are decoded in one go. Only a head and chunks of the plainest form are read here, which
every parser takes for the same. Any other response is handed over to aiohttp, from its first byte, and the rest of a
body to aiohttp's parser, from its first byte that is not plain: so both accept the same responses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from aiohttp import ClientPayloadError, ClientRequest, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.connector import Connection
from aiohttp.http_parser import HttpResponseParser

from steersman.provider.http.response import Response, receive_with_aiohttp

_CRLF = b"\r\n"
_END_OF_HEAD = b"\r\n\r\n"
# The size of a plain chunk: no extension, no space, no long row of zeros. The second is one that has not arrived whole.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_SIZE_START = re.compile(rb"[0-9A-Fa-f]{1,8}\r?")
# The sizes of most chunks, as servers write them, and what they mean.
_LENGTHS = {size % length: length for length in range(1024) for size in (b"%x", b"%X")}
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
# Bytes that aiohttp's parser may hold of one network read before it would pause the connection, which is not its own.
_NO_PAUSE = 2**30


class ChunkDecoder:
    """One body: `is_complete` once all has arrived, `has_surplus` if more came, `error` says what is wrong with it.

    Only plain chunks are decoded here. From the first byte that is not plain (an extension, a trailer, other line ends,
    garbage), aiohttp's parser decodes the rest: it alone decides what is malformed.
    """

    __slots__ = ("_content", "_head", "_left", "_parser", "_rest", "error", "has_surplus", "is_complete")

    def __init__(self, head: bytes = _CHUNKED_HEAD) -> None:
        # For aiohttp's parser, whose limits count the head as well.
        self._head = head
        # None as long as every chunk is plain.
        self._parser: HttpResponseParser | None = None
        self._content: StreamReader | None = None
        # How much of the open chunk has not arrived yet, including its CRLF.
        self._left = 0
        # The start of a size, of the CRLF behind a chunk, or of the last chunk.
        self._rest = b""
        self.is_complete = False
        self.has_surplus = False
        self.error: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all that has come is plain chunks and nothing else."""
        return self._parser is None and not self.has_surplus

    def feed(self, data: bytes) -> bytes:
        """The part of the body in these bytes; b"" once it is complete or malformed."""
        if self._parser is not None:
            return self._parse_with_aiohttp(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        out: list[bytes] = []
        at = 0
        tried = False
        while at < len(data) and not self.is_complete and self._parser is None:
            if self._left:
                at = self._take_open_chunk(data, at, out)
            elif tried:
                at = self._read_size(data, at)
            else:
                # Only once per read: chunks that cannot be taken in one go would be split again and again.
                tried = True
                at = self._take_whole_chunks(data, at, out)
        if self._parser is not None:
            out.append(self._parse_with_aiohttp(data[at:]))
        else:
            self.has_surplus = self.has_surplus or (self.is_complete and at < len(data))
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self) -> None:
        """The connection was closed: aiohttp's parser, if it decodes the rest, says whether the body is complete."""
        if self._parser is not None and self._content is not None and self.error is None:
            with suppress(Exception):  # whatever it raises means that the body is not complete
                self._parser.feed_eof()
            self.is_complete = self._content.is_eof()

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
            # Its parser must stand behind the content of a chunk, so it gets one.
            self._open_parser(b"1\r\nx")
            return at
        if len(end) < len(_CRLF):
            self._rest = end
        else:
            self._left = 0
        return at + len(end)

    def _read_size(self, data: bytes, at: int) -> int:
        """Read the size that begins here; the last chunk, of size 0, is read whole or not at all."""
        size = _SIZE.match(data, at)
        behind = b"" if size is None else data[size.end() : size.end() + len(_CRLF)]
        if size is not None and (length := int(size[1], 16)):
            self._left = length + len(_CRLF)
            return size.end()
        if size is not None and behind == _CRLF:
            self.is_complete = True
            return size.end() + len(_CRLF)
        if _CRLF.startswith(behind) if size is not None else _SIZE_START.fullmatch(data, at) is not None:
            self._rest = data[at:]
            return len(data)
        self._open_parser(b"")
        return at

    def _open_parser(self, start: bytes) -> None:
        """Open a parser of aiohttp at the start of a chunk, or behind these bytes of one."""
        loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(BaseProtocol(loop), loop, _NO_PAUSE)
        messages, _, _ = self._parser.feed_data(self._head + _END_OF_HEAD + start)
        self._content = messages[0][1]
        self._content.read_nowait()

    def _parse_with_aiohttp(self, data: bytes) -> bytes:
        parser, content = self._parser, self._content
        assert parser is not None
        assert content is not None
        # The last byte by itself: the body is complete with it, or before it and then there is a surplus.
        for piece in (data[:-1], data[-1:]):
            if self.is_complete or self.error is not None:
                self.has_surplus = self.has_surplus or (self.is_complete and bool(piece))
                continue
            problem: BaseException | None = None
            try:
                parser.feed_data(piece)
            except Exception as error:  # noqa: BLE001  # whatever it raises means that it refuses the bytes
                problem = error
            self.is_complete = content.is_eof()
            problem = problem or content.exception()
            if problem is not None and not self.is_complete:
                self.error = _describe(problem)
        return b"" if content.exception() is not None else content.read_nowait()


def _describe(problem: BaseException) -> str:
    # Without the bytes that it quotes: a part of an API key that the server repeats would not be found and redacted.
    reason, found, _ = str(getattr(problem, "message", "")).partition(":\n")
    return f"the chunks are malformed ({reason if found else type(problem).__name__})"


_OK = b"HTTP/1.1 200 "
_CHUNKED = b"\r\ntransfer-encoding: chunked\r\n"
_KEEP_ALIVE = b"\r\nconnection: keep-alive\r\n"
# Every parser takes a head of this form for the same, and none of aiohttp's limits is near.
_NAME = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}+"
_LINES = rb"HTTP/1\.1 200 [\t -~]{0,256}+(?:\r\n" + _NAME + rb":[\t -~]{0,7900}+){0,100}+"
_PLAIN_HEAD = re.compile(_LINES)
_PLAIN_START = re.compile(_LINES + rb"(?:\r(?:\n(?:\r|" + _NAME + rb")?)?)?")
# The headers that may occur once only, or not at all.
_NOTABLE = re.compile(
    rb"\r\n(connection|content-(?:encoding|length|location|range|type)|etag|host|max-forwards|proxy-connection"
    rb"|sec-websocket-key1|server|trailer|transfer-encoding|upgrade|user-agent):"
)
# With one of these, the body is not just its chunks, or its end is not certain.
_NOT_PLAIN = frozenset((b"content-encoding", b"content-length", b"proxy-connection", b"sec-websocket-key1", b"trailer",
                        b"upgrade"))  # fmt: skip
# Reading from the socket pauses while more than this was not read by the consumer.
_MAX_UNREAD = 512 * 1024


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
        part = self._read_head(data) if self._chunks is None else self._chunks.feed(data)
        chunks = self._chunks
        if chunks is None:
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
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail a pending read, and tell aiohttp, whose connection it is (called by the event loop)."""
        if self._chunks is None:
            self._hand_over_to_aiohttp()
        elif not self._chunks.is_complete:
            self._chunks.end()
        if self._chunks is not None and not self._chunks.is_complete:
            self._fail("the connection was closed" if exc is None else f"{type(exc).__name__}: {exc}")
        self._wake()
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
        head, end, body = self._head.partition(_END_OF_HEAD)
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


def _may_be_plain(start: bytes) -> bool:
    """Whether this can be the start of the head of a plain chunked response, and aiohttp waits for more of it too."""
    if len(start) < len(_OK):
        return _OK.startswith(start)
    return _PLAIN_START.fullmatch(start) is not None and _find_notable(start.lower()) is not None


def _is_plain_chunked(head: bytes) -> bool:
    """Whether this is the head of a 200 response with a chunked body and nothing else to observe."""
    if _PLAIN_HEAD.fullmatch(head) is None:
        return False
    lines = head.lower() + _CRLF
    names = _find_notable(lines)
    return names is not None and _CHUNKED in lines and (b"connection" not in names or _KEEP_ALIVE in lines)


def _find_notable(lines: bytes) -> list[bytes] | None:
    """The names in these lines that say something about the body or the connection; `None` if they need aiohttp."""
    names = _NOTABLE.findall(lines)
    return names if len(set(names)) == len(names) and _NOT_PLAIN.isdisjoint(names) else None
