"""The connection pool: one per event loop, opened when first needed, closed with its loop; and which proxy to use."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncGenerator, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from inspect import signature
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
from aiohttp import ClientRequest, ClientSession, ClientTimeout, TCPConnector
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from steersman.provider.http.fast_path import FastConnection, watch_peer
from steersman.provider.http.response import AiohttpResponse, Response
from steersman.provider.http.watchdog import ResponseWatchdog

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

KEEPALIVE_SECONDS = 30.0
_DNS_TTL_SECONDS = 300
_READ_BUFFER = 64 * 1024
_LARGE_BODY = 1024 * 1024
_MAX_ROUTES = 256
# Connections of the pool that turn out to be closed, one after the other, before the request fails.
_MAX_STALE = 100
# A request that sets one of these does not have the plain form that the fast path writes.
_FRAMING = frozenset(("connection", "content-encoding", "content-length", "expect", "host", "te", "trailer",
                      "transfer-encoding", "upgrade"))  # fmt: skip
_FORBIDDEN_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DEFAULT_HEADERS = {"accept": "text/event-stream", "accept-encoding": "identity", "user-agent": "steersman"}


class IdleConnections:
    """The open connections of one event loop that no request uses, by server; those that wait too long are closed."""

    __slots__ = ("_kept", "_loop", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Each with the time at which it was kept; the last one is the newest.
        self._kept: dict[Hashable, list[tuple[float, FastConnection]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, server: Hashable, connection: FastConnection) -> None:
        """Keep a connection for a while."""
        self._kept.setdefault(server, []).append((self._loop.time(), connection))
        if self._timer is None:
            self._timer = self._loop.call_later(KEEPALIVE_SECONDS, self._close_expired)

    def take(self, server: Hashable) -> FastConnection | None:
        """The connection to this server that was used last, if one is still open."""
        kept = self._kept.get(server)
        while kept:
            since, connection = kept.pop()
            if self._loop.time() - since <= KEEPALIVE_SECONDS and connection.is_usable():
                return connection
            connection.discard()
        return None

    def close(self) -> None:
        """Close all of them at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A closed loop cannot be told of the end of a connection.
        close = FastConnection.discard if self._loop.is_closed() else FastConnection.abort
        for kept in self._kept.values():
            for _, connection in kept:
                close(connection)
        self._kept.clear()

    def _close_expired(self) -> None:
        self._timer = None
        oldest = self._loop.time() - KEEPALIVE_SECONDS
        for server, kept in list(self._kept.items()):
            for _, connection in [item for item in kept if item[0] <= oldest]:
                connection.discard()
            kept[:] = [item for item in kept if item[0] > oldest]
            if not kept:
                del self._kept[server]
        if self._kept:
            next_at = min(since for kept in self._kept.values() for since, _ in kept) + KEEPALIVE_SECONDS
            self._timer = self._loop.call_at(next_at, self._close_expired)


class CheckingConnector(TCPConnector):
    """Checks that an idle connection is still open, and that nothing came on it, before it is used again."""

    def __init__(self, *, keepalive: float, dns_ttl: int) -> None:
        # No limit of connections: the application limits how many agents run at once.
        super().__init__(limit=0, keepalive_timeout=keepalive, ttl_dns_cache=dns_ttl)  # pyright: ignore[reportUnknownMemberType]  # of a parameter not used here
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """An open connection from the pool, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            reader = connection.protocol
            if reader not in self._used:
                # A new one is not checked: with a server that closes those at once this would never end.
                if reader is not None:
                    self._used.add(reader)
                return connection
            if not watch_peer(connection.transport)():
                return connection
            connection.close()


class Route:
    """How a request to a URL is sent on the fast path: what the pool needs to connect, and the head of the request."""

    __slots__ = ("_given", "_head", "_own", "_start", "request", "server")

    def __init__(self, request: ClientRequest) -> None:
        self.request = request
        # Requests with the same key can share connections.
        self.server: Hashable = request.connection_key
        self._start = f"POST {request.url.raw_path_qs} HTTP/1.1\r\nHost: {request.headers['Host']}\r\n"
        # The head of the last request, up to the length of its body, and the headers in it.
        self._given: Mapping[str, str] = {}
        self._own: Mapping[str, str] = {}
        self._head: bytes | None = None

    def encode_head(self, given: Mapping[str, str], own: Mapping[str, str], length: int) -> bytes | None:
        """The head of a request with these headers, the second ones over the first, or `None` if aiohttp must send it.

        Raises `ValueError` for a header with a character that would end it.
        """
        if self._head is None or given != self._given or own is not self._own:
            headers = {**_DEFAULT_HEADERS, **merge_headers(given, own)}
            if not _FRAMING.isdisjoint(headers):
                return None
            self._head = encode_head(self._start, headers)
            self._given, self._own = given, own
        return b"%b%d\r\n\r\n" % (self._head, length)


def merge_headers(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The headers of the wire, and over them those in the model's settings, by lower-case name."""
    return {name.lower(): value for part in (given, own) for name, value in part.items()}


def parse_url(url: str) -> URL:
    """The URL as it is sent: one that is percent-encoded stays so, because signatures of AWS depend on every byte."""
    return URL(url, encoded="%" in url and url.isascii() and " " not in url)


def build_route(url: str) -> Route | None:
    """The route to a URL; `None` where aiohttp must send the request, or say what is wrong with the URL."""
    try:
        address = parse_url(url)
    except ValueError:
        return None
    if address.scheme not in ("http", "https") or not address.host:
        return None
    if not supports_fast_path(TCPConnector, ResponseHandler, ClientRequest):
        return None
    return Route(ClientRequest("POST", address, loop=asyncio.get_running_loop()))


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


