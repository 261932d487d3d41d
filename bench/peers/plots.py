"""Draws ratios as bars: small SVG, written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _NAMES, _RIGHT, _LINE, _GAP, _TOP = 760, 130, 70, 15, 10, 46
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756")
_FONT = "ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif"

Bars = Mapping[str, Mapping[str, float | None]]
"""By group, then by the name of the bar: a ratio, or `None` where nothing was measured."""


def draw_bars(title: str, bars: Bars, goal: float, *, logarithmic: bool = False) -> str:
    """A picture with a group of bars for each figure, and a line at the goal."""
    names = list(dict.fromkeys(name for group in bars.values() for name in group))
    most = max(goal * 1.2, *(value for group in bars.values() for value in group.values() if value is not None))

    def place(value: float) -> float:
        share = math.log1p(max(value, 0)) / math.log1p(most) if logarithmic else max(value, 0) / most
        return _NAMES + share * (_WIDTH - _NAMES - _RIGHT)

    body: list[str] = []
    y = _TOP
    for group, values in bars.items():
        found = [(name, value) for name, value in values.items() if value is not None]
        body.append(_write_text(_NAMES - 8, y + _LINE * len(found) / 2 + 4, group, anchor="end"))
        for name, value in found:
            colour = _COLOURS[names.index(name) % len(_COLOURS)]
            body.append(
                f'<rect x="{_NAMES}" y="{y}" width="{place(value) - _NAMES:.1f}" height="{_LINE - 3}" fill="{colour}"/>'
            )
            body.append(_write_text(place(value) + 4, y + _LINE - 5, f"{value:.2f}x"))
            y += _LINE
        y += _GAP
    at = place(goal)
    body.append(
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 6}" y2="{y - 4}" stroke="#888" stroke-dasharray="4 3"/>'
    )
    body.append(_write_text(at, _TOP - 10, f"{goal:g}x", anchor="middle"))
    return _frame(title, names, body, y)


def _frame(title: str, names: Sequence[str], body: Sequence[str], height: float) -> str:
    legend: list[str] = []
    x = float(_NAMES)
    for number, name in enumerate(names):
        legend.append(
            f'<rect x="{x}" y="{height + 2}" width="10" height="10" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
        )
        legend.append(_write_text(x + 14, height + 11, name))
        x += 30 + 7 * len(name)
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height + 24:.0f}"',
        f'font-family="{_FONT}" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        _write_text(12, 18, title, size=14),
        *body, *legend, "</svg>", "",
    ))  # fmt: skip


def _write_text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#222">{escape(text)}</text>'
