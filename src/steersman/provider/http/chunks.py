"""Decodes the chunked transfer-encoding of an HTTP/1.1 body: bytes in, bytes out, however they were cut.

Follows RFC 9112, section 7.1. Pure: no I/O, no clock. All the whole chunks of one network read are taken in one go.
"""

from __future__ import annotations

import re

# A size and its extensions. A stray CR, LF or NUL in there is refused: another parser on the way may split at it.
_SIZE = re.compile(rb"(0*[0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?")
_CRLF = b"\r\n"
# The sizes of most chunks, as servers write them, and what they mean.
_LENGTHS = {size % length: length for length in range(1024) for size in (b"%x", b"%X")}
# A size with its extensions, or a line of the trailer. No server needs nearly as much.
_MAX_LINE = 8192
_MAX_SHOWN = 20


class ChunkDecoder:
    """One body: `is_complete` once all has arrived, `has_surplus` if more came, `error` says what is wrong with it."""

    __slots__ = ("_left", "_rest", "_trailer", "error", "has_surplus", "is_complete")

    def __init__(self) -> None:
        # How much of the open chunk has not arrived yet, including its CRLF.
        self._left = 0
        # The start of a line, or of the CRLF behind a chunk.
        self._rest = b""
        self._trailer = False
        self.is_complete = False
        self.has_surplus = False
        self.error: str | None = None

    def feed(self, data: bytes) -> bytes:
        """The part of the body in these bytes; b"" once it is complete or malformed."""
        if self.error is not None:
            return b""
        if self._rest:
            data, self._rest = self._rest + data, b""
        out: list[bytes] = []
        at = 0
        tried = self._trailer
        while at < len(data) and not self.is_complete and self.error is None and not self._rest:
            if self._left:
                at = self._take_open_chunk(data, at, out)
            elif tried:
                at = self._read_line(data, at)
            else:
                # Only once per read: chunks that cannot be taken in one go would be split again and again.
                tried = True
                at = self._take_whole_chunks(data, at, out)
        self.has_surplus = self.has_surplus or (self.is_complete and at < len(data))
        return out[0] if len(out) == 1 else b"".join(out)

    def _take_whole_chunks(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take all whole chunks, if every one is plain; return where the next one begins."""
        end = data.rfind(_CRLF)
        if end < at:
            return at
        # Sizes and contents alternate, unless a content holds a CRLF of its own.
        lines = data[at:end].split(_CRLF)
        if len(lines) % 2:
            end -= len(lines.pop()) + len(_CRLF)
        contents = lines[1::2]
        if not contents or list(map(_LENGTHS.get, lines[::2])) != list(map(len, contents)) or b"" in contents[:-1]:
            return at
        self.is_complete = not contents[-1]
        out += contents
        return end + len(_CRLF)

    def _take_open_chunk(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take what there is of the open chunk, and the CRLF behind it."""
        content = self._left - len(_CRLF)
        if content > 0:
            taken = data[at : at + content]
            out.append(taken)
            self._left -= len(taken)
            return at + len(taken)
        end = data[at : at + len(_CRLF)]
        if not _CRLF.startswith(end):
            self.error = "a chunk is longer than its size says"
        elif len(end) < len(_CRLF):
            self._rest = end
        else:
            self._left = 0
        return at + len(end)

    def _read_line(self, data: bytes, at: int) -> int:
        """Read the line that begins here: the size of a chunk, or a line of the trailer."""
        end = data.find(_CRLF, at)
        if end < 0:
            self._rest = data[at:]
            if len(self._rest) > _MAX_LINE:
                self.error = f"a line between chunks is longer than {_MAX_LINE:,} bytes"
            return len(data)
        line = data[at:end]
        if self._trailer:
            self.is_complete = not line
        elif (size := _SIZE.fullmatch(line)) is None:
            # Shown whole or not at all: a part of an API key that the server repeats would not be found and redacted.
            shown = repr(line) if len(line) <= _MAX_SHOWN else f"a line of {len(line):,} bytes"
            self.error = f"{shown} is not the size of a chunk"
        elif length := int(size[1], 16):
            self._left = length + len(_CRLF)
        else:
            self._trailer = True
        return end + len(_CRLF)
