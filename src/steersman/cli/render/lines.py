"""Wraps and crops styled text. The text must be sanitized already; `terminal.theme` writes the escape sequences."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.cells import cell_len, chop_cells, get_character_cell_size

from steersman.cli.terminal.spans import Span, paint, slice_spans

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
# The columns of a row before the last one, or the indent of a line, and the rest.
_ROW = re.compile(r"(.*  +| +)(\S.*)")
_BELOW = 4
TAB = 4
"""How many columns a tab takes at most."""


# Joins characters into one emoji on terminals that support it; others show them one by one.
_JOINER = "\u200d"
_TONES = "\U0001f3fb-\U0001f3ff"
_JOINED = re.compile(f"[{_JOINER}\ufe0f{_TONES}]")
_PICTURE = re.compile(rf".(?:{_JOINER}.|[{_JOINER}\ufe0f{_TONES}\u0300-\u036f\u20e3])*", re.DOTALL)
_TONE = re.compile(f"[{_TONES}]")


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
        spans = [(text.expandtabs(TAB), style) for text, style in spans]
        plain = join_text(spans)
    if "\n" not in plain and measure_width(plain) <= room:
        return [list(spans)]
    cuts: list[tuple[int, int]] = []
    start = 0
    for line in plain.split("\n"):
        cuts += [(start + low, start + high) for low, high in _find_breaks(line, max(1, room))]
        start += len(line) + 1
    return list(slice_spans(spans, cuts))


def wrap_rows(text: str, style: str, room: int) -> list[list[Span]]:
    """Wraps lines of which some are rows of a table, with two spaces or more between columns.

    What does not fit goes on below the last column. Where that has too little room, the last column of all such rows
    is below the rest, indented.
    """
    lines, room = text.expandtabs(TAB).split("\n"), max(1, room)
    late = {_find_column(line) for line in lines if measure_width(line) > room}
    below = {column for column in late if column > _limit_indent(room)}
    return [piece for line in lines for piece in _wrap_row(line, style, room, below)]


def _limit_indent(room: int) -> int:
    """How far the last column may be indented: at most by half, and two columns are left for a wide character."""
    return max(0, min(room // 2, room - 2))


def _find_column(line: str) -> int:
    """Finds where the last column of a row begins; 0 if a line is no row."""
    row = _ROW.fullmatch(line.rstrip())
    return 0 if row is None else measure_width(row[1])


def _wrap_row(line: str, style: str, room: int, below: Collection[int]) -> list[list[Span]]:
    row, column = _ROW.fullmatch(line.rstrip()), _find_column(line)
    if row is None or (measure_width(line) <= room and column not in below):
        return wrap_spans([(line, style)], room)
    before, last = row.groups()
    above = list[list[Span]]()
    if column in below:
        above = wrap_spans([(before.rstrip(), style)], room) if before.strip() else []
        column = min(_BELOW, _limit_indent(room))
        before = " " * column
    pieces = wrap_spans([(last, style)], room - column)
    return [*above, *([(" " * column if index else before, style), *piece] for index, piece in enumerate(pieces))]


def fold(text: str, room: int) -> list[str]:
    """Splits a line of code or output into pieces of at most `room` columns; keeps every character."""
    text = text.expandtabs(TAB)
    return [text] if measure_width(text) <= room else chop(text, room)


def fold_spans(spans: Sequence[Span], room: int) -> list[list[Span]]:
    """Splits a line of spans, without tabs, into pieces of at most `room` columns; keeps every character."""
    cuts: list[tuple[int, int]] = []
    start = 0
    for piece in fold(join_text(spans), room):
        cuts.append((start, start + len(piece)))
        start += len(piece)
    return list(slice_spans(spans, cuts))


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
    # Without the spaces at the end: after each of them, all that follow would be looked at again.
    for match in _WORD.finditer(line.rstrip(" ")):
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
