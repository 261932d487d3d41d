"""A model's file from its publisher's hub, over HTTP: gone on with where it broke off, and never over less than HTTPS.

What arrives is only a part; whether it is the right file is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from steersman.provider.http.errors import has_password, place
from steersman.provider.http.pool import is_local, proxy_for, session
from steersman.provider.local.weights.disk import Part, SourceError, in_thread

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_REDIRECT = frozenset((301, 302, 303, 307, 308))
_HOPS = 5
_TRIES = 10
_PIECE = 1024 * 1024
_MAGIC = b"GGUF"
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a hub may take: to be reached, and between two pieces of its answer."""

    connect: float = 4.0
    stall: float = 15.0


class _Broken(Exception):
    """The connection ended before the file did."""


async def fetch(
    url: str, part: Part, size: int, *, tell: Callable[[int], None], patience: Patience | None = None
) -> None:
    """Bring the part to `size` bytes; `SourceError` where the hub cannot be reached or has another file.

    A connection that breaks is made anew as long as that brings us further.
    """
    if not url.startswith("https://") and not is_local(url):
        raise SourceError(f"{place(url)} is not an address that is safe to fetch from")
    download = _Download(url, part, size, tell, patience or Patience())
    part.cut(size)
    furthest = part.length()
    for _ in range(_TRIES):
        if part.length() == size:
            return
        try:
            await download.go_on()
        except _Broken as broken:
            if part.length() <= furthest:
                raise SourceError(str(broken)) from None
            furthest = part.length()
    if part.length() != size:
        raise SourceError(f"the connection to {place(url)} broke {_TRIES} times")


def next_hop(url: str, location: str) -> str:
    """Where a redirect leads, if we follow it: to HTTPS, or on this machine from one plain address to another."""
    target = urljoin(url, location)
    plain = urlsplit(url).scheme == "http" and is_local(url) and is_local(target)
    if has_password(target) or not target.startswith(("https://", "http://") if plain else "https://"):
        raise SourceError(f"{place(url)} redirects to {place(target)}, which is not followed")
    return target


@dataclass(frozen=True, slots=True)
class _Download:
    url: str
    part: Part
    size: int
    tell: Callable[[int], None]
    patience: Patience

    async def go_on(self) -> None:
        """One request, from where the part ends."""
        start = self.part.length()
        async with self._answer(start) as response:
            if response.status not in (200, 206, 416):
                raise SourceError(f"{place(self.url)} answered {response.status}")
            if start and not self._continues(response, start):
                # Another file than the part is of, or a server that knows no ranges: from the beginning.
                self.part.discard()
                if response.status != 200:
                    return
                start = 0
            if start == 0:
                self._begin(response)
            await self._take(response, start)

    def _continues(self, response: ClientResponse, start: int) -> bool:
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        return (
            response.status == 206
            and found is not None
            and int(found[1]) == start
            and found[3] in (str(self.size), "*")
            and response.headers.get("ETag", "") == self.part.noted()
        )

    def _begin(self, response: ClientResponse) -> None:
        length = response.content_length
        if response.status != 200 or (length is not None and length != self.size):
            raise SourceError(f"{place(self.url)} has a file of {length} bytes, which is another one")
        self.part.note(response.headers.get("ETag", ""))

    async def _take(self, response: ClientResponse, start: int) -> None:
        done = start
        async with aclosing(_pieces(response)) as pieces:
            async for piece in pieces:
                if done == 0 and not _MAGIC.startswith(bytes(piece[:4])):
                    raise SourceError(f"what {place(self.url)} sends is not a model")
                done += len(piece)
                if done > self.size:
                    raise SourceError(f"{place(self.url)} sends more than the file has")
                await in_thread(partial(self.part.append, piece))
                self.tell(done)
                if done == self.size:
                    return
        raise _Broken("the connection was closed too early")

    @asynccontextmanager
    async def _answer(self, start: int) -> AsyncGenerator[ClientResponse, None]:
        """The answer after all redirects; its connection is closed in any case, not kept."""
        url = self.url
        for _ in range(_HOPS):
            response = await self._asked(url, start)
            try:
                if response.status not in _REDIRECT:
                    yield response
                    return
                url = next_hop(url, response.headers.get("Location", ""))
            finally:
                response.close()
        raise SourceError(f"{place(self.url)} redirects without end")

    async def _asked(self, url: str, start: int) -> ClientResponse:
        from aiohttp import ClientTimeout

        headers = {"accept-encoding": "identity", "user-agent": "steersman"}
        if start:
            headers["range"] = f"bytes={start}-"
            noted = self.part.noted() or ""
            if noted.startswith('"'):
                headers["if-range"] = noted
        connect, stall = self.patience.connect, self.patience.stall
        timeout = ClientTimeout(total=None, connect=connect, sock_connect=connect, sock_read=stall)
        try:
            client = await session()
            return await client.get(url, headers=headers, allow_redirects=False, proxy=_proxy(url), timeout=timeout)
        except (OSError, ValueError, _client_error()) as error:
            raise SourceError(f"{place(url)} cannot be reached: {_words(error)}") from None


async def _pieces(response: ClientResponse) -> AsyncGenerator[bytearray, None]:
    """The body in pieces that are worth a write; what came before the connection broke is given, too."""
    piece = bytearray()
    trouble: str | None = None
    chunks = response.content.iter_any()
    while True:
        try:
            chunk = await anext(chunks, b"")
        except (OSError, _client_error()) as error:
            chunk, trouble = b"", _words(error)
        piece += chunk
        if len(piece) >= _PIECE or (piece and not chunk):
            yield piece
            piece = bytearray()
        if trouble is not None:
            raise _Broken(f"the connection broke: {trouble}")
        if not chunk:
            return


def _proxy(url: str) -> str | None:
    proxy = proxy_for(url)
    if proxy is not None and not proxy.startswith(("http://", "https://")):
        raise SourceError(f"the proxy {place(proxy)!r} is not an HTTP proxy")
    return proxy


def _client_error() -> type[Exception]:
    from aiohttp import ClientError

    return ClientError


def _words(error: Exception) -> str:
    """What the HTTP client says; its own text may hold the password of a proxy."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause = getattr(error, "os_error", None)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return type(error).__name__
