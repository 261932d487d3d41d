"""Records a real run as a picture: runs the command in a terminal and turns what it shows into an SVG.

    python -m docs.record -- steersman --model local: "What does this project do?"

The picture is self-contained: no external fonts, styles or scripts.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyte
from rich.cells import cell_len

FIRST_RUN = Path(__file__).parent / "images" / "first-run.svg"

_PAPER, _INK, _FRAME = "#1d2026", "#d5d8de", "#2b2f37"
_COLOURS = {
    "default": _INK,
    "red": "#e0787f",
    "green": "#93c07a",
    "brown": "#d9b36c",
    "cyan": "#74b8c4",
    "blue": "#7fa7d8",
    "magenta": "#b993d6",
    "white": _INK,
    "black": "#6b717d",
}
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_CELL, _LINE, _SIZE, _MARGIN, _BAR = 8.4, 19, 14, 18, 34

# Words with one space between them; a character that a font may lack is a piece of its own.
_PIECE = re.compile("[!-\u024f]+(?: [!-\u024f]+)*|[^ ]")


class Look(NamedTuple):
    """The style of a text."""

    color: str = "default"
    bold: bool = False
    italic: bool = False
    underlined: bool = False
    faint: bool = False


class Run(NamedTuple):
    """A text of one style, and the column where it starts."""

    column: int
    text: str
    look: Look


class _Screen(pyte.HistoryScreen):
    """A screen that supports faint text; it is stored as blinking text, which nothing sends."""

    def select_graphic_rendition(self, *attrs: int, **kwargs: Any) -> None:
        super().select_graphic_rendition(*[5 if attribute == 2 else attribute for attribute in attrs], **kwargs)


def record_command(command: Sequence[str], *, columns: int = 88, rows: int = 30) -> list[list[Run]]:
    """Runs a command in a terminal until it ends; returns the lines it leaves, including those scrolled away."""
    screen: Any = _Screen(columns, rows, history=5_000)
    stream = pyte.ByteStream(screen)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    try:
        while data := _read_terminal(master):
            stream.feed(data)
    finally:
        os.close(master)
        process.wait()
    lines = [*screen.history.top, *(screen.buffer[row] for row in range(rows))]
    drawn = [list(_split_runs(line, columns)) for line in lines]
    while drawn and not drawn[-1]:
        drawn.pop()
    return drawn


def render_svg(lines: Sequence[Sequence[Run]], *, columns: int = 88, title: str = "") -> str:
    """Renders a picture of a terminal with these lines."""
    width = round(columns * _CELL + 2 * _MARGIN)
    height = round(len(lines) * _LINE + _BAR + 2 * _MARGIN)
    body = "\n".join(_draw(lines))
    words = escape(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{words}">\n'
        f'<rect width="{width}" height="{height}" rx="9" fill="{_PAPER}"/>\n'
        f'<path d="M0 {_BAR}V9a9 9 0 0 1 9-9h{width - 18}a9 9 0 0 1 9 9v{_BAR - 9}z" fill="{_FRAME}"/>\n'
        f'<g fill="#6b717d"><circle cx="20" cy="17" r="5"/><circle cx="38" cy="17" r="5"/>'
        f'<circle cx="56" cy="17" r="5"/></g>\n'
        f'<text x="{width / 2:g}" y="22" text-anchor="middle" font-family="{_FONT}" font-size="12" '
        f'fill="#9aa0ab">{words}</text>\n'
        f'<g font-family="{_FONT}" font-size="{_SIZE}" xml:space="preserve">\n{body}\n</g>\n</svg>\n'
    )


def _read_terminal(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:  # the terminal was closed
        return b""


def _split_runs(line: Any, columns: int) -> Iterator[Run]:
    """Yields the pieces of a line with the same style, without trailing blanks."""
    cells = [(column, line[column]) for column in range(columns)]
    while cells and cells[-1][1].data in (" ", ""):
        cells.pop()
    for look, group in groupby(cells, key=lambda cell: _read_look(cell[1])):
        pieces = list(group)
        text = "".join(char.data for _, char in pieces)
        if text.strip():
            yield Run(pieces[0][0], text, look)


def _read_look(char: Any) -> Look:
    return Look(char.fg, char.bold, char.italics, char.underscore, char.blink)


def _draw(lines: Iterable[Sequence[Run]]) -> Iterator[str]:
    for number, line in enumerate(lines):
        y = _BAR + _MARGIN + number * _LINE + _SIZE
        for run in line:
            for match in _PIECE.finditer(run.text):
                # The length is given, so that every font puts what follows into its column.
                x = _MARGIN + (run.column + cell_len(run.text[: match.start()])) * _CELL
                length = cell_len(match[0]) * _CELL
                yield (
                    f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs" '
                    f"{_format_style(run.look)}>{escape(match[0], quote=False)}</text>"
                )


def _format_style(look: Look) -> str:
    parts = [f'fill="{_COLOURS.get(look.color, _INK)}"']
    if look.bold:
        parts.append('font-weight="bold"')
    if look.italic:
        parts.append('font-style="italic"')
    if look.underlined:
        parts.append('text-decoration="underline"')
    if look.faint:
        parts.append('opacity="0.6"')
    return " ".join(parts)


def _make_prompt(command: Sequence[str]) -> list[Run]:
    return [Run(0, "$", Look("green")), Run(2, shlex.join(command).replace("'", '"'), Look(bold=True))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Records a command and writes its picture."""
    parser = argparse.ArgumentParser(prog="python -m docs.record", description=cast(str, __doc__).split("\n")[0])
    parser.add_argument("--output", type=Path, default=FIRST_RUN)
    parser.add_argument("--columns", type=int, default=88)
    parser.add_argument("--title", default="steersman")
    parser.add_argument("command", nargs="+", help="the command, after --")
    options = parser.parse_args(arguments)
    command = cast(list[str], options.command)
    lines = [_make_prompt(command), *record_command(command, columns=options.columns)]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(render_svg(lines, columns=options.columns, title=options.title), encoding="utf-8")
    sys.stdout.write(f"{options.output}: {len(lines)} lines\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
