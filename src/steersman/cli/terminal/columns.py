"""Wraps, pads, truncates and aligns text to the width of the terminal. The text must be sanitized already."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias

from steersman.cli.terminal.theme import translate_style

Style: TypeAlias = Literal["bold", "dim", "good", "warn", "bad"]

_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "good": "32", "warn": "33", "bad": "31"}
_NARROWEST = 20
# Double width since Unicode 16; the tables of Python are older before 3.14.
_WIDENED = re.compile("[\u2630-\u2637\u268a-\u268f\u4dc0-\u4dff\U0001d300-\U0001d356\U0001d360-\U0001d376]")


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


def measure_widest(text: str) -> int:
    """Returns how many columns a line takes at most: two for each character that is not ASCII.

    How wide such a character is depends on the terminal, its font and its version of Unicode. Text that must not leave
    its row, as in a question, is measured by this; a row that ends early does no harm.
    """
    return len(text) if text.isascii() else 2 * len(text) - len(text.encode("ascii", "ignore"))


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


def wrap(text: str, width: int | None, *, indent: str = "", measure: Callable[[str], int] = measure_cells) -> list[str]:
    """Wraps a text into lines that start with `indent`; breaks words that are too long."""
    room = None if width is None else max(1, width - measure(indent))
    lines: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        lines += [f"{indent}{line}".rstrip() for line in _wrap_paragraph(paragraph, room, measure)]
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
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" or _WIDENED.match(character) else 1


def _wrap_paragraph(paragraph: str, room: int | None, measure: Callable[[str], int]) -> list[str]:
    """Wraps one paragraph; one line if `room` is `None`."""
    if room is None or measure(paragraph) <= room:
        return [paragraph]
    lines: list[str] = []
    words = paragraph.split()
    margin = paragraph[: len(paragraph) - len(paragraph.lstrip())][: room // 2]
    line = ""
    for word in words:
        joined = f"{line} {word}" if line else margin + word
        if measure(joined) <= room:
            line = joined
            continue
        if line:
            lines.append(line)
        *broken, line = split_cells(joined if not lines and not line else word, room, measure)
        lines += broken
    return [*lines, line]


def split_cells(text: str, room: int, measure: Callable[[str], int] = measure_cells) -> list[str]:
    """Splits a text into pieces of at most `room` columns; keeps every blank, and accents with their letter."""
    if text.isascii():
        return [text[at : at + room] for at in range(0, len(text), room)] or [""]
    found: list[str] = []
    piece, taken = "", 0
    for letter in _split_letters(text):
        for part in [letter] if measure(letter) <= room else letter:
            wide = measure(part)
            if piece and taken + wide > room:
                found.append(piece)
                piece, taken = "", 0
            piece += part
            taken += wide
    return [*found, piece]


def _split_letters(text: str) -> Iterator[str]:
    """Yields each character with the accents on it."""
    start = 0
    for at, character in enumerate(text):
        if at > start and unicodedata.category(character) not in ("Mn", "Me"):
            yield text[start:at]
            start = at
    yield text[start:]
