"""The connections of a server: at most so many, and none that keeps a place without a request for long.

A client that sends its request byte by byte (slowloris) is cut off in time. When all places are taken, the connection
that has waited longest for a request makes room; if each of them has one, the new connection is refused with a 503.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from aiohttp import web

from steersman.server.http.problems import make_response

MOST: Final = 12_000
"""The most connections, if the process may open so many files."""
REQUEST_SECONDS: Final = 20.0
"""How long a connection may take to send the head of its request, and how long it may be idle."""

# A client that is refused has so many seconds to read why, if there are not too many of them.
_PARTING_SECONDS = 1.0
_MOST_PARTING = 64
# What a client still sends of a body that was refused is read for so long, so that it gets its answer.
_LINGERING_SECONDS = 2.0
# Asyncio accepts so many at once, and does so a few times before the first one can be refused: files they need.
_BATCH = 32
# So many more can wait to be accepted.
_BACKLOG = 1024
_WORDS = b'{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"Too many connections."}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_WORDS), _WORDS)
)

_log = logging.getLogger("steersman.server")


class Connections:
    """Counts the connections of one server. `most` follows from the limit of open files by default."""

    def __init__(self, *, most: int | None = None, request_seconds: float = REQUEST_SECONDS) -> None:
        self.most = find_most() if most is None else most
        self.request_seconds = request_seconds
        self.refused = 0
        self.cut = 0
        self._open: set[Connection] = set()
        # Those without a request and until when they may be so, the oldest first.
        self._waiting: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._parting: set[asyncio.Transport] = set()
        self._is_full = False

    def __len__(self) -> int:
        return len(self._open)

    # Requests

    def begin(self, request: web.Request) -> None:
        """A request has come: its connection waits no longer."""
        self._waiting.pop(cast(Connection, request.protocol), None)

    def end(self, request: web.Request) -> None:
        """A request was answered: its connection may send another one."""
        connection = cast(Connection, request.protocol)
        if connection in self._open:
            self._wait(connection)

    # Connections

    def admit(self, connection: Connection) -> bool:
        """Take a new connection; whether there is room for it."""
        if len(self._open) >= self.most:
            self._tell_full()
            if not self._waiting:
                self.refused += 1
                return False
            self._cut(next(iter(self._waiting)))
        self._open.add(connection)
        self._wait(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        if len(self._open) < self.most * 0.9:
            self._is_full = False

    def refuse(self, transport: asyncio.Transport) -> None:
        """Say why there is no room, and hang up."""
        if len(self._parting) >= _MOST_PARTING:
            transport.abort()
            return
        self._parting.add(transport)
        transport.set_protocol(_Refused(transport, self._parting))
        transport.write(_REFUSAL)
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(_PARTING_SECONDS, transport.close)

    def _wait(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.pop(connection, None)
        self._waiting[connection] = loop.time() + self.request_seconds
        if self._timer is None:
            self._timer = loop.call_later(self.request_seconds, self._cut_expired)

    def _cut_expired(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        for connection, until in list(self._waiting.items()):
            if until > now:
                self._timer = loop.call_at(until, self._cut_expired)
                return
            self._cut(connection)

    def _cut(self, connection: Connection) -> None:
        self.cut += 1
        self.remove(connection)
        connection.force_close()

    def _tell_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            _log.warning(
                "There are %d connections, the most that are allowed: those without a request are closed first.",
                len(self._open),
            )

    def close(self) -> None:
        """Stop the clock, and hang up on those that were refused."""
        for transport in self._parting:
            transport.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Refused(asyncio.Protocol):
    """A connection that was refused. Closed before its request is read, it would be reset, and its answer lost."""

    def __init__(self, transport: asyncio.Transport, parting: set[asyncio.Transport]) -> None:
        self._transport = transport
        self._parting = parting

    def data_received(self, data: bytes) -> None:
        self._transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._parting.discard(self._transport)


class Connection(web.RequestHandler):
    """One connection; if there is no room for it, it is told so and reads nothing."""

    __slots__ = ("_connections",)

    def __init__(self, connections: Connections, server: web.Server, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, if there is one."""
        if self._connections.admit(self):
            super().connection_made(transport)
        else:
            self._connections.refuse(cast(asyncio.Transport, transport))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the place."""
        self._connections.remove(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what cannot be read. It may hold the token, so neither the log nor the answer has anything of it."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        _log.info("A request from %s cannot be read: %s.", request.remote, type(exc).__name__)
        response = make_response(400, "This is no HTTP request that can be read.")
        response.force_close()
        return response


@asynccontextmanager
async def listen(
    app: web.Application, connections: Connections, host: str, port: int, *, shutdown_seconds: float = 1.0
) -> AsyncGenerator[tuple[str, int]]:
    """Serve an application; yields the address that it listens on."""
    options: dict[str, Any] = {
        "access_log": None,
        "keepalive_timeout": connections.request_seconds,
        "lingering_time": _LINGERING_SECONDS,
    }
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=shutdown_seconds, **options)
    await runner.setup()
    server = runner.server
    assert server is not None
    try:
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            lambda: Connection(connections, server, **options), host or None, port, backlog=_BATCH
        )
        for one in listening.sockets:
            with one.dup() as same:
                same.listen(_BACKLOG)
        try:
            yield listening.sockets[0].getsockname()[:2]
        finally:
            listening.close()
    finally:
        connections.close()
        await runner.cleanup()


def find_most() -> int:
    """The most connections that this process should take: some of its files are for other things."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST
    return min(MOST, max(files - max(64, files // 4), 16))
