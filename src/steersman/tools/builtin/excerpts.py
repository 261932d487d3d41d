"""What is shown of a file where a search found something: numbered lines of bounded length, read where they are."""

from __future__ import annotations

import os
from collections.abc import Iterable

from steersman.tools.builtin.engines import Hit

MAX_LINE = 300
_BEFORE_MATCH = 80
_WINDOW = 1 << 15
_MORE = "…"


def excerpt(descriptor: int, hits: Iterable[Hit], context: int) -> list[str]:
    """The lines that fit as `12: text`, those around them as `13- text`, and `--` where lines are left out between."""
    lines: dict[int, tuple[str, str]] = {}
    for hit in hits:
        if context:
            _add_context(lines, descriptor, hit, context)
        lines[hit.line] = (":", _own_line(descriptor, hit))
    shown: list[str] = []
    last = 0
    for number in sorted(lines):
        if context and shown and number > last + 1:
            shown.append("--")
        mark, text = lines[number]
        shown.append(f"{number}{mark} {text}")
        last = number
    return shown


def _own_line(descriptor: int, hit: Hit) -> str:
    """The line of a match, from a little before the match where the line is long."""
    skipped = max(0, hit.column - 1 - _BEFORE_MATCH) if hit.column > MAX_LINE - _BEFORE_MATCH else 0
    data = os.pread(descriptor, MAX_LINE * 4 + 4, hit.offset + skipped)
    return _MORE * (skipped > 0) + clipped(
        _without_stump(data.partition(b"\n")[0]) if skipped else data.partition(b"\n")[0]
    )


def _without_stump(data: bytes) -> bytes:
    """Without the bytes of a character that began before."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def _add_context(lines: dict[int, tuple[str, str]], descriptor: int, hit: Hit, context: int) -> None:
    start = max(0, hit.offset - _WINDOW)
    before = os.pread(descriptor, hit.offset - start, start).split(b"\n")[:-1]
    for back, data in enumerate(reversed(before[-context:]), 1):
        cut = start > 0 and back == len(before)
        lines.setdefault(hit.line - back, ("-", _MORE * cut + clipped(_without_stump(data) if cut else data)))
    after = os.pread(descriptor, _WINDOW, hit.offset)
    following = after.split(b"\n")[1:]
    if following and not following[-1]:
        # Nothing behind the last line break is no line.
        following.pop()
    for ahead, data in enumerate(following[:context], 1):
        lines.setdefault(hit.line + ahead, ("-", clipped(data)))


def clipped(data: bytes) -> str:
    """A line as text, and no more of it than is worth showing."""
    text = data.removesuffix(b"\r")[: MAX_LINE * 4 + 4].decode("utf-8", "replace")
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}{_MORE}"
