"""One HTTP request of a tool: no cookies, no proxy of the environment, no redirect, and its answer within a limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steersman.tools.bodies import Body, Unpacker, content_type
from steersman.types.errors import ToolError, described

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import AbstractResolver

USER_AGENT = "steersman"
REDIRECTS = frozenset((301, 302, 303, 307, 308))


def open_session(
    *, connect_timeout: float, addresses: Sequence[str] | None = None, ssl_context: SSLContext | None = None
) -> ClientSession:
    """A session for one request; with `addresses` its connection goes to one of them, whatever the host is."""
    import aiohttp

    resolver = None if addresses is None else _pinned(addresses)
    connector = aiohttp.TCPConnector(
        resolver=resolver, use_dns_cache=False, force_close=True, ssl=True if ssl_context is None else ssl_context
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        # The whole has a deadline of its own, around all of it.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
        # Unpacked by us, since a small answer may be packed from a huge one.
        auto_decompress=False,
        # A proxy would look up the name itself, and nobody could say where the request went.
        trust_env=False,
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"},
    )


async def read_body(response: ClientResponse, limit: int) -> Body:
    """The body, or as much of it as the limit takes; what is left is not read."""
    media_type, charset = content_type(response.headers.get("Content-Type", ""))
    unpacker = Unpacker(response.headers.get("Content-Encoding", ""))
    data, received = bytearray(), 0
    async for piece in response.content.iter_any():
        received += len(piece)
        data += unpacker.unpack(piece, limit + 1 - len(data))
        if len(data) > limit or received > limit:
            return Body(bytes(data[:limit]), media_type, charset, whole=False)
    return Body(bytes(data), media_type, charset, whole=unpacker.whole)


def trouble(url: str, error: Exception) -> ToolError:
    """What a tool says when a request came to nothing."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ToolError(f"The certificate of {url!r} is not trusted ({error.certificate_error}).")
    if isinstance(error, aiohttp.ClientConnectorError):
        return ToolError(f"No connection to {url!r} ({error.os_error.strerror or described(error.os_error)}).")
    return ToolError(f"The answer of {url!r} could not be read ({described(error)}).")


def _pinned(addresses: Sequence[str]) -> AbstractResolver:
    import socket

    from aiohttp.abc import AbstractResolver, ResolveResult

    class Pinned(AbstractResolver):
        """Answers with the addresses that were judged, and asks nobody."""

        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            del family
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in addresses
            ]

        async def close(self) -> None:
            """Nothing is open."""

    return Pinned()
