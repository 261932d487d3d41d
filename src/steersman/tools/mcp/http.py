"""The HTTP a server is reached over: answers of bounded size, nothing unpacked, no proxy for this machine itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2

from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.spec import HttpServer

_CONNECT_SECONDS = 30.0
_EVENTS = "text/event-stream"


class TooLarge(httpx2.StreamError):
    """An answer went on past what one may have."""


def http_client(spec: HttpServer, max_bytes: int, on_refusal: Callable[[int, bool], None]) -> httpx2.AsyncClient:
    """A client for one server. `on_refusal(status, in_session)` hears of every message the server would not take."""

    async def look_at(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            # A few bytes could unpack to more than there is room for, and nobody asked for it.
            raise McpError("it sent a packed answer, though it was asked not to")
        if not response.headers.get("content-type", "").lower().startswith(_EVENTS):
            # The events of a stream are bounded one by one, where they are read.
            response.stream = _Bounded(response.stream, max_bytes)
        asked = response.request
        if response.status_code >= 400 and asked.method == "POST":
            on_refusal(response.status_code, "mcp-session-id" in asked.headers)

    return httpx2.AsyncClient(
        headers={**spec.headers, "accept-encoding": "identity"},
        # Streams are silent for as long as nothing happens; calls have their own deadline.
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        trust_env=not _is_loopback(urlsplit(spec.url).hostname or ""),
        event_hooks={"response": [look_at]},
    )


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of an answer, up to a limit."""

    def __init__(self, stream: object, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise TooLarge(f"the answer has more than {self._limit:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        await self._stream.aclose()


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
