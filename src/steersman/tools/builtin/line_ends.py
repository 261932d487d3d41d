"""Line ends: the model writes line feeds, a file has what it has, and keeps it."""

from __future__ import annotations

import re
from bisect import bisect_left

_END = re.compile(r"\r\n?|\n")


def unified(text: str) -> str:
    """The text with a line feed for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class Page:
    """A file's text: `raw` as it is, `text` with a line feed for every line end, and the way from there to there."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.text = unified(raw)
        # Where a line feed of `text` stands for two characters of `raw`.
        self._pairs: list[int] = []
        if len(self.text) != len(raw):
            found = (match.start() for match in re.finditer("\r\n", raw))
            self._pairs = [place - earlier for earlier, place in enumerate(found)]

    def raw_place(self, place: int) -> int:
        """Where a place of `text` is in `raw`."""
        return place + bisect_left(self._pairs, place)

    def line(self, place: int) -> int:
        """The number of the line that a place of `text` is in."""
        return self.text.count("\n", 0, place) + 1

    def with_ends(self, new: str, raw_start: int, raw_end: int) -> str:
        """A text that takes the place of a passage of `raw`, with line ends as the file has them there."""
        if "\n" not in new:
            return new
        lines = new.split("\n")
        ends = _END.findall(self.raw, raw_start, raw_end)
        if len(ends) != len(lines) - 1:
            return self.end_at(raw_start).join(lines)
        # As many lines as before: each keeps the end it had, though they may be mixed.
        return "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))

    def end_at(self, raw_place: int) -> str:
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
