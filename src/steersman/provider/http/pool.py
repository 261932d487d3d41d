"""One connection pool per event loop, made when first needed and closed with its loop; and which proxy to use."""

from __future__ import annotations

import asyncio
import io
import select
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiohttp import ClientRequest, ClientTimeout, TCPConnector

from steersman.provider.http.fast_path import Route, build_route, post
from steersman.provider.http.response import AiohttpResponse, Response

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


_CAN_LOOK = hasattr(select, "poll")  # not on Windows: who meets a closed connection there is asked again
if _CAN_LOOK:
    # Not every system tells that the other side alone has closed; they all tell of a connection that is closed.
    _GONE = getattr(select, "POLLRDHUP", select.POLLIN) | select.POLLHUP | select.POLLERR


class CheckingConnector(TCPConnector):
    """Connections, looked at again before they are used again."""

    def __init__(self, *, keepalive: float, dns_ttl: int) -> None:
        # As many at once as there are agents: whoever starts them sets the bound.
        super().__init__(limit=0, keepalive_timeout=keepalive, ttl_dns_cache=dns_ttl)  # pyright: ignore[reportUnknownMemberType]  # of a parameter not used here
        self._given: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A connection of the pool that is still open, or a new one."""
        while True:
            connection = await super().connect(req, traces, timeout)
            reader = connection.protocol
            if reader not in self._given:
                # A new one is not looked at: a server that closes those at once would be asked for ever.
                if reader is not None:
                    self._given.add(reader)
                return connection
            if not _is_closed_by_peer(connection):
                return connection
            connection.close()


def _is_closed_by_peer(connection: Connection) -> bool:
    """Whether the other side has closed, also if nobody has read that yet."""
    transport = connection.transport
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or not _CAN_LOOK:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), _GONE)
    return bool(poll.poll(0))


_KEEPALIVE = 30.0
_DNS_TTL = 300
_READ_BUFFER = 64 * 1024
_LARGE_BODY = 1024 * 1024
_ROUTES = 256
# Who sets one of these wants a request of another form than the usual one.
_FRAMING = frozenset(("connection", "content-encoding", "content-length", "expect", "host", "te", "trailer",
                      "transfer-encoding", "upgrade"))  # fmt: skip
# What every request has, unless it says otherwise itself.
_EVERY = {"accept": "text/event-stream", "accept-encoding": "identity", "user-agent": "steersman"}


@dataclass(frozen=True, slots=True)
class Pool:
    """The connections of one event loop."""

    session: ClientSession
    keeper: AsyncGenerator[None, None]
    routes: dict[str, Route | None]

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, proxy: str | None, timeout: ClientTimeout
    ) -> Awaitable[Response]:
        """Send a request and wait for the head of its answer; raises what the client raises."""
        route = None if proxy is not None or len(body) >= _LARGE_BODY else self._find_route(url)
        if route is not None and _FRAMING.isdisjoint(headers):
            return post(self.session, route, {**_EVERY, **headers}, body, timeout)
        return self._post_with_aiohttp(url, headers, body, proxy, timeout)

    async def _post_with_aiohttp(
        self, url: str, headers: Mapping[str, str], body: bytes, proxy: str | None, timeout: ClientTimeout
    ) -> Response:
        # The client sends bytes in one go, however many; a file-like body is sent in pieces.
        data = body if len(body) < _LARGE_BODY else io.BytesIO(body)
        response = await self.session.post(
            url, data=data, headers=headers, allow_redirects=False, proxy=proxy, timeout=timeout
        )
        return AiohttpResponse(response.status, response.headers, response.content, response)

    def _find_route(self, url: str) -> Route | None:
        routes = self.routes
        if url not in routes:
            if len(routes) >= _ROUTES:
                routes.clear()
            routes[url] = build_route(url)
        return routes[url]


_pools: dict[asyncio.AbstractEventLoop, Pool] = {}


def find_pool() -> Pool | None:
    """The pool of the running event loop, if it has an open one."""
    pool = _pools.get(asyncio.get_running_loop())
    return None if pool is None or pool.session.closed else pool


async def get_session() -> ClientSession:
    """The client's session of the running event loop, opened if need be."""
    return (find_pool() or await open_pool()).session


async def aclose_http() -> None:
    """Close the connections of the running event loop; the next request opens new ones.

    Nobody has to: a loop that ends as `asyncio.run` ends it closes its connections by itself.
    """
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.keeper.aclose()


async def open_pool() -> Pool:
    """A new pool for the running event loop."""
    import aiohttp

    _forget_closed_loops()
    made = aiohttp.ClientSession(
        connector=CheckingConnector(keepalive=_KEEPALIVE, dns_ttl=_DNS_TTL),
        headers=_EVERY,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER,
        # Not trust_env: it also takes passwords from ~/.netrc, and proxies for loopback.
        trust_env=False,
    )
    pool = Pool(made, _keep_open(made), {})
    # Once begun, the generator is known to the loop, which closes it before it ends, and the session with it.
    await anext(pool.keeper)
    _pools[asyncio.get_running_loop()] = pool
    return pool


async def _keep_open(kept: ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        loop = asyncio.get_running_loop()
        if (pool := _pools.get(loop)) is not None and pool.session is kept:
            del _pools[loop]
        await kept.close()


def _forget_closed_loops() -> None:
    """Let go of the sessions of loops that were closed without a chance to close anything."""
    for loop in [loop for loop in _pools if loop.is_closed()]:
        closing = _pools.pop(loop).session.close()
        try:
            # With its loop gone it has nothing to wait for.
            closing.send(None)
        except StopIteration:
            pass
        finally:
            closing.close()


def find_proxy(url: str) -> str | None:
    """The proxy the environment names for an address; none for loopback, whatever it says."""
    if is_local_url(url):
        return None
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host if parts.port is None else f"{host}:{parts.port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


@lru_cache(maxsize=256)
def is_local_url(url: str) -> bool:
    """Whether an address is on this machine."""
    from urllib.parse import urlsplit

    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if not host or not (host[0].isdigit() or ":" in host):
        return False
    from ipaddress import ip_address

    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
