"""One connection pool per event loop, made when first needed and closed with its loop; and which proxy to use."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from steersman.provider.http.fast_path import Route, post, route_to
from steersman.provider.http.response import ReadByClient, Response

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientTimeout

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

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, proxy: str | None, timeout: ClientTimeout
    ) -> Response:
        """Send a request and wait for the head of its answer; raises what the client raises."""
        route = None if proxy is not None or len(body) >= _LARGE_BODY else self._route(url)
        if route is not None and _FRAMING.isdisjoint(headers):
            return await post(self.session, route, {**_EVERY, **headers}, body, timeout)
        # The client sends bytes in one go, however many; a file-like body is sent in pieces.
        data = body if len(body) < _LARGE_BODY else io.BytesIO(body)
        response = await self.session.post(
            url, data=data, headers=headers, allow_redirects=False, proxy=proxy, timeout=timeout
        )
        return ReadByClient(response.status, response.headers, response.content, response)

    def _route(self, url: str) -> Route | None:
        routes = self.routes
        if url not in routes:
            if len(routes) >= _ROUTES:
                routes.clear()
            routes[url] = route_to(url)
        return routes[url]


_pools: dict[asyncio.AbstractEventLoop, Pool] = {}


def open_pool() -> Pool | None:
    """The pool of the running event loop, if it has an open one."""
    pool = _pools.get(asyncio.get_running_loop())
    return None if pool is None or pool.session.closed else pool


async def session() -> ClientSession:
    """The client's session of the running event loop, opened if need be."""
    return (open_pool() or await opened_pool()).session


async def aclose_http() -> None:
    """Close the connections of the running event loop; the next request opens new ones.

    Nobody has to: a loop that ends as `asyncio.run` ends it closes its connections by itself.
    """
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.keeper.aclose()


async def opened_pool() -> Pool:
    """A new pool for the running event loop."""
    import aiohttp

    from steersman.provider.http.connector import Connector

    _forget_closed_loops()
    made = aiohttp.ClientSession(
        connector=Connector(keepalive=_KEEPALIVE, dns_ttl=_DNS_TTL),
        headers=_EVERY,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER,
        # Not trust_env: it also takes passwords from ~/.netrc, and proxies for loopback.
        trust_env=False,
    )
    pool = Pool(made, _kept(made), {})
    # Once begun, the generator is known to the loop, which closes it before it ends, and the session with it.
    await anext(pool.keeper)
    _pools[asyncio.get_running_loop()] = pool
    return pool


async def _kept(kept: ClientSession) -> AsyncGenerator[None, None]:
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


def proxy_for(url: str) -> str | None:
    """The proxy the environment names for an address; none for loopback, whatever it says."""
    if is_local(url):
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
def is_local(url: str) -> bool:
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