def encode_head(start: str, headers: Mapping[str, str]) -> bytes:
    """The head of a request up to its length; `ValueError` for a header with a character that would end it."""
    if _FORBIDDEN_IN_HEADER.search("".join((*headers, *headers.values()))) is not None:
        raise ValueError("A header holds a character that ends it.")
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{start}{lines}Content-Length: ".encode()


@dataclass(frozen=True, slots=True)
class Pool:
    """The connections of one event loop."""

    session: ClientSession
    keeper: AsyncGenerator[None, None]
    idle: IdleConnections
    # Those that no request uses.
    watchdogs: list[ResponseWatchdog] = field(default_factory=list[ResponseWatchdog])
    routes: dict[str, Route | None] = field(default_factory=dict[str, Route | None])

    async def post(
        self,
        url: str,
        given: Mapping[str, str],
        own: Mapping[str, str],
        body: bytes,
        *,
        proxy: str | None,
        timeout: ClientTimeout,
    ) -> Response:
        """Send a request with the headers of the wire and the model's own, and wait for the head of its response.

        A plain request takes the fast path. A proxy, a large body and a request of another form are left to aiohttp.
        Raises what aiohttp raises.
        """
        route = None if proxy is not None or len(body) >= _LARGE_BODY else self._find_route(url)
        head = None if route is None else route.encode_head(given, own, len(body))
        if route is not None and head is not None:
            connection = self.idle.take(route.server) or await self._connect(route, timeout)
            try:
                await connection.send(b"".join((head, body)))
                return connection if connection.is_plain else await connection.receive_with_aiohttp(route.request)
            except BaseException:
                connection.close()
                raise
        # aiohttp writes bytes in one go, however many; it writes a file-like body in pieces.
        data = body if len(body) < _LARGE_BODY else io.BytesIO(body)
        headers = merge_headers(given, own)
        answered = await self.session.post(
            parse_url(url), data=data, headers=headers, allow_redirects=False, proxy=proxy, timeout=timeout
        )
        return AiohttpResponse(answered.status, answered.headers, answered.content, answered)

    async def _connect(self, route: Route, timeout: ClientTimeout) -> FastConnection:
        connector = self.session.connector
        if connector is None:
            raise aiohttp.ClientConnectionError("Connector is closed")
        for _ in range(_MAX_STALE):
            try:
                connection = await connector.connect(route.request, [], timeout)
            except TimeoutError:
                raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {route.request.url}") from None
            reader = connection.protocol
            if reader is not None and reader.transport is not None and not reader.should_close:
                return FastConnection(connection, partial(self.idle.keep, route.server))
            # It was lost since its last response, or the server sent something on it without a request.
            connection.close()
        raise aiohttp.ServerDisconnectedError

    def _find_route(self, url: str) -> Route | None:
        routes = self.routes
        if url not in routes:
            if len(routes) >= _MAX_ROUTES:
                routes.clear()
            routes[url] = build_route(url)
        return routes[url]


_pools: dict[asyncio.AbstractEventLoop, Pool] = {}


def find_pool() -> Pool | None:
    """The pool of the running event loop, if it has an open one."""
    pool = _pools.get(asyncio.get_running_loop())
    return None if pool is None or pool.session.closed else pool


async def open_pool() -> Pool:
    """Open a pool for the running event loop."""
    _forget_closed_loops()
    session = ClientSession(
        connector=CheckingConnector(keepalive=KEEPALIVE_SECONDS, dns_ttl=_DNS_TTL_SECONDS),
        headers=_DEFAULT_HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER,
        # Not trust_env: it also takes passwords from ~/.netrc, and proxies for loopback.
        trust_env=False,
    )
    idle = IdleConnections()
    pool = Pool(session, _keep_open(session, idle), idle)
    # Once started, the generator is known to the loop, which closes it at its end, and the session with it.
    await anext(pool.keeper)
    _pools[asyncio.get_running_loop()] = pool
    return pool


async def get_session() -> ClientSession:
    """The aiohttp session of the running event loop, opened if need be."""
    return (find_pool() or await open_pool()).session


async def aclose_http() -> None:
    """Close the connections of the running event loop; the next request opens new ones.

    Rarely needed: a loop that ends as `asyncio.run` ends it closes its connections by itself.
    """
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.keeper.aclose()


async def _keep_open(session: ClientSession, idle: IdleConnections) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        loop = asyncio.get_running_loop()
        if (pool := _pools.get(loop)) is not None and pool.session is session:
            del _pools[loop]
            for watchdog in pool.watchdogs:
                watchdog.close()
        idle.close()
        await session.close()


def _forget_closed_loops() -> None:
    """Drop the sessions of loops that were closed without shutting down their async generators."""
    for loop in [loop for loop in _pools if loop.is_closed()]:
        pool = _pools.pop(loop)
        closing = pool.session.close()
        try:
            # Its loop is gone, so there is nothing to wait for.
            closing.send(None)
        except StopIteration:
            pass
        finally:
            closing.close()
        pool.idle.close()


def find_proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL; never one for loopback."""
    if is_local_url(url):
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host if parts.port is None else f"{host}:{parts.port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@lru_cache(maxsize=256)
def is_local_url(url: str) -> bool:
    """Whether a URL is on this machine."""
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if not host or not (host[0].isdigit() or ":" in host):
        return False
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
