"""Decodes a chunked body: all chunks of one network read in one go, as long as they are plain.

Every parser takes plain chunks for the same. From the first byte that is not plain, aiohttp's parser decodes the rest.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from operator import eq

import msgspec
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpResponseParser

CRLF = b"\r\n"
_END = len(CRLF)
END_OF_HEAD = b"\r\n\r\n"
# The size of a plain chunk: no extension, no space, no long row of zeros. The second is one that has not arrived whole.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_SIZE_START = re.compile(rb"[0-9A-Fa-f]{1,8}\r?")
_PLAIN_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
_LONGEST_SIZE = len(b"ffffffff") + len(CRLF)
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
# Bytes that aiohttp's parser may hold of one network read before it would pause the connection, which is not its own.
_NO_PAUSE = 2**30


class _Lengths(dict[bytes, int]):
    """What sizes mean: those of most chunks, as servers write them, are known, and -1 is for what is no plain size."""

    def __missing__(self, size: bytes) -> int:
        return int(size, 16) if _PLAIN_SIZE.fullmatch(size) else -1


_find_length = _Lengths({size % length: length for length in range(1024) for size in (b"%x", b"%X")}).__getitem__


class ChunkDecoder(msgspec.Struct, eq=False):
    """One body: `is_complete` once all has arrived, `has_surplus` if more came, `error` says what is wrong with it.

    Only plain chunks are decoded here. From the first byte that is not plain (an extension, a trailer, other line ends,
    garbage), aiohttp's parser decodes the rest: it alone decides what is malformed.
    """

    # For aiohttp's parser, whose limits count the head as well.
    head: bytes = _CHUNKED_HEAD
    is_complete: bool = False
    has_surplus: bool = False
    error: str | None = None
    # None as long as every chunk is plain.
    _parser: HttpResponseParser | None = None
    _content: StreamReader | None = None
    # How much of the open chunk has not arrived yet, including its CRLF.
    _left: int = 0
    # The start of a size, of the CRLF behind a chunk, or of the last chunk.
    _rest: bytes = b""

    @property
    def is_plain(self) -> bool:
        """Whether all that has come is plain chunks and nothing else."""
        return self._parser is None and not self.has_surplus

    def feed(self, data: bytes) -> bytes:
        """The part of the body in these bytes; b"" once it is complete or malformed."""
        if self._parser is not None:
            return self._parse_with_aiohttp(data)
        out: list[bytes] = []
        at = 0
        if self._rest:
            data, self._rest = self._rest + data, b""
        elif not self._left and not self.is_complete and data.endswith(CRLF):
            if content := _find_only_chunk(data):
                return content
            if chunks := _split_chunks(data):
                self.is_complete = not chunks[-1]
                return b"".join(chunks)
            at = self._take_one_by_one(data, at, out)
            if at == len(data):
                return b"".join(out)
        return self._take_pieces(data, at, out)

    def _take_pieces(self, data: bytes, at: int, out: list[bytes]) -> bytes:
        """Take chunks of which some have not arrived whole; return the part of the body."""
        tried = at > 0
        while at < len(data) and not self.is_complete and self._parser is None:
            if self._left:
                at = self._take_open_chunk(data, at, out)
            elif tried:
                at = self._read_size(data, at)
            else:
                # Only once per read: chunks that cannot be taken in one go would be split again and again.
                tried = True
                at = self._take_whole_chunks(data, at, out)
        if self._parser is not None:
            out.append(self._parse_with_aiohttp(data[at:]))
        else:
            self.has_surplus = self.has_surplus or (self.is_complete and at < len(data))
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self) -> None:
        """The connection was closed: aiohttp's parser, if it decodes the rest, says whether the body is complete."""
        if self._parser is not None and self._content is not None and self.error is None:
            with suppress(Exception):  # whatever it raises means that the body is not complete
                self._parser.feed_eof()
            self.is_complete = self._content.is_eof()

    def _take_whole_chunks(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take all whole chunks, if every one is plain; return where the next one begins."""
        end = data.rfind(CRLF)
        if end < at:
            return at
        # Sizes and contents alternate, unless a content holds a CRLF of its own: then the first one usually does.
        first = data.find(CRLF, at)
        if _find_length(data[at:first]) != data.find(CRLF, first + _END) - first - _END:
            return self._take_one_by_one(data, at, out)
        lines = data[at:end].split(CRLF)
        if len(lines) % 2:
            end -= len(lines.pop()) + len(CRLF)
        contents = lines[1::2]
        if not contents or not all(map(eq, map(_find_length, lines[::2]), map(len, contents))) or b"" in contents[:-1]:
            return self._take_one_by_one(data, at, out)
        self.is_complete = not contents[-1]
        out += contents
        return end + len(CRLF)

    def _take_one_by_one(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take whole chunks whose contents may hold a CRLF; return where the next one begins."""
        while (end := data.find(CRLF, at, at + _LONGEST_SIZE)) >= 0:
            start = end + _END
            stop = start + _find_length(data[at:end])
            if stop < start or not data.startswith(CRLF, stop):
                break
            at = stop + _END
            if stop == start:
                self.is_complete = True
                break
            out.append(data[start:stop])
        return at

    def _take_open_chunk(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take what there is of the open chunk, and the CRLF behind it."""
        content = self._left - len(CRLF)
        if content > 0:
            taken = data[at : at + content]
            out.append(taken)
            self._left -= len(taken)
            return at + len(taken)
        end = data[at : at + len(CRLF)]
        if not CRLF.startswith(end):
            # Its parser must stand behind the content of a chunk, so it gets one.
            self._open_parser(b"1\r\nx")
            return at
        if len(end) < len(CRLF):
            self._rest = end
        else:
            self._left = 0
        return at + len(end)

    def _read_size(self, data: bytes, at: int) -> int:
        """Read the size that begins here; the last chunk, of size 0, is read whole or not at all."""
        size = _SIZE.match(data, at)
        behind = b"" if size is None else data[size.end() : size.end() + len(CRLF)]
        if size is not None and (length := int(size[1], 16)):
            self._left = length + len(CRLF)
            return size.end()
        if size is not None and behind == CRLF:
            self.is_complete = True
            return size.end() + len(CRLF)
        if CRLF.startswith(behind) if size is not None else _SIZE_START.fullmatch(data, at) is not None:
            self._rest = data[at:]
            return len(data)
        self._open_parser(b"")
        return at

    def _open_parser(self, start: bytes) -> None:
        """Open a parser of aiohttp at the start of a chunk, or behind these bytes of one."""
        loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(BaseProtocol(loop), loop, _NO_PAUSE)
        messages, _, _ = self._parser.feed_data(self.head + END_OF_HEAD + start)
        self._content = messages[0][1]
        self._content.read_nowait()

    def _parse_with_aiohttp(self, data: bytes) -> bytes:
        parser, content = self._parser, self._content
        assert parser is not None
        assert content is not None
        # The last byte by itself: the body is complete with it, or before it and then there is a surplus.
        for piece in (data[:-1], data[-1:]):
            if self.is_complete or self.error is not None:
                self.has_surplus = self.has_surplus or (self.is_complete and bool(piece))
                continue
            problem: BaseException | None = None
            try:
                parser.feed_data(piece)
            except Exception as error:  # noqa: BLE001  # whatever it raises means that it refuses the bytes
                problem = error
            self.is_complete = content.is_eof()
            problem = problem or content.exception()
            if problem is not None and not self.is_complete:
                self.error = _describe(problem)
        return b"" if content.exception() is not None else content.read_nowait()


def _find_only_chunk(data: bytes) -> bytes:
    """The content, if these bytes, which end with a CRLF, are one plain chunk, as most network reads are; else b""."""
    size, _, rest = data.partition(CRLF)
    return rest[:-_END] if _find_length(size) == len(rest) - _END else b""


def _split_chunks(data: bytes) -> list[bytes]:
    """The contents, if these bytes are whole plain chunks without a CRLF in their contents; b"" is the last chunk."""
    lines = data.split(CRLF)
    rest = lines.pop()
    contents = lines[1::2]
    if rest or list(map(_find_length, lines[::2])) != list(map(len, contents)) or b"" in contents[:-1]:
        return []
    return contents


def _describe(problem: BaseException) -> str:
    # Without the bytes that it quotes: a part of an API key that the server repeats would not be found and redacted.
    reason, found, _ = str(getattr(problem, "message", "")).partition(":\n")
    return f"the chunks are malformed ({reason if found else type(problem).__name__})"
