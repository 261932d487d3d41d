"""Lays out usage and examples for the width of the terminal: a table where there is room, a list where there is not."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

_INDENT = "    "
_ROOMY = 100
"""The least columns in which an example and what it is for stand side by side."""

# An option with its value, or a word: what a line of the usage is broken between.
_PARTS = re.compile(r"\[[^\[\]]*\]|\S+")


def fit_usage(text: str, width: int) -> str:
    """Returns a usage text as it is, or in lines that are not wider than `width`."""
    if all(len(line) <= width for line in text.split("\n")):
        return text
    lines, room = [""], width - len(_INDENT)
    for part in _PARTS.findall(text):
        for piece in [part] if len(part) <= room else part.split():
            if len(lines[-1]) + len(piece) < width:
                lines[-1] = f"{lines[-1]} {piece}".lstrip() if len(lines) == 1 else f"{lines[-1]} {piece}"
            else:
                lines.append(f"{_INDENT}{piece}")
    return "\n".join([*lines, ""])


def fit_help(text: str, width: int) -> str:
    """Returns a help text with its usage, and options with a long list of choices, in lines that fit."""
    usage, _, rest = text.partition("\n\n")
    lines = [fit_usage(usage, width).rstrip("\n"), ""]
    for line in rest.split("\n"):
        lines += [line] if len(line) <= width else _wrap(line, width, _INDENT)
    return "\n".join(lines)


def render_examples(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Renders command lines with what they are for."""
    rows = list(rows)
    column = max(len(head) for head, _ in rows) + 4
    lines: list[str] = []
    for head, says in rows:
        if width >= _ROOMY:
            lines += _wrap(f"  {head:<{column - 2}}{says}", width, " " * column)
        else:
            lines += [*_wrap(f"  {head}", width, _INDENT), *_wrap(f"{_INDENT * 2}{says}", width, _INDENT * 2)]
    return lines


def _wrap(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
