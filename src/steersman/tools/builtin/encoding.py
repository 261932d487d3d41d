"""Detects the encoding and line ends of text files and keeps both: unchanged text encodes back to the same bytes."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TypeVar

_Bytes = TypeVar("_Bytes", bytes, bytearray)

SAMPLE = 8_192
"""How many bytes at the start of a file are enough to detect its encoding."""

_UNDECODABLE = re.compile("[\udc80-\udcff]")
_LINE_END = re.compile(r"\r\n?|\n")
_CONTROL = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
# Text in another encoding has so many invalid bytes that it would be useless to show it.
_MAX_UNDECODABLE_SHARE = 0.3
_ALWAYS_TOLERATED = 4
_MAX_CONTROL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Encoding:
    """The codec of a text file, and its byte order mark."""

    codec: str
    mark: bytes = b""

    @property
    def errors(self) -> str:
        """The error handler: invalid bytes of UTF-8 become lone surrogates, lone surrogates of UTF-16 stay."""
        return "surrogateescape" if self.codec == "utf-8" else "surrogatepass"

    def decode(self, data: bytes) -> str:
        """Decode a whole file; raise `UnicodeError` where the text would not encode back to the same bytes."""
        text = data[len(self.mark) :].decode(self.codec, self.errors)
        if self.encode(text) != data:
            raise UnicodeError("not the same bytes again")
        return text

    def encode(self, text: str) -> bytes:
        """Encode a text as the bytes of a whole file."""
        return self.mark + text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8")
# UTF-32 first: its byte order marks begin with those of UTF-16.
_MARKED = (
    Encoding("utf-32-le", codecs.BOM_UTF32_LE),
    Encoding("utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("utf-8", codecs.BOM_UTF8),
    Encoding("utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("utf-16-be", codecs.BOM_UTF16_BE),
)


def detect_encoding(sample: bytes) -> Encoding | None:
    """Detect the encoding of a file by its first bytes; `None` when it is not text."""
    for encoding in _MARKED:
        if sample.startswith(encoding.mark):
            return encoding
    sample = sample[:SAMPLE]
    if b"\0" in sample or len(_CONTROL.findall(sample)) > len(sample) * _MAX_CONTROL_SHARE:
        return None
    text = sample.decode("utf-8", "surrogateescape")
    return None if count_undecodable(text) > max(_ALWAYS_TOLERATED, len(text) * _MAX_UNDECODABLE_SHARE) else UTF8


def count_undecodable(text: str) -> int:
    """Count the bytes of a decoded text that were not UTF-8."""
    return 0 if text.isascii() else len(_UNDECODABLE.findall(text))


def skip_partial_character(data: _Bytes) -> _Bytes:
    """Drop the end of a UTF-8 character at the start of the bytes, where its beginning was cut off."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def normalize_line_ends(text: str) -> str:
    """Replace every line end (CRLF or CR) by a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class TextFile:
    """The text of a file: `raw` as it is, and `text` with a line feed for every line end. Maps offsets between them."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.text = normalize_line_ends(raw)
        # The offsets in `text` of line feeds that are two characters in `raw`.
        self._pairs: list[int] = []
        if len(self.text) != len(raw):
            found = (match.start() for match in re.finditer("\r\n", raw))
            self._pairs = [place - earlier for earlier, place in enumerate(found)]
        # The line end that counts for all offsets of `raw` from the first to the second.
        self._line_end = (0, -1, "")

    def find_raw_offset(self, place: int) -> int:
        """Find the offset in `raw` of an offset in `text`."""
        return place + bisect_left(self._pairs, place)

    def find_line(self, place: int) -> int:
        """Find the number of the line of an offset in `text`."""
        return self.text.count("\n", 0, place) + 1

    def restore_line_ends(self, new: str, raw_start: int, raw_end: int) -> str:
        """Give a text that replaces a passage of `raw` the line ends that the file has there."""
        if "\n" not in new:
            return new
        lines = new.split("\n")
        ends = _LINE_END.findall(self.raw, raw_start, raw_end)
        found = [end.join(lines) for end in (self.find_line_end(raw_start), "\n", "\r\n", "\r")]
        if len(ends) == len(lines) - 1:
            # The number of lines is the same: each keeps its own line end, even where they are mixed.
            found.insert(0, "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True)))
        # A CR before a LF would be one line end instead of two.
        before, after = self.raw[raw_start - 1 : raw_start], self.raw[raw_end : raw_end + 1]
        wanted = normalize_line_ends(before) + new + normalize_line_ends(after)
        return next((text for text in found if normalize_line_ends(before + text + after) == wanted), found[0])

    def find_line_end(self, raw_place: int) -> str:
        """Find the line end used around an offset of `raw`: the next one, else the one before."""
        first, last, found = self._line_end
        if not first <= raw_place <= last:
            # Kept, because the same one may be far away from each of many offsets.
            match = _LINE_END.search(self.raw, raw_place)
            found = self._find_last_line_end(raw_place) if match is None else match[0]
            self._line_end = raw_place, len(self.raw) if match is None else match.start(), found
        return found

    def _find_last_line_end(self, raw_place: int) -> str:
        """Find the line end before an offset of `raw` after which there is none."""
        if self.raw.endswith("\r\n", 0, raw_place):
            return "\r\n"
        last = max(self.raw.rfind("\n", 0, raw_place), self.raw.rfind("\r", 0, raw_place))
        if last < 0:
            return "\n"
        return "\r\n" if self.raw[last - 1 : last + 1] == "\r\n" else self.raw[last]
