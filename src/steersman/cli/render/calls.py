"""A tool call while it runs and when it is settled: one line, with what it writes under it as long as it writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from steersman.cli.render.diffs import LINES, diff
from steersman.cli.render.gists import argument, outcome
from steersman.cli.render.lines import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Span,
    cells,
    cropped,
    flowed,
    folded,
    painted,
)
from steersman.cli.render.numbers import SEPARATOR, duration, elapsed
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.types.events import ToolExecutionEnd
from steersman.types.messages import ToolResultMessage

OUTPUT_LINES = 4
_LONGEST_OUTPUT = 4_000
_ERROR_LINES = 4
_VERBOSE_LINES = 20
_SIGNS: Mapping[object, Span] = {
    "denied": ("\u2298", YELLOW),
    "interrupted": ("\u2298", YELLOW),
    "not_started": ("\u2298", YELLOW),
}
_INDENT = "  "
_EXIT_CODE = re.compile(r"\n*\[exit code \d+\]\Z")
_COLOURS = re.compile("\x1b\\[[0-9;:]*m")


class Running:
    """A call that has begun: what it is about, and the end of what it has written so far."""

    def __init__(self, name: str, args: Mapping[str, Any], *, began: float, depth: int, workspace: Path) -> None:
        self.name = one_line(name)
        self.about = argument(args, workspace)
        self.began = began
        self.depth = depth
        self.announced = False
        self.progress = ""
        self._output = ""

    def wrote(self, text: str) -> None:
        """Some output of the tool; only its end is kept."""
        self._output = (self._output + text)[-_LONGEST_OUTPUT:]

    def lines(self, sign: str, width: int, now: float, *, color: bool) -> list[str]:
        """The call as it stands."""
        tail = elapsed(now - self.began) if now - self.began >= 1 else ""
        head = entry((sign, CYAN), self.name, self.about, [self.progress, tail], width, self.depth, color=color)
        return [head, *_last_lines(self._output, OUTPUT_LINES, width, self.depth, color=color)]


def entry(sign: Span, name: str, about: str, tail: list[str], width: int, depth: int = 0, *, color: bool) -> str:
    """One line about a call: sign, name, what it is about, and what came of it."""
    shift = _INDENT * depth
    lead: list[Span] = [(shift, ""), sign, (" ", ""), (cropped(name, max(4, width - len(shift) - 2)), BOLD)]
    room = width - cells(lead)
    fair = max(room // 2, room - cells([(about, "")]) - 5)
    came = _fitted([word for word in tail if word], min(fair, room - len(SEPARATOR)))
    left = room - (cells([(came, "")]) + len(SEPARATOR) if came else 0) - 2
    shown = cropped(about, left) if left >= 4 else ""
    spans = [*lead, *([("  ", ""), (shown, "")] if shown else []), *([(f"{SEPARATOR}{came}", DIM)] if came else [])]
    return painted(spans, color=color)


def _fitted(words: list[str], room: int) -> str:
    """As many of the words as there is room for; of the first, as much."""
    while len(words) > 1 and cells([(SEPARATOR.join(words), "")]) > room:
        words = words[:-1]
    return cropped(SEPARATOR.join(words), max(0, room))


def settled(
    event: ToolExecutionEnd, workspace: Path, width: int, depth: int, *, color: bool, verbose: bool
) -> list[str]:
    """A call that is over: its line, and under it what one would want to see of it."""
    result = event.result
    took = duration(event.duration) if event.duration >= 0.1 else ""
    sign = _SIGNS.get(result.details.get("status")) or (("\u2717", RED) if event.is_error else ("\u2713", GREEN))
    about = argument(event.args, workspace)
    lines = [entry(sign, one_line(event.tool_name), about, [outcome(result), took], width, depth, color=color)]
    return lines + _under(result, width, depth, color=color, verbose=verbose)


def _under(result: ToolResultMessage, width: int, depth: int, *, color: bool, verbose: bool) -> list[str]:
    changes: object = result.details.get("diff")
    if isinstance(changes, str) and changes:
        shift = _INDENT * (depth + 1)
        text = diff(
            changes, width=max(1, width - len(shift)), color=color, max_lines=LINES if verbose or not depth else 6
        )
        return [f"{shift}{line}" for line in text.split("\n")]
    if "exit_code" in result.details:
        text = _EXIT_CODE.sub("", result.text)
        if result.is_error and not verbose:
            # How a command failed stands at the end of its output.
            return _last_lines(text, _ERROR_LINES, width, depth, color=color)
        return _first_lines(text, DIM, width, depth, color=color) if verbose else []
    if result.is_error:
        style = YELLOW if result.details.get("status") in _SIGNS else RED
        return _first_lines(result.text, style, width, depth, most=_ERROR_LINES, color=color)
    return _first_lines(result.text, DIM, width, depth, color=color) if verbose and "\n" in result.text else []


def _first_lines(
    text: str, style: str, width: int, depth: int, *, most: int = _VERBOSE_LINES, color: bool
) -> list[str]:
    shift, start = _INDENT * (depth + 1), text[: most * 400]
    if not (tidy := _tidy(start)):
        return []
    lines = flowed([(tidy, style)], max(1, width - len(shift)))
    more = len(lines) > most or len(text) > len(start)
    shown = [*lines[:most], *([[("\u2026", style)]] if more else [])]
    return [f"{shift}{painted(line, color=color)}" for line in shown]


def _last_lines(text: str, most: int, width: int, depth: int, *, color: bool) -> list[str]:
    room = max(1, width - len(_INDENT) * (depth + 1))
    lines = [piece for line in _tidy(text[-most * 400 :]).split("\n") if line.strip() for piece in folded(line, room)]
    return _dim(lines[-most:], depth, color=color)


def _tidy(text: str) -> str:
    # Colours of a tool are left out, and what would write over a line is a line of its own: nothing is hidden by it.
    plain = _COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return safe(plain).strip("\n")


def _dim(lines: list[str], depth: int, *, color: bool) -> list[str]:
    shift = _INDENT * (depth + 1)
    return [painted([(shift, ""), (line, DIM)], color=color) for line in lines]


def update_text(update: object) -> tuple[str, str] | None:
    """What kind of words an update of a running tool carries, and the words."""
    if isinstance(update, str):
        return "progress", update
    if not isinstance(update, Mapping):
        return None
    told = cast("Mapping[str, Any]", update)
    kind, text = told.get("type"), told.get("text")
    return (kind, text) if kind in ("output", "progress") and isinstance(text, str) else None
