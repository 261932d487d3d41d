"""What a request gets back, whoever reads it: its head has come, its body is read as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientResponse, StreamReader
    from aiohttp.connector import Connection

_SWITCHED = 101


class Response(Protocol):
    """A response whose head has come."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def is_complete(self) -> bool:
        """Whether all of it has come, read or not."""
        ...

    def read_nowait(self) -> bytes:
        """What has come and was not read."""
        ...

    async def read(self) -> bytes:
        """The next bytes, b"" at the end."""
        ...

    def on_complete(self, call: Callable[[], None]) -> None:
        """Call this once all of it has come."""
        ...

    def release(self) -> None:
        """Give the connection back, for others to use."""
        ...

    def close(self) -> None:
        """Close the connection unless it was given back."""
        ...


class AiohttpResponse:
    """A response that the client itself reads."""

    __slots__ = ("_content", "_held", "headers", "status")

    def __init__(
        self, status: int, headers: Mapping[str, str], content: StreamReader, held: ClientResponse | Connection
    ) -> None:
        self.status = status
        self.headers = headers
        self._content = content
        self._held = held

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come, read or not."""
        return self._content.is_eof()

    def read_nowait(self) -> bytes:
        """What has come and was not read."""
        return self._content.read_nowait()

    async def read(self) -> bytes:
        """The next bytes, b"" at the end."""
        return await self._content.readany()

    def on_complete(self, call: Callable[[], None]) -> None:
        """Call this once all of it has come."""
        self._content.on_eof(call)

    def release(self) -> None:
        """Give the connection back, for others to use."""
        self._held.release()

    def close(self) -> None:
        """Close the connection unless it was given back; whoever waits for more of the answer is told."""
        from aiohttp import ClientConnectionError

        self._held.close()
        if self._content.exception() is None:
            self._content.set_exception(ClientConnectionError("Connection closed"))


async def receive_with_aiohttp(connection: Connection, request: ClientRequest, *, packed: bool) -> Response:
    """The response that comes on a connection; `packed` says that it names a packing."""
    from aiohttp import ClientResponseError
    from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

    reader = connection.protocol
    assert reader is not None
    try:
        while True:
            message, content = await reader.read()
            if not 100 <= message.code < 200 or message.code == _SWITCHED:
                break
    except HttpProcessingError as error:
        connection.close()
        cause = ContentEncodingError(error.message) if packed else error
        raise ClientResponseError(request.request_info, (), status=error.code, message=error.message) from cause
    except BaseException:
        connection.close()
        raise
    content.on_eof(lambda: _release(connection))
    return AiohttpResponse(message.code, message.headers, content, connection)


def _release(connection: Connection) -> None:
    """Let others use a connection, unless they would have to wait for the rest of a request that was answered early."""
    transport = connection.transport
    if transport is not None and transport.get_write_buffer_size():
        connection.close()
    else:
        connection.release()
