"""A table of styled cells: its columns side by side where they fit, one cell a line where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from steersman.cli.render.lines import BOLD, DIM, Span, cells, flowed, painted

Cell: TypeAlias = Sequence[Span]
Side: TypeAlias = Literal["left", "right", "center"]

_GAP = 2
_NARROWEST = 6


def table(
    header: Sequence[Cell], rows: Sequence[Sequence[Cell]], sides: Sequence[Side], width: int, *, color: bool
) -> list[str]:
    """The lines of a table."""
    head = [[(text, _bold(style)) for text, style in cell] for cell in header]
    widths = _fitted([max(cells(row[column]) for row in (head, *rows)) for column in range(len(head))], width)
    if widths is None:
        return _records(head, rows, width, color=color)
    lines = _row(head, widths, sides, color=color)
    lines.append(painted([("  ".join("\u2500" * size for size in widths), DIM)], color=color))
    for row in rows:
        lines += _row(row, widths, sides, color=color)
    return lines


def _bold(style: str) -> str:
    return f"{BOLD};{style}" if style else BOLD


def _fitted(natural: list[int], width: int) -> list[int] | None:
    """A width for each column, the widest giving way first; `None` where some would be too narrow to read."""
    widths = [max(1, size) for size in natural]
    room = width - _GAP * (len(widths) - 1)
    while sum(widths) > room:
        widest = max(widths)
        if widest <= _NARROWEST:
            return None
        # As far as the next widest at once, so that long cells do not cost a step per column.
        others = [size for size in widths if size < widest]
        least = max(_NARROWEST, max(others, default=0))
        count = widths.count(widest)
        step = max(1, min(widest - least, -(-(sum(widths) - room) // count)))
        widths = [size - step if size == widest else size for size in widths]
    return widths


def _row(row: Sequence[Cell], widths: Sequence[int], sides: Sequence[Side], *, color: bool) -> list[str]:
    columns = [flowed(cell, size) for cell, size in zip(row, widths, strict=True)]
    lines: list[str] = []
    for index in range(max(map(len, columns))):
        spans: list[Span] = []
        for column, size, side in zip(columns, widths, sides, strict=True):
            part = column[index] if index < len(column) else []
            spans += [*_padded(part, size, side), (" " * _GAP, "")]
        lines.append(_trimmed(spans, color=color))
    return lines


def _padded(part: list[Span], size: int, side: Side) -> list[Span]:
    room = max(0, size - cells(part))
    left = {"left": 0, "right": room, "center": room // 2}[side]
    return [(" " * left, ""), *part, (" " * (room - left), "")]


def _trimmed(spans: list[Span], *, color: bool) -> str:
    while spans and not spans[-1][0].strip(" "):
        spans.pop()
    return painted(spans, color=color)


def _records(header: Sequence[Cell], rows: Sequence[Sequence[Cell]], width: int, *, color: bool) -> list[str]:
    lines: list[str] = []
    for index, row in enumerate(rows):
        if index:
            lines.append("")
        for name, cell in zip(header, row, strict=True):
            lines += [painted(line, color=color) for line in flowed([*name, (": ", DIM), *cell], width)]
    return lines or [painted(line, color=color) for cell in header for line in flowed(cell, width)]
