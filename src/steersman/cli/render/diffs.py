"""A unified diff for a terminal: added lines green, removed ones red, and no more than one can take in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from steersman.cli.render.lines import DIM, GREEN, RED, folded, painted
from steersman.cli.terminal.sanitize import safe

LINES = 30
"""How many lines of a diff are shown where nobody says otherwise."""
_STYLES = {"+": GREEN, "-": RED, "@": DIM, "\\": DIM, "[": DIM}


class Change(NamedTuple):
    """How many lines a diff adds and removes."""

    added: int
    removed: int


def changed_lines(text: str) -> Change:
    """What a unified diff comes to."""
    body = _body(text)
    return Change(sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body))


def diff(
    text: str, *, width: int, color: bool, max_lines: int | None = LINES, escape: Callable[[str], str] = safe
) -> str:
    """A unified diff as lines for a terminal; its head is left out, and what is beyond `max_lines` is counted."""
    body = _body(text)
    lines: list[str] = []
    for index, line in enumerate(body):
        pieces = folded(escape(line.rstrip("\r")), width)
        if max_lines is not None and len(lines) + len(pieces) > max_lines:
            rest = len(body) - index
            # One sign instead of one line would save nothing.
            lines.append(painted([(f"\u2026 {rest} more line{'' if rest == 1 else 's'}", DIM)], color=color))
            break
        lines += [painted([(piece, _STYLES.get(line[:1], ""))], color=color) for piece in pieces]
    return "\n".join(lines)


def compared(before: str, after: str) -> str:
    """A unified diff of two texts, for a change that has not been made yet."""
    # Only who shows a change before it is made pays for this import.
    from difflib import unified_diff

    return "".join(
        line if line.endswith("\n") else f"{line}\n"
        for line in unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), "a", "b")
    )


def _body(text: str) -> list[str]:
    """The lines behind the two that name the file, split at line feeds only: other signs belong to their line."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) >= 2 and lines[0].startswith("--- ") and lines[1].startswith("+++ "):
        lines = lines[2:]
    return [line for line in lines if line]
