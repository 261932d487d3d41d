"""One HTTP request of a tool: no cookies, no proxy of the environment, no redirect, and its answer within a limit."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from steersman.types.errors import ToolError, describe_exception

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import AbstractResolver


Kind: TypeAlias = Literal["html", "text", "image", "other"]

_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE | re.ASCII)
_META = re.compile(rb"""<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_META_WITHIN = 4_096
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_WIDE_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# By the names of Python's codecs. What pages call latin-1 or ascii is windows-1252, and likewise for the others.
# A list, because Python's codecs hold things that are no charsets, some of them slow.
_CODECS = {
    **{f"cp{page}": f"cp{page}" for page in (866, 874, 932, 949, *range(1250, 1259))},
    **{f"iso8859-{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{name: name for name in ("utf-8", "utf-16-le", "utf-16-be", "gb18030", "big5hkscs", "euc_jp", "iso2022_jp")},
    **{name: name for name in ("koi8-r", "koi8-u", "mac-roman")},
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "shift_jis": "cp932",
    "tis-620": "cp874",
    "utf-16": "utf-16-le",
}
_TEXTUAL = re.compile(
    r"text/.*|.*\+(?:json|xml|yaml)"
    r"|application/(?:(?:x-)?(?:ecmascript|javascript|json|ndjson|sh|sql|tex|toml|yaml)|jsonl|graphql|rtf|xml"
    r"|x-www-form-urlencoded)"
)


@dataclass(frozen=True, slots=True)
class Body:
    """What came, and what it was said to be; `whole` is false where it was longer than it may be, or was cut off."""

    data: bytes
    media_type: str = ""
    charset: str | None = None
    whole: bool = True

    @property
    def kind(self) -> Kind:
        """What can be made of it, by what it is said to be and, where that says nothing, by what it is."""
        said = classify_media_type(self.media_type) if self.media_type else self._guess_kind()
        return "other" if said in ("html", "text") and self._is_binary() else said

    @property
    def text(self) -> str:
        """The body as text, however broken it is."""
        for mark, codec in _BOMS:
            if self.data.startswith(mark):
                return self.data[len(mark) :].decode(codec, "replace")
        if (codec := _find_codec(self.charset) or self._find_declared_codec()) is not None:
            return self.data.decode(codec, "replace")
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(self.data, final=self.whole)
        except UnicodeDecodeError:
            return self.data.decode("cp1252", "replace")

    def _guess_kind(self) -> Kind:
        start = self.data[:_META_WITHIN].lstrip().lower()
        return "html" if start.startswith((b"<!doctype html", b"<html")) else "text"

    def _is_binary(self) -> bool:
        wide = (_find_codec(self.charset) or "").startswith("utf-16") or self.data.startswith(_WIDE_BOMS)
        return b"\x00" in self.data[:_META_WITHIN] and not wide

    def _find_declared_codec(self) -> str | None:
        if "html" not in self.media_type and "xml" not in self.media_type and self.media_type:
            return None
        found = _META.search(self.data[:_META_WITHIN])
        codec = _find_codec(found[1].decode("ascii", "replace")) if found else None
        # It was read as ASCII just now, so it cannot be true.
        return "utf-8" if codec is not None and codec.startswith("utf-16") else codec


def parse_content_type(header: str) -> tuple[str, str | None]:
    """The media type and the charset of a `Content-Type`."""
    media_type, _, rest = header.partition(";")
    found = _CHARSET.search(rest)
    return media_type.strip().lower(), found[1] if found else None


def classify_media_type(media_type: str) -> Kind:
    """What can be made of a media type."""
    if media_type in ("text/html", "application/xhtml+xml"):
        return "html"
    if _TEXTUAL.fullmatch(media_type):
        return "text"
    return "image" if media_type.startswith("image/") else "other"


class ContentDecoder:
    """Undoes a `Content-Encoding` piece by piece and never makes more than it is asked for."""

    __slots__ = ("_coding", "_stream")

    def __init__(self, coding: str) -> None:
        coding = coding.strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ToolError(f"The server sent its answer packed as {coding!r:.80}, which cannot be unpacked here.")
        self._coding = coding
        self._stream: Any = None

    @property
    def whole(self) -> bool:
        """Whether the packed data came to its end."""
        return self._stream is None or self._stream.eof

    def decode(self, data: bytes, room: int) -> bytes:
        """What a piece holds, at most `room` bytes of it; once there is no room the rest is lost."""
        if self._coding in ("", "identity"):
            return data[:room]
        parts: list[bytes] = []
        while data and room > 0:
            if self._stream is None or self._stream.eof:
                # Packed files may be joined: each begins anew.
                self._stream = zlib.decompressobj(self._window(data))
            try:
                part = self._stream.decompress(data, room)
            except zlib.error as error:
                raise ToolError(f"The server's answer could not be unpacked ({error}).") from error
            parts.append(part)
            room -= len(part)
            data = self._stream.unused_data
        return b"".join(parts)

    def _window(self, data: bytes) -> int:
        if self._coding != "deflate":
            return 16 + zlib.MAX_WBITS
        # By its name it has a header; some servers leave it out.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS


def _find_codec(charset: str | None) -> str | None:
    if charset is None:
        return None
    try:
        return _CODECS.get(codecs.lookup(charset).name)
    except LookupError:
        return None


USER_AGENT = "steersman"
REDIRECTS = frozenset((301, 302, 303, 307, 308))


def open_session(
    *, connect_timeout: float, addresses: Sequence[str] | None = None, ssl_context: SSLContext | None = None
) -> ClientSession:
    """A session for one request; with `addresses` its connection goes to one of them, whatever the host is."""
    import aiohttp

    resolver = None if addresses is None else _make_pinned_resolver(addresses)
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
    media_type, charset = parse_content_type(response.headers.get("Content-Type", ""))
    unpacker = ContentDecoder(response.headers.get("Content-Encoding", ""))
    data, received = bytearray(), 0
    async for piece in response.content.iter_any():
        received += len(piece)
        data += unpacker.decode(piece, limit + 1 - len(data))
        if len(data) > limit or received > limit:
            return Body(bytes(data[:limit]), media_type, charset, whole=False)
    return Body(bytes(data), media_type, charset, whole=unpacker.whole)


def to_tool_error(url: str, error: Exception) -> ToolError:
    """What a tool says when a request came to nothing."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ToolError(f"The certificate of {url!r} is not trusted ({error.certificate_error}).")
    if isinstance(error, aiohttp.ClientConnectorError):
        return ToolError(f"No connection to {url!r} ({error.os_error.strerror or describe_exception(error.os_error)}).")
    return ToolError(f"The answer of {url!r} could not be read ({describe_exception(error)}).")


def _make_pinned_resolver(addresses: Sequence[str]) -> AbstractResolver:
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
