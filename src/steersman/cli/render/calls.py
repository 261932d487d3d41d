"""A tool call while it runs and when it is settled: one line, with what it writes under it as long as it writes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from steersman.cli.render.lines import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    SEPARATOR,
    YELLOW,
    Span,
    cells,
    count,
    cropped,
    duration,
    elapsed,
    flowed,
    folded,
    painted,
)
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.types.events import ToolExecutionEnd
from steersman.types.messages import ToolResultMessage

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


_TELLING = ("command", "path", "file_path", "pattern", "query", "url", "prompt", "name", "text")
_PLACES = ("path", "file_path")
_SHORT = 60


def argument(args: Mapping[str, Any], workspace: Path) -> str:
    """The argument that says what a call is about, as one line."""
    if isinstance(pattern := args.get("pattern"), str):
        place = args.get("path")
        where = f" in {_relative(place, workspace)}" if isinstance(place, str) and place not in ("", ".") else ""
        return one_line(f"{pattern}{where}")
    for name in _TELLING:
        if isinstance(value := args.get(name), str) and value:
            return one_line(_relative(value, workspace) if name in _PLACES else value.strip())
    texts = [value for value in args.values() if isinstance(value, str) and value]
    if len(texts) == 1 and len(args) == 1:
        return one_line(texts[0].strip())
    return one_line(_json(args)) if args else ""


def outcome(result: ToolResultMessage) -> str:
    """What a call came to, in a few words."""
    details = result.details
    status = details.get("status")
    if status in _STATUSES:
        return _STATUSES[status]
    for name, words in _GISTS.items():
        if name in details and (told := words(details)):
            return told
    text = result.text.strip("\n")
    if not result.is_error and text and "\n" not in text and len(text) <= _SHORT:
        return one_line(text)
    return count(text.count("\n") + 1, "line") if text and not result.is_error else ""


def _relative(path: str, workspace: Path) -> str:
    root = os.fspath(workspace)
    return path[len(root) + 1 :] or "." if path.startswith(root + os.sep) else path


def _json(args: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(args).decode()[1:-1]
    except (TypeError, ValueError, RecursionError):
        return ", ".join(map(str, args))


def _exit(details: Mapping[str, Any]) -> str:
    if details.get("timed_out"):
        return "timed out"
    code = details["exit_code"]
    return f"exit {code}" if isinstance(code, int) and code else ""


def _diff(details: Mapping[str, Any]) -> str:
    if not isinstance(text := details["diff"], str):
        return ""
    if not text:
        return "nothing changed"
    change = changed_lines(text)
    new = "created, " if details.get("created") else ""
    return f"{new}+{change.added} \u2212{change.removed}" if change.removed else f"{new}+{change.added}"


def _matches(details: Mapping[str, Any]) -> str:
    matches, files = details["matches"], details.get("files")
    if not isinstance(matches, int):
        return ""
    found = count(matches, "match")
    return f"{found} in {count(files, 'file')}" if isinstance(files, int) and matches else found


def _entries(details: Mapping[str, Any]) -> str:
    entries = details["entries"]
    return count(entries, "entry") if isinstance(entries, int) else ""


def _read(details: Mapping[str, Any]) -> str:
    first, last, total = details.get("first_line"), details.get("last_line"), details.get("total_lines")
    if not (isinstance(first, int) and isinstance(last, int)):
        return "empty" if total == 0 else ""
    if first == 1 and (total is None or total == last):
        return count(last, "line")
    return f"lines {first:,} to {last:,}" + (f" of {total:,}" if isinstance(total, int) else "")


def _tokens(details: Mapping[str, Any]) -> str:
    usage: object = details["usage"]
    total = cast("Mapping[str, Any]", usage).get("total") if isinstance(usage, Mapping) else None
    return count(total, "token") if isinstance(total, int) else ""


_STATUSES: Mapping[object, str] = {
    "denied": "denied",
    "invalid": "not a valid call",
    "interrupted": "interrupted",
    "not_started": "not started",
}
_GISTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "exit_code": _exit,
    "diff": _diff,
    "matches": _matches,
    "entries": _entries,
    "first_line": _read,
    "total_lines": _read,
    "usage": _tokens,
}


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
