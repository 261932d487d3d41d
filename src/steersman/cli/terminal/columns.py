"""Text in columns: as wide as the window lets it be, and whole where there is no window. What it is given is safe."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias

Style: TypeAlias = Literal["bold", "dim", "good", "warn", "bad"]

_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "good": "32", "warn": "33", "bad": "31"}
_NARROWEST = 20


@dataclass(frozen=True, slots=True)
class Paper:
    """What is written on: `width` is `None` where nothing has to be cut, `color` says whether styles are shown."""

    width: int | None = None
    color: bool = False

    def styled(self, text: str, style: Style) -> str:
        """The text in a style, where styles are shown."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.color and text else text


def paper_of(stream: TextIO | None = None) -> Paper:
    """The paper behind a stream: a window has a width, and colours unless NO_COLOR says otherwise."""
    target: TextIO = sys.stdout if stream is None else stream
    if not target.isatty():
        return Paper()
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Paper(max(_NARROWEST, shutil.get_terminal_size().columns), color=color)


def cells(text: str) -> int:
    """How many columns a text of one line takes."""
    if text.isascii():
        return len(text)
    return sum(_cell(character) for character in text)


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits with a mark that it goes on."""
    if cells(text) <= width:
        return text
    taken, kept = 0, ""
    for character in text:
        taken += _cell(character)
        if taken > width - 1:
            break
        kept += character
    return kept + "…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces up to a width, behind it or in front of it."""
    space = " " * (width - cells(text))
    return space + text if right else text + space


def counted(number: int, noun: str) -> str:
    """A number of things, as in `1 message` and `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def wrapped(text: str, width: int | None, *, indent: str = "") -> list[str]:
    """The words of a text in lines, each behind the indent; a word that is too long is broken."""
    room = None if width is None else max(1, width - cells(indent))
    lines: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        lines += [f"{indent}{line}".rstrip() for line in _lines(paragraph, room)]
    return lines


def table(
    rows: Iterable[Sequence[str]], *, width: int | None, right: Iterable[int] = (), gap: str = "  "
) -> list[list[str]]:
    """The cells of rows, padded to their columns; the last column takes what is left and is cut there."""
    rows = [list(row) for row in rows]
    if not rows:
        return []
    turned = set(right)
    widths = [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))]
    before = sum(widths[:-1]) + len(gap) * (len(widths) - 1)
    last = None if width is None else max(1, width - before)
    for row in rows:
        for at in range(len(row) - 1):
            row[at] = padded(row[at], widths[at], right=at in turned) + gap
        row[-1] = row[-1] if last is None else cut(row[-1], last)
    return rows


def _cell(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _lines(paragraph: str, room: int | None) -> list[str]:
    """One paragraph in lines; without a room it is one line."""
    if room is None or cells(paragraph) <= room:
        return [paragraph]
    lines: list[str] = []
    words = paragraph.split()
    margin = paragraph[: len(paragraph) - len(paragraph.lstrip())][: room // 2]
    line = ""
    for word in words:
        joined = f"{line} {word}" if line else margin + word
        if cells(joined) <= room:
            line = joined
            continue
        if line:
            lines.append(line)
        *broken, line = pieces(joined if not lines and not line else word, room)
        lines += broken
    return [*lines, line]


def pieces(text: str, room: int) -> list[str]:
    """A text in pieces of at most so many cells, cut where they end: no blank of it is lost."""
    if text.isascii():
        return [text[at : at + room] for at in range(0, len(text), room)] or [""]
    found: list[str] = []
    piece, taken = "", 0
    for character in text:
        wide = _cell(character)
        if piece and taken + wide > room:
            found.append(piece)
            piece, taken = "", 0
        piece += character
        taken += wide
    return [*found, piece]
