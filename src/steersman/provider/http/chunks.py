"""The chunks of an HTTP/1.1 body put together: bytes in, bytes out, however they were cut. Pure: no I/O, no clock.

Follows RFC 9112, section 7.1. All the whole chunks of a network read are taken in one go.
"""

from __future__ import annotations

import re

# A size and its extensions. A line end that is none in there would be one for others on the way.
_SIZE = re.compile(rb"(0*[0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?")
_CRLF = b"\r\n"
# The sizes of most chunks, as servers write them, and what they mean.
_LENGTHS = {size % length: length for length in range(1024) for size in (b"%x", b"%X")}
# A size with its extensions, or a line of the trailer: what a server needs is far below it.
_MAX_LINE = 8192
_MAX_SHOWN = 20


class ChunkDecoder:
    """One body: `over` once all of it has come, `surplus` if more came, `broken` says what is wrong with it."""

    __slots__ = ("_left", "_rest", "_trailer", "error", "has_surplus", "is_complete")

    def __init__(self) -> None:
        # How much of a chunk has not come yet, its line end included.
        self._left = 0
        # A line, or the line end of a chunk, that is not whole.
        self._rest = b""
        self._trailer = False
        self.is_complete = False
        self.has_surplus = False
        self.error: str | None = None

    def feed(self, data: bytes) -> bytes:
        """What these bytes add to the body; nothing more once it is over or broken."""
        if self.error is not None:
            return b""
        if self._rest:
            data, self._rest = self._rest + data, b""
        out: list[bytes] = []
        at = 0
        leapt = self._trailer
        while at < len(data) and not self.is_complete and self.error is None and not self._rest:
            if self._left:
                at = self._take_open_chunk(data, at, out)
            elif leapt:
                at = self._read_line(data, at)
            else:
                # Once per read: what cannot be leapt over would be looked at again and again.
                leapt = True
                at = self._take_whole_chunks(data, at, out)
        self.has_surplus = self.has_surplus or (self.is_complete and at < len(data))
        return out[0] if len(out) == 1 else b"".join(out)

    def _take_whole_chunks(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Take the whole chunks from here on, if all are of the usual kind: where the next one begins."""
        end = data.rfind(_CRLF)
        if end < at:
            return at
        # Sizes and contents take turns, unless a content has a line end of its own.
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
        """Take what there is of the open chunk, and the line end behind it."""
        content = self._left - len(_CRLF)
        if content > 0:
            taken = data[at : at + content]
            out.append(taken)
            self._left -= len(taken)
            return at + len(taken)
        end = data[at : at + len(_CRLF)]
        if not _CRLF.startswith(end):
            self.error = "a chunk is longer than it says"
        elif len(end) < len(_CRLF):
            self._rest = end
        else:
            self._left = 0
        return at + len(end)

    def _read_line(self, data: bytes, at: int) -> int:
        """Read the line that begins here: a size, or a line of the trailer."""
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
            # Shown whole or not at all: half of a key that a server says again would not be found and hidden.
            shown = repr(line) if len(line) <= _MAX_SHOWN else f"a line of {len(line):,} bytes"
            self.error = f"{shown} is not the size of a chunk"
        elif length := int(size[1], 16):
            self._left = length + len(_CRLF)
        else:
            self._trailer = True
        return end + len(_CRLF)
