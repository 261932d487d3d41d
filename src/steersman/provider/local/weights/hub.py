"""Downloads a model's file from its publisher's hub: HTTPS only, resumed with range requests.

The result is a part; `CacheEntry.commit` verifies its checksum.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urljoin, urlsplit

from aiohttp import ClientError, ClientResponse, ClientTimeout

from steersman.provider.http.errors import has_credentials, redact_url
from steersman.provider.http.pool import find_proxy, get_session, is_local_url
from steersman.provider.local.weights.disk import Part, SourceError, run_in_thread

_REDIRECT = frozenset((301, 302, 303, 307, 308))
_HOPS = 5
_TRIES = 10
_PIECE = 1024 * 1024
_MAGIC = b"GGUF"
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubTimeouts:
    """Timeouts in seconds: for the connection, and between two pieces of the response."""

    connect: float = 4.0
    stall: float = 15.0


class _Broken(Exception):
    """The connection ended before the file did."""


async def fetch(
    url: str,
    part: Part,
    size: int,
    *,
    report: Callable[[int], None],
    timeouts: HubTimeouts | None = None,
    token: str | None = None,
) -> None:
    """Download the part up to `size` bytes; `SourceError` if the hub cannot be reached or has another file.

    After a broken connection it resumes, as long as there is progress. `token` is sent to the server of `url` alone.
    """
    if not url.startswith("https://") and not is_local_url(url):
        raise SourceError(f"{redact_url(url)} is not an HTTPS URL")
    download = _Download(url, part, size, report, timeouts or HubTimeouts(), token)
    part.truncate(size)
    furthest = part.get_length()
    for _ in range(_TRIES):
        if part.get_length() == size:
            return
        try:
            await download.resume()
        except _Broken as broken:
            if part.get_length() <= furthest:
                raise SourceError(str(broken)) from None
            furthest = part.get_length()
    if part.get_length() != size:
        raise SourceError(f"the connection to {redact_url(url)} broke {_TRIES} times")


def resolve_redirect(url: str, location: str) -> str:
    """The target of a redirect if it is HTTPS, or plain HTTP from this machine to itself; else `SourceError`."""
    target = urljoin(url, location)
    plain = urlsplit(url).scheme == "http" and is_local_url(url) and is_local_url(target)
    if has_credentials(target) or not target.startswith(("https://", "http://") if plain else "https://"):
        raise SourceError(f"{redact_url(url)} redirects to {redact_url(target)}, which is not followed")
    return target


def is_same_origin(url: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    one, two = urlsplit(url), urlsplit(other)
    ports = {"http": 80, "https": 443}
    return (one.scheme, one.hostname, one.port or ports.get(one.scheme)) == (
        two.scheme,
        two.hostname,
        two.port or ports.get(two.scheme),
    )


@dataclass(frozen=True, slots=True)
class _Download:
    url: str
    part: Part
    size: int
    tell: Callable[[int], None]
    patience: HubTimeouts
    token: str | None = field(default=None, repr=False)

    async def resume(self) -> None:
        """Send one request, for the bytes behind the part."""
        start = self.part.get_length()
        async with self._open_response(start) as response:
            if response.status not in (200, 206, 416):
                raise SourceError(f"{redact_url(self.url)} answered {response.status}")
            if start and not self._can_resume(response, start):
                # The file has changed, or the server does not support ranges: start again.
                self.part.discard()
                if response.status != 200:
                    return
                start = 0
            if start == 0:
                self._check_whole(response)
            await self._save_body(response, start)

    def _can_resume(self, response: ClientResponse, start: int) -> bool:
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        return (
            response.status == 206
            and found is not None
            and int(found[1]) == start
            and found[3] in (str(self.size), "*")
            and response.headers.get("ETag", "") == self.part.load_state()
        )

    def _check_whole(self, response: ClientResponse) -> None:
        length = response.content_length
        if response.status != 200 or (length is not None and length != self.size):
            raise SourceError(f"{redact_url(self.url)} has a file of {length} bytes, which is not this model")
        self.part.save_state(response.headers.get("ETag", ""))

    async def _save_body(self, response: ClientResponse, start: int) -> None:
        done = start
        async with aclosing(_read_pieces(response)) as pieces:
            async for piece in pieces:
                if done == 0 and not _MAGIC.startswith(bytes(piece[:4])):
                    raise SourceError(f"{redact_url(self.url)} does not send a GGUF model")
                done += len(piece)
                if done > self.size:
                    raise SourceError(f"{redact_url(self.url)} sends more bytes than the file has")
                await run_in_thread(partial(self.part.append, piece))
                self.tell(done)
                if done == self.size:
                    return
        raise _Broken("the connection was closed before the end of the file")

    @asynccontextmanager
    async def _open_response(self, start: int) -> AsyncGenerator[ClientResponse, None]:
        """The response after all redirects; its connection is always closed, not reused."""
        url = self.url
        for _ in range(_HOPS):
            response = await self._request(url, start)
            try:
                if response.status not in _REDIRECT:
                    yield response
                    return
                url = resolve_redirect(url, response.headers.get("Location", ""))
            finally:
                response.close()
        raise SourceError(f"{redact_url(self.url)} redirects too often")

    async def _request(self, url: str, start: int) -> ClientResponse:
        headers = {"accept-encoding": "identity", "user-agent": "steersman"}
        if self.token is not None and is_same_origin(url, self.url):
            headers["authorization"] = f"Bearer {self.token}"
        if start:
            headers["range"] = f"bytes={start}-"
            noted = self.part.load_state() or ""
            if noted.startswith('"'):
                headers["if-range"] = noted
        connect, stall = self.patience.connect, self.patience.stall
        timeout = ClientTimeout(total=None, connect=connect, sock_connect=connect, sock_read=stall)
        try:
            client = await get_session()
            return await client.get(
                url, headers=headers, allow_redirects=False, proxy=find_http_proxy(url), timeout=timeout
            )
        except (OSError, ValueError, ClientError) as error:
            raise SourceError(f"{redact_url(url)} cannot be reached: {describe_client_error(error)}") from None


async def _read_pieces(response: ClientResponse) -> AsyncGenerator[bytearray, None]:
    """The body in pieces large enough to write; also what arrived before the connection broke."""
    piece = bytearray()
    trouble: str | None = None
    chunks = response.content.iter_any()
    while True:
        try:
            chunk = await anext(chunks, b"")
        except (OSError, ClientError) as error:
            chunk, trouble = b"", describe_client_error(error)
        piece += chunk
        if len(piece) >= _PIECE or (piece and not chunk):
            yield piece
            piece = bytearray()
        if trouble is not None:
            raise _Broken(f"the connection broke: {trouble}")
        if not chunk:
            return


def find_http_proxy(url: str) -> str | None:
    """The proxy for a URL; `SourceError` if it is of another kind."""
    proxy = find_proxy(url)
    if proxy is not None and not proxy.startswith(("http://", "https://")):
        raise SourceError(f"the proxy {redact_url(proxy)!r} is not an HTTP proxy")
    return proxy


def describe_client_error(error: Exception) -> str:
    """The error in words; the text of aiohttp itself may hold the password of a proxy."""
    if isinstance(error, TimeoutError):
        return "timeout"
    cause = getattr(error, "os_error", None)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return type(error).__name__
