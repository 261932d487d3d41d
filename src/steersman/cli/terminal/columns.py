"""Wraps, pads, truncates and aligns text to the width of the terminal. The text must be sanitized already."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias

from steersman.cli.terminal.theme import translate_style

Style: TypeAlias = Literal["bold", "dim", "good", "warn", "bad"]

_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "good": "32", "warn": "33", "bad": "31"}
_NARROWEST = 20


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where text is printed: `width` in columns, `None` if unlimited; `color` says whether styles are used."""

    width: int | None = None
    color: bool = False

    def style(self, text: str, style: Style) -> str:
        """Returns the text in a style, if colours are on."""
        code = translate_style(_CODES[style]) if self.color else ""
        return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def make_canvas(stream: TextIO | None = None) -> Canvas:
    """Returns the canvas of a stream: a terminal has a width, and colours unless NO_COLOR is set."""
    target: TextIO = sys.stdout if stream is None else stream
    if not target.isatty():
        return Canvas()
    return Canvas(max(_NARROWEST, shutil.get_terminal_size().columns), color=allows_color())


def allows_color() -> bool:
    """Whether the environment allows colours on a terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def measure_cells(text: str) -> int:
    """Returns how many columns a line takes."""
    if text.isascii():
        return len(text)
    return sum(_measure_cell(character) for character in text)


def truncate(text: str, width: int) -> str:
    """Truncates a text to a width, with an ellipsis."""
    if measure_cells(text) <= width:
        return text
    taken, kept = 0, ""
    for character in text:
        taken += _measure_cell(character)
        if taken > width - 1:
            break
        kept += character
    return kept + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Pads a text with spaces to a width; `right` aligns it to the right."""
    space = " " * (width - measure_cells(text))
    return space + text if right else text + space


def wrap(text: str, width: int | None, *, indent: str = "") -> list[str]:
    """Wraps a text into lines that start with `indent`; breaks words that are too long."""
    room = None if width is None else max(1, width - measure_cells(indent))
    lines: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        lines += [f"{indent}{line}".rstrip() for line in _wrap_paragraph(paragraph, room)]
    return lines


def align_table(
    rows: Iterable[Sequence[str]], *, width: int | None, right: Iterable[int] = (), gap: str = "  "
) -> list[list[str]]:
    """Pads the cells of each row to the width of their column; the last column is truncated to the remaining width."""
    rows = [list(row) for row in rows]
    if not rows:
        return []
    turned = set(right)
    widths = [max(measure_cells(row[at]) for row in rows) for at in range(len(rows[0]))]
    before = sum(widths[:-1]) + len(gap) * (len(widths) - 1)
    last = None if width is None else max(1, width - before)
    for row in rows:
        for at in range(len(row) - 1):
            row[at] = pad(row[at], widths[at], right=at in turned) + gap
        row[-1] = row[-1] if last is None else truncate(row[-1], last)
    return rows


def _measure_cell(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _wrap_paragraph(paragraph: str, room: int | None) -> list[str]:
    """Wraps one paragraph; one line if `room` is `None`."""
    if room is None or measure_cells(paragraph) <= room:
        return [paragraph]
    lines: list[str] = []
    words = paragraph.split()
    margin = paragraph[: len(paragraph) - len(paragraph.lstrip())][: room // 2]
    line = ""
    for word in words:
        joined = f"{line} {word}" if line else margin + word
        if measure_cells(joined) <= room:
            line = joined
            continue
        if line:
            lines.append(line)
        *broken, line = split_cells(joined if not lines and not line else word, room)
        lines += broken
    return [*lines, line]


def split_cells(text: str, room: int) -> list[str]:
    """Splits a text into pieces of at most `room` columns; keeps every blank."""
    if text.isascii():
        return [text[at : at + room] for at in range(0, len(text), room)] or [""]
    found: list[str] = []
    piece, taken = "", 0
    for character in text:
        wide = _measure_cell(character)
        if piece and taken + wide > room:
            found.append(piece)
            piece, taken = "", 0
        piece += character
        taken += wide
    return [*found, piece]
