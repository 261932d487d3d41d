"""Text and the bytes it came from: whatever is decoded here and not changed is the same bytes again."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from dataclasses import dataclass

SAMPLE = 8_192
"""How many bytes of a file are enough to tell what it is."""

_STRANGE = re.compile("[\udc80-\udcff]")
_CONTROL = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
# Text in another encoding than these has so many bytes that make no sense that showing it would be no use.
_MOST_STRANGE = 0.3
_FEW = 4
_MOST_CONTROL = 0.1


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file's bytes are text: the codec, and the mark in front that says so."""

    codec: str
    mark: bytes = b""

    @property
    def errors(self) -> str:
        """Bytes that are no UTF-8 are kept as single surrogates, single surrogates of UTF-16 as themselves."""
        return "surrogateescape" if self.codec == "utf-8" else "surrogatepass"

    def decode(self, data: bytes) -> str:
        """The text of a whole file; `UnicodeError` where its bytes could not be brought back."""
        text = data[len(self.mark) :].decode(self.codec, self.errors)
        if self.encode(text) != data:
            raise UnicodeError("not the same bytes again")
        return text

    def encode(self, text: str) -> bytes:
        """A whole file of the text."""
        return self.mark + text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8")
# The marks of UTF-32 begin with those of UTF-16.
_MARKED = (
    Encoding("utf-32-le", codecs.BOM_UTF32_LE),
    Encoding("utf-32-be", codecs.BOM_UTF32_BE),
    Encoding("utf-8", codecs.BOM_UTF8),
    Encoding("utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("utf-16-be", codecs.BOM_UTF16_BE),
)


def detect_encoding(sample: bytes) -> Encoding | None:
    """The encoding of a file by its first bytes; `None` when it is no text that could be shown."""
    for encoding in _MARKED:
        if sample.startswith(encoding.mark):
            return encoding
    sample = sample[:SAMPLE]
    if b"\0" in sample or len(_CONTROL.findall(sample)) > len(sample) * _MOST_CONTROL:
        return None
    text = sample.decode("utf-8", "surrogateescape")
    return None if count_undecodable(text) > max(_FEW, len(text) * _MOST_STRANGE) else UTF8


def count_undecodable(text: str) -> int:
    """How many bytes of a decoded text were no UTF-8."""
    return 0 if text.isascii() else len(_STRANGE.findall(text))


_END = re.compile(r"\r\n?|\n")


def normalize_line_ends(text: str) -> str:
    """The text with a line feed for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class TextFile:
    """A file's text: `raw` as it is, `text` with a line feed for every line end, and the way from there to there."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.text = normalize_line_ends(raw)
        # Where a line feed of `text` stands for two characters of `raw`.
        self._pairs: list[int] = []
        if len(self.text) != len(raw):
            found = (match.start() for match in re.finditer("\r\n", raw))
            self._pairs = [place - earlier for earlier, place in enumerate(found)]

    def find_raw_offset(self, place: int) -> int:
        """Where a place of `text` is in `raw`."""
        return place + bisect_left(self._pairs, place)

    def find_line(self, place: int) -> int:
        """The number of the line that a place of `text` is in."""
        return self.text.count("\n", 0, place) + 1

    def restore_line_ends(self, new: str, raw_start: int, raw_end: int) -> str:
        """A text that takes the place of a passage of `raw`, with line ends as the file has them there."""
        if "\n" not in new:
            return new
        lines = new.split("\n")
        ends = _END.findall(self.raw, raw_start, raw_end)
        if len(ends) != len(lines) - 1:
            return self.find_line_end(raw_start).join(lines)
        # As many lines as before: each keeps the end it had, though they may be mixed.
        return "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))

    def find_line_end(self, raw_place: int) -> str:
        """How lines end around a place of `raw`: as the one that ends next, else as the one that ended last."""
        match = _END.search(self.raw, raw_place)
        if match is not None:
            return match[0]
        if self.raw.endswith("\r\n", 0, raw_place):
            return "\r\n"
        last = max(self.raw.rfind("\n", 0, raw_place), self.raw.rfind("\r", 0, raw_place))
        if last < 0:
            return "\n"
        return "\r\n" if self.raw[last - 1 : last + 1] == "\r\n" else self.raw[last]
