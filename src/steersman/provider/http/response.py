"""The response to a request once its head has arrived, and the variant that aiohttp's own parser reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from aiohttp import (
    ClientConnectionError,
    ClientPayloadError,
    ClientRequest,
    ClientResponse,
    ClientResponseError,
    StreamReader,
)
from aiohttp.connector import Connection
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

_SWITCHING_PROTOCOLS = 101
TakeBytes: TypeAlias = Callable[[bytes], bool]
"""Takes bytes as they arrive, in the event loop; returns whether it took them. It never raises."""


class Response(Protocol):
    """A response whose head has arrived; its body is read as it comes."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def is_complete(self) -> bool:
        """Whether the whole body has arrived, read or not."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether the whole body has arrived and was read."""
        ...

    def read_nowait(self) -> bytes:
        """The bytes that have arrived and were not read yet."""
        ...

    async def read(self, take: TakeBytes | None = None) -> bytes:
        """The next bytes, b"" at the end.

        With `take`, those that come while it waits may be given to that function, and it goes on waiting; b"" once
        `wake` was called.
        """
        ...

    def wake(self) -> None:
        """End a wait for more."""
        ...

    def on_complete(self, call: Callable[[], None]) -> None:
        """Call this once the whole body has arrived."""
        ...

    def release(self) -> None:
        """Return the connection to the pool."""
        ...

    def close(self) -> None:
        """Close the connection, unless it was released."""
        ...


class AiohttpResponse:
    """A response that aiohttp parses."""

    __slots__ = ("_content", "_held", "headers", "status")

    def __init__(
        self, status: int, headers: Mapping[str, str], content: StreamReader, held: ClientResponse | Connection
    ) -> None:
        self.status = status
        self.headers = headers
        self._content = content
        self._held = held
        connection = held.connection if isinstance(held, ClientResponse) else held
        if connection is not None and connection.transport is not None and not content.is_eof():
            RefusalWatch(connection, content)

    @property
    def is_complete(self) -> bool:
        """Whether the whole body has arrived, read or not."""
        return self._content.is_eof()

    @property
    def is_read(self) -> bool:
        """Whether the whole body has arrived and was read."""
        return self._content.at_eof()

    def read_nowait(self) -> bytes:
        """The bytes that have arrived and were not read yet."""
        return self._content.read_nowait()

    async def read(self, take: TakeBytes | None = None) -> bytes:
        """The next bytes, b"" at the end; none are given to `take`."""
        return await self._content.readany()

    def wake(self) -> None:
        """Nothing waits for this."""

    def on_complete(self, call: Callable[[], None]) -> None:
        """Call this once the whole body has arrived."""
        self._content.on_eof(call)

    def release(self) -> None:
        """Return the connection to the pool."""
        self._held.release()

    def close(self) -> None:
        """Close the connection, unless it was released; a pending `read` raises."""
        self._held.close()
        if self._content.exception() is None:
            self._content.set_exception(ClientConnectionError("Connection closed"))


class RefusalWatch(asyncio.Protocol):
    """Stands before aiohttp's protocol on a transport until the body is read, and fails the body once it is refused.

    aiohttp's compiled parser closes the connection on a malformed body, but its reader waits for more without end.
    """

    __slots__ = ("_content", "_loop", "_reader")

    def __init__(self, connection: Connection, content: StreamReader) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader: Any = connection.protocol
        self._content = content
        transport: Any = connection.transport
        transport.set_protocol(self)
        content.on_eof(lambda: transport.set_protocol(self._reader))

    def data_received(self, data: bytes) -> None:
        """Pass it on (called by the event loop, as are the others)."""
        self._reader.data_received(data)
        if self._reader.exception() is not None:
            # A turn later: a wait that the same bytes have ended, without content, begins again and asks for no error.
            self._loop.call_soon(self._fail)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._reader.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on; no more of the body will come."""
        self._reader.connection_lost(exc)
        self._loop.call_soon(self._fail)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._reader.resume_writing()

    def _fail(self) -> None:
        if not self._content.is_eof() and self._content.exception() is None:
            self._content.set_exception(ClientPayloadError("the body is malformed"))


async def receive_with_aiohttp(connection: Connection, request: ClientRequest, *, encoded: bool) -> Response:
    """Wait for the response on a connection and leave it to aiohttp; `encoded`: its head names a content-encoding."""
    reader = connection.protocol
    assert reader is not None
    try:
        while True:
            message, content = await reader.read()
            if not 100 <= message.code < 200 or message.code == _SWITCHING_PROTOCOLS:
                break
    except HttpProcessingError as error:
        connection.close()
        cause = ContentEncodingError(error.message) if encoded else error
        raise ClientResponseError(request.request_info, (), status=error.code, message=error.message) from cause
    except BaseException:
        connection.close()
        raise
    content.on_eof(lambda: _release(connection))
    return AiohttpResponse(message.code, message.headers, content, connection)


def _release(connection: Connection) -> None:
    """Return a connection to the pool, unless a request that was answered early is still being written to it."""
    transport = connection.transport
    if transport is not None and transport.get_write_buffer_size():
        connection.close()
    else:
        connection.release()
