"""HTTP requests of tools: no cookies, no proxy from the environment, no redirects, and a bounded response body.

The body is decoded here (content-encoding and charset), because a small compressed body may expand to a huge one.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import socket
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from steersman.types.content import replace_lone_surrogates
from steersman.types.errors import ToolError, describe_exception

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import AbstractResolver

Kind: TypeAlias = Literal["html", "text", "image", "other"]

USER_AGENT = "steersman"
REDIRECTS = frozenset((301, 302, 303, 307, 308))

# Possessive, so that thousands of blanks are not tried again and again: it runs in the event loop.
_CHARSET = re.compile(r"""charset\s*+=\s*+["']?+\s*+([\w.:-]{1,40})""", re.IGNORECASE | re.ASCII)
_META = re.compile(rb"""<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*+=\s*+["']?+\s*+([\w.:-]{1,40})""", re.IGNORECASE)
_META_WITHIN = 4_096
_PIECE = 64 * 1024
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_WIDE_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# From the names of Python's codecs to the codec that browsers use: a page that declares latin-1 or ascii is
# windows-1252, and so on. An allowlist, because some of Python's codecs are no charsets, and some are slow.
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
    """A response body and its declared type; `whole` is false where it was over the limit or truncated."""

    data: bytes
    media_type: str = ""
    charset: str | None = None
    whole: bool = True

    @property
    def kind(self) -> Kind:
        """The kind of content, by the declared media type or, where there is none, by the first bytes."""
        kind = classify_media_type(self.media_type) if self.media_type else self._guess_kind()
        return "other" if kind in ("html", "text") and self._is_binary() else kind

    async def decode(self) -> str:
        """Decode the body as text; malformed bytes are replaced. Other tasks run between its pieces."""
        for mark, codec in _BOMS:
            if self.data.startswith(mark):
                return await _decode_in_pieces(self.data[len(mark) :], codec)
        if (codec := _find_codec(self.charset) or self._find_declared_codec()) is not None:
            return await _decode_in_pieces(self.data, codec)
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(self.data, final=self.whole)
        except UnicodeDecodeError:
            return await _decode_in_pieces(self.data, "cp1252")

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
        # The declaration was readable as ASCII, so the body cannot be UTF-16.
        return "utf-8" if codec is not None and codec.startswith("utf-16") else codec


def parse_content_type(header: str) -> tuple[str, str | None]:
    """Split a `Content-Type` header into its media type and its charset."""
    # Bytes that are no UTF-8 are half characters here, which no event and no session can hold.
    media_type, _, rest = replace_lone_surrogates(header).partition(";")
    found = _CHARSET.search(rest)
    return media_type.strip().lower(), found[1] if found else None


def classify_media_type(media_type: str) -> Kind:
    """Classify a media type as HTML, text, image or other."""
    if media_type in ("text/html", "application/xhtml+xml"):
        return "html"
    if _TEXTUAL.fullmatch(media_type):
        return "text"
    return "image" if media_type.startswith("image/") else "other"


async def _decode_in_pieces(data: bytes, codec: str) -> str:
    """Decode without holding up the event loop: each malformed byte takes long, and in a thread it holds the GIL."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    texts: list[str] = []
    for start in range(0, len(data), _PIECE):
        texts.append(decoder.decode(data[start : start + _PIECE]))
        await asyncio.sleep(0)
    return "".join((*texts, decoder.decode(b"", final=True)))


class ContentDecoder:
    """Decodes a content-encoding piece by piece, and never produces more bytes than requested."""

    __slots__ = ("_coding", "_stream")

    def __init__(self, coding: str) -> None:
        self._coding = coding.strip().lower()
        if self._coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            # As it was sent: in lower case, a key in it would not be found.
            raise ToolError(f"The server sent the content-encoding {coding!r:.80}, which cannot be decoded here.")
        self._stream: Any = None

    @property
    def whole(self) -> bool:
        """Whether the encoded data is complete."""
        return self._stream is None or self._stream.eof

    def decode(self, data: bytes, limit: int) -> bytes:
        """Decode a piece to at most `limit` bytes; the rest of the piece is dropped."""
        if self._coding in ("", "identity"):
            return data[:limit]
        parts: list[bytes] = []
        while data and limit > 0:
            if self._stream is None or self._stream.eof:
                # Several gzip members may follow each other; what follows a deflate stream belongs to nothing.
                if self._stream is not None and self._coding == "deflate":
                    break
                self._stream = zlib.decompressobj(self._choose_window_bits(data))
            try:
                part = self._stream.decompress(data, limit)
            except zlib.error as error:
                raise ToolError(f"The {self._coding} answer of the server could not be decoded ({error}).") from error
            parts.append(part)
            limit -= len(part)
            data = self._stream.unused_data
        return b"".join(parts)

    def _choose_window_bits(self, data: bytes) -> int:
        if self._coding != "deflate":
            return 16 + zlib.MAX_WBITS
        # "deflate" means zlib with a header, but some servers leave the header out.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS


def open_session(
    *, connect_timeout: float, addresses: Sequence[str] | None = None, ssl_context: SSLContext | None = None
) -> ClientSession:
    """Open a session for one request; with `addresses` its connection goes to one of them, whatever the host is."""
    import aiohttp

    resolver = None if addresses is None else _make_pinned_resolver(addresses)
    connector = aiohttp.TCPConnector(
        resolver=resolver, use_dns_cache=False, force_close=True, ssl=True if ssl_context is None else ssl_context
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        # The caller sets a deadline for the whole request.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
        # Decoded in `read_body`, within a limit.
        auto_decompress=False,
        # A proxy would resolve the name itself, which would bypass the SSRF check of the addresses.
        trust_env=False,
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"},
    )


async def read_body(response: ClientResponse, limit: int) -> Body:
    """Read the body up to `limit` bytes; the rest is not read."""
    media_type, charset = parse_content_type(response.headers.get("Content-Type", ""))
    decoder = ContentDecoder(response.headers.get("Content-Encoding", ""))
    data, received = bytearray(), 0
    async for piece in response.content.iter_any():
        received += len(piece)
        data += decoder.decode(piece, limit + 1 - len(data))
        if len(data) > limit or received > limit:
            return Body(bytes(data[:limit]), media_type, charset, whole=False)
    return Body(bytes(data), media_type, charset, whole=decoder.whole)


def to_tool_error(url: str, error: Exception) -> ToolError:
    """Convert the exception of a failed request to the error the model reads."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ToolError(f"The certificate of {url!r} is not trusted ({error.certificate_error}).")
    if isinstance(error, aiohttp.ClientConnectorError):
        return ToolError(f"No connection to {url!r} ({error.os_error.strerror or describe_exception(error.os_error)}).")
    return ToolError(f"The answer of {url!r} could not be read ({describe_exception(error)}).")


def _make_pinned_resolver(addresses: Sequence[str]) -> AbstractResolver:
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Pinned(AbstractResolver):
        """Returns the addresses that were checked, without a DNS lookup (against TOCTOU: DNS rebinding)."""

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


def _find_codec(charset: str | None) -> str | None:
    if charset is None:
        return None
    try:
        return _CODECS.get(codecs.lookup(charset).name)
    except LookupError:
        return None
