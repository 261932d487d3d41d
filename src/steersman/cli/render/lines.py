"""Wraps, crops and colours styled text; the only module that writes escape sequences into the rendered output of a run.

The text must be sanitized already. A style is the parameters of an SGR sequence, such as `1;36`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from rich.cells import cell_len, chop_cells, get_character_cell_size

Span: TypeAlias = tuple[str, str]
"""A text and its style."""

BOLD = "1"
DIM = "2"
ITALIC = "3"
UNDERLINED = "4"
STRUCK = "9"
RED = "31"
GREEN = "32"
YELLOW = "33"
CYAN = "36"
FAINT_ITALIC = "2;3"

_WIDE = "\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff60"
_CLOSING = "\u3001\u3002\u300d\u300f\uff01\uff09\uff0c\uff1a\uff1b\uff1f"
# A line may break at spaces, and after an ideograph with its closing punctuation.
_WORD = re.compile(rf" *(?:[{_WIDE}][{_CLOSING}]*|[^ {_WIDE}]+)")
_TAB = 4

# Joins characters into one emoji on terminals that support it; others show them one by one.
_JOINER = "\u200d"
_TONES = "\U0001f3fb-\U0001f3ff"
_JOINED = re.compile(f"[{_JOINER}\ufe0f{_TONES}]")
_PICTURE = re.compile(rf".(?:{_JOINER}.|[{_JOINER}\ufe0f{_TONES}\u0300-\u036f\u20e3])*", re.DOTALL)
_TONE = re.compile(f"[{_TONES}]")


def paint(spans: Iterable[Span], *, color: bool) -> str:
    """Returns the spans as text for a terminal; without `color`, no escape sequence."""
    if not color:
        return join_text(spans)
    return "".join([f"\x1b[{style}m{text}\x1b[0m" if style and text else text for text, style in spans])


def join_text(spans: Iterable[Span]) -> str:
    """Returns the text of the spans."""
    return "".join([text for text, _ in spans])


def measure_width(text: str) -> int:
    """Returns how many columns a text takes at most, on any terminal."""
    if not _JOINED.search(text):
        return cell_len(text)
    return sum(_measure_emoji(match[0]) for match in _PICTURE.finditer(text))


def _measure_emoji(text: str) -> int:
    apart = sum(2 if _TONE.match(character) else get_character_cell_size(character) for character in text)
    return max(cell_len(text), apart)


def chop(text: str, room: int) -> list[str]:
    """Splits a text into pieces of at most `room` columns; keeps every character."""
    if not _JOINED.search(text):
        return [piece for piece in chop_cells(text, max(2, room)) if piece] or [""]
    pieces, used = [""], 0
    for match in _PICTURE.finditer(text):
        size = _measure_emoji(match[0])
        if used + size > room and pieces[-1]:
            pieces.append("")
            used = 0
        pieces[-1] += match[0]
        used += size
    return pieces


def measure_spans(spans: Iterable[Span]) -> int:
    """Returns how many columns the spans take."""
    return sum(measure_width(text) for text, _ in spans)


def wrap_spans(spans: Sequence[Span], room: int) -> list[list[Span]]:
    """Wraps the spans into lines of at most `room` columns, between words if possible."""
    plain = join_text(spans)
    if "\t" in plain:
        spans = [(text.expandtabs(_TAB), style) for text, style in spans]
        plain = join_text(spans)
    if "\n" not in plain and measure_width(plain) <= room:
        return [list(spans)]
    cuts: list[tuple[int, int]] = []
    start = 0
    for line in plain.split("\n"):
        cuts += [(start + low, start + high) for low, high in _find_breaks(line, max(1, room))]
        start += len(line) + 1
    return list(_slice(spans, cuts))


def fold(text: str, room: int) -> list[str]:
    """Splits a line of code or output into pieces of at most `room` columns; keeps every character."""
    text = text.expandtabs(_TAB)
    return [text] if measure_width(text) <= room else chop(text, room)


def crop(text: str, room: int) -> str:
    """Truncates a text to `room` columns, with an ellipsis."""
    if measure_width(text) <= room:
        return text
    if room <= 1:
        return "\u2026" if room == 1 else ""
    kept = chop(text, room - 1)[0]
    # Pieces have at least two columns, so that a wide character fits.
    return f"{kept.rstrip() if measure_width(kept) < room else ''}\u2026"


def indent(lines: Iterable[str], first: Span, rest: Span, *, color: bool) -> list[str]:
    """Puts a prefix before each line: `first` before the first one, `rest` before the others."""
    shown = paint((first,), color=color), paint((rest,), color=color)
    bare = paint(((rest[0].rstrip(" "), rest[1]),), color=color)
    return [
        f"{shown[0]}{line}" if index == 0 else f"{shown[1] if line else bare}{line}" for index, line in enumerate(lines)
    ]


def _find_breaks(line: str, room: int) -> Iterator[tuple[int, int]]:
    """Yields where each piece of a line starts and ends; spaces at a break belong to no piece."""
    if measure_width(line) <= room:
        yield 0, len(line.rstrip(" "))
        return
    start = end = used = 0
    for match in _WORD.finditer(line):
        size = measure_width(match[0])
        if used + size <= room:
            end, used = match.end(), used + size
            continue
        if used:
            yield start, end
        word = match[0].lstrip(" ")
        start = match.end() - len(word)
        *whole, last = chop(word, room)
        for piece in whole:
            yield start, start + len(piece)
            start += len(piece)
        end, used = match.end(), measure_width(last)
    yield start, end


def _slice(spans: Sequence[Span], cuts: Sequence[tuple[int, int]]) -> Iterator[list[Span]]:
    """Yields the parts of the spans between each pair of positions, in one pass."""
    index = offset = 0
    for start, end in cuts:
        line: list[Span] = []
        while index < len(spans) and offset + len(spans[index][0]) <= start:
            offset += len(spans[index][0])
            index += 1
        here, place = index, offset
        while here < len(spans) and place < end:
            text, style = spans[here]
            part = text[max(0, start - place) : end - place]
            if part:
                line.append((part, style))
            place += len(text)
            here += 1
        yield line
