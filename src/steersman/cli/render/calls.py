"""Renders a tool call: one line with its main argument and outcome, and below it live output, a diff or an error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from steersman.cli.render.lines import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    TAB,
    YELLOW,
    Span,
    crop,
    fold,
    fold_spans,
    measure_spans,
    paint,
    wrap_spans,
)
from steersman.cli.terminal.highlight import Highlighter, color_diff, find_language_of_file
from steersman.cli.terminal.numbers import SEPARATOR, format_count, format_duration, format_elapsed
from steersman.cli.terminal.sanitize import sanitize, sanitize_line
from steersman.types.events import ToolExecutionEnd
from steersman.types.messages import ToolResultMessage

DIFF_LINES = 30
"""The default number of lines shown of a diff."""
_MAIN_ARGUMENTS = ("command", "path", "file_path", "pattern", "query", "url", "prompt", "name", "text")
_PATH_ARGUMENTS = ("path", "file_path")
_SHORT = 60
_STATUSES: Mapping[object, str] = {
    "denied": "denied",
    "invalid": "not a valid call",
    "interrupted": "interrupted",
    "not_started": "not started",
}
OUTPUT_LINES = 5
"""How many lines of its output a call shows."""
_LONGEST_OUTPUT = 4_000
_ERROR_LINES = 4
_VERBOSE_LINES = 20
_LONGEST_LINE, _LONGEST_ABOUT = 400, 2_000
_SIGNS: Mapping[object, Span] = {
    "denied": ("\u2298", YELLOW),
    "interrupted": ("\u2298", YELLOW),
    "not_started": ("\u2298", YELLOW),
}
_INDENT = "  "
# What the tool itself says at the end of an output.
_NOTES = re.compile(r"(?<!\n)\n*\[exit code \d+\]\Z|\A\(no output\)\Z")
_COLOURS = re.compile("\x1b\\[[0-9;:]*m")


class DiffStat(NamedTuple):
    """How many lines a diff adds and removes."""

    added: int
    removed: int


def count_changes(text: str) -> DiffStat:
    """Counts the changed lines of a unified diff."""
    body = _strip_header(text)
    return DiffStat(sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body))


def render_diff(
    text: str,
    *,
    width: int,
    color: bool,
    max_lines: int | None = DIFF_LINES,
    escape: Callable[[str], str] = sanitize,
    path: str = "",
) -> str:
    """Renders a unified diff without its header; lines beyond `max_lines` are only counted.

    `path` is the file, whose name says in which language its lines are coloured.
    """
    body = _strip_header(text)
    shown = [escape(line.rstrip("\r")).expandtabs(TAB) for line in body[:max_lines]]
    lines: list[str] = []
    for index, spans in enumerate(color_diff(shown, path if color else "")):
        pieces = fold_spans(spans, width)
        if max_lines is not None and len(lines) + len(pieces) > max_lines:
            return "\n".join([*lines, _count_rest(len(body) - index, color=color)])
        lines += [paint(piece, color=color) for piece in pieces]
    rest = len(body) - len(shown)
    return "\n".join([*lines, _count_rest(rest, color=color)] if rest else lines)


def _count_rest(rest: int, *, color: bool) -> str:
    return paint([(f"\u2026 {rest} more line{'' if rest == 1 else 's'}", DIM)], color=color)


def compare_texts(before: str, after: str) -> str:
    """Returns a unified diff of two texts, for a change that has not been made yet."""
    return "".join(
        line if line.endswith("\n") else f"{line}\n"
        for line in unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), "a", "b")
    )


def _strip_header(text: str) -> list[str]:
    """Returns the lines after the file names; splits only at line feeds, because other separators belong to a line."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) >= 2 and lines[0].startswith("--- ") and lines[1].startswith("+++ "):
        lines = lines[2:]
    return [line for line in lines if line]


def describe_argument(args: Mapping[str, Any], workspace: Path) -> str:
    """Describes the main argument of a call on one line."""
    if isinstance(pattern := args.get("pattern"), str):
        place = args.get("path")
        where = f" in {_make_relative(place, workspace)}" if isinstance(place, str) and place not in ("", ".") else ""
        return sanitize_line(f"{pattern}{where}")
    for name in _MAIN_ARGUMENTS:
        if isinstance(value := args.get(name), str) and value:
            return sanitize_line(_make_relative(value, workspace) if name in _PATH_ARGUMENTS else value.strip())
    if (now := _find_current_item(args.get("items"))) is not None:
        return sanitize_line(now)
    texts = [value for value in args.values() if isinstance(value, str) and value]
    if len(texts) == 1 and len(args) == 1:
        return sanitize_line(texts[0].strip())
    return sanitize_line(_encode_json(args)) if args else ""


def _find_current_item(items: object) -> str | None:
    """Finds the item of a todo list that is being done, or is next; empty if all is done, `None` for no such list."""
    given = cast("list[object]", items) if isinstance(items, list | tuple) else []
    listed = [cast("Mapping[str, object]", item) for item in given if isinstance(item, Mapping)]
    left = [item for item in listed if item.get("status") != "done"]
    now = next((item for item in left if item.get("status") == "in_progress"), left[0] if left else None)
    text = "" if now is None else now.get("text")
    return text if listed and isinstance(text, str) else None


def describe_outcome(result: ToolResultMessage) -> str:
    """Describes the outcome of a call in a few words."""
    details = result.details
    status = details.get("status")
    if status in _STATUSES:
        return _STATUSES[status]
    for name, words in _DESCRIPTIONS.items():
        if name in details and (told := words(details)):
            return told
    text = result.text.strip("\n")
    if not result.is_error and text and "\n" not in text and len(text) <= _SHORT:
        return sanitize_line(text)
    return format_count(count_output_lines(result), "line") if text and not result.is_error else ""


def count_output_lines(result: ToolResultMessage) -> int:
    """How many lines a tool wrote, also those that were left out for the model."""
    lines: object = result.details.get("lines")
    if isinstance(lines, int):
        return lines
    text = _get_output(result).strip("\n")
    return text.count("\n") + 1 if text else 0


def _get_output(result: ToolResultMessage) -> str:
    return _NOTES.sub("", result.text) if "exit_code" in result.details else result.text


def _make_relative(path: str, workspace: Path) -> str:
    root = os.fspath(workspace)
    return path[len(root) + 1 :] or "." if path.startswith(root + os.sep) else path


def _encode_json(args: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(args).decode()[1:-1]
    except (TypeError, ValueError, RecursionError):
        return ", ".join(map(str, args))


def _describe_exit(details: Mapping[str, Any]) -> str:
    if details.get("timed_out"):
        return "timed out"
    code = details["exit_code"]
    return f"exit {code}" if isinstance(code, int) else ""


def _describe_diff(details: Mapping[str, Any]) -> str:
    if not isinstance(text := details["diff"], str):
        return ""
    if not text:
        return "nothing changed"
    change = count_changes(text)
    new = "created, " if details.get("created") else ""
    return f"{new}+{change.added} \u2212{change.removed}" if change.removed else f"{new}+{change.added}"


def _describe_matches(details: Mapping[str, Any]) -> str:
    matches, files = details["matches"], details.get("files")
    if not isinstance(matches, int):
        return ""
    found = format_count(matches, "match")
    return f"{found} in {format_count(files, 'file')}" if isinstance(files, int) and matches else found


def _describe_entries(details: Mapping[str, Any]) -> str:
    entries = details["entries"]
    return format_count(entries, "entry") if isinstance(entries, int) else ""


def _describe_read(details: Mapping[str, Any]) -> str:
    first, last, total = details.get("first_line"), details.get("last_line"), details.get("total_lines")
    if not (isinstance(first, int) and isinstance(last, int)):
        return "empty" if total == 0 else ""
    if first == 1 and (total is None or total == last):
        return format_count(last, "line")
    return f"lines {first:,} to {last:,}" + (f" of {total:,}" if isinstance(total, int) else "")


def _describe_tokens(details: Mapping[str, Any]) -> str:
    usage: object = details["usage"]
    total = cast("Mapping[str, Any]", usage).get("total") if isinstance(usage, Mapping) else None
    return format_count(total, "token") if isinstance(total, int) else ""


_DESCRIPTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "exit_code": _describe_exit,
    "diff": _describe_diff,
    "matches": _describe_matches,
    "entries": _describe_entries,
    "first_line": _describe_read,
    "total_lines": _describe_read,
    "usage": _describe_tokens,
}


class RunningCall:
    """A running call: its main argument, and the end of its output so far."""

    def __init__(self, name: str, args: Mapping[str, Any], *, began: float, depth: int, workspace: Path) -> None:
        self.name = sanitize_line(name[:_LONGEST_LINE])
        self.about = describe_argument(args, workspace)
        self.began = began
        self.depth = depth
        self.announced = False
        self.progress = ""
        self._output = ""

    def add_output(self, text: str) -> None:
        """Adds output of the tool; keeps only the end."""
        self._output = (self._output + text)[-_LONGEST_OUTPUT:]

    def render(self, sign: str, width: int, now: float, *, color: bool) -> list[str]:
        """Renders the call as it is now."""
        tail = format_elapsed(now - self.began) if now - self.began >= 1 else ""
        head = render_call((sign, CYAN), self.name, self.about, [self.progress, tail], width, self.depth, color=color)
        return [head, *_render_last_lines(self._output, OUTPUT_LINES, width, self.depth, color=color)]


def render_call(sign: Span, name: str, about: str, tail: list[str], width: int, depth: int = 0, *, color: bool) -> str:
    """Renders one line about a call: sign, name, main argument and outcome."""
    shift = _INDENT * depth
    lead: list[Span] = [(shift, ""), sign, (" ", ""), (crop(name, max(4, width - len(shift) - 2)), BOLD)]
    room = width - measure_spans(lead)
    fair = max(room // 2, room - measure_spans([(about := about[:_LONGEST_ABOUT], "")]) - 5)
    came = _join_fitting([word[:_LONGEST_LINE] for word in tail if word], min(fair, room - len(SEPARATOR)))
    left = room - (measure_spans([(came, "")]) + len(SEPARATOR) if came else 0) - 2
    shown = crop(about, left) if left >= 4 else ""
    spans = [*lead, *([("  ", ""), (shown, "")] if shown else []), *([(f"{SEPARATOR}{came}", DIM)] if came else [])]
    return paint(spans, color=color)


def _join_fitting(words: list[str], room: int) -> str:
    """Joins as many of the words as fit; at least a part of the first."""
    while len(words) > 1 and measure_spans([(SEPARATOR.join(words), "")]) > room:
        words = words[:-1]
    return crop(SEPARATOR.join(words), max(0, room))


def render_finished_call(
    event: ToolExecutionEnd, workspace: Path, width: int, depth: int, *, color: bool, verbose: bool, hint: str = ""
) -> list[str]:
    """Renders a finished call: its line, and below it a diff, an error or the end of its output.

    `hint` says how to see the rest of an output.
    """
    lines = [_render_head(event, workspace, width, depth, color=color)]
    return lines + _render_details(event, width, depth, color=color, verbose=verbose, hint=hint)


def render_whole_call(event: ToolExecutionEnd, text: str, workspace: Path, width: int, *, color: bool) -> Iterator[str]:
    """Renders a finished call with all of its diff, or with all of its output, which is `text`; line by line."""
    yield _render_head(event, workspace, width, 0, color=color)
    room = max(1, width - len(_INDENT))
    changes: object = event.result.details.get("diff")
    block = Highlighter(find_language_of_file(_get_path(event)) if color and event.tool_name == "read" else None)
    if isinstance(changes, str) and changes:
        shown = [sanitize(line.rstrip("\r")).expandtabs(TAB) for line in _strip_header(changes)]
        colored = color_diff(shown, _get_path(event) if color else "")
    elif block.active:
        colored = block.color([line.expandtabs(TAB) for line in _tidy(text).split("\n")])
    else:
        colored = ([(line.expandtabs(TAB), DIM)] for line in (_tidy(text) or "(no output)").split("\n"))
    for spans in colored:
        yield from (paint([(_INDENT, ""), *piece], color=color) for piece in fold_spans(spans, room))


def _render_head(event: ToolExecutionEnd, workspace: Path, width: int, depth: int, *, color: bool) -> str:
    result = event.result
    took = format_duration(event.duration) if event.duration >= 0.1 or "exit_code" in result.details else ""
    sign = _SIGNS.get(result.details.get("status")) or (("\u2717", RED) if event.is_error else ("\u2713", GREEN))
    about = describe_argument(event.args, workspace)
    tail = [describe_outcome(result), took]
    if "exit_code" in result.details and (count := count_output_lines(result)) > OUTPUT_LINES:
        tail.append(format_count(count, "line"))
    return render_call(sign, sanitize_line(event.tool_name[:_LONGEST_LINE]), about, tail, width, depth, color=color)


def _get_path(event: ToolExecutionEnd) -> str:
    path: object = event.args.get("path")
    return path if isinstance(path, str) else ""


def _render_details(
    event: ToolExecutionEnd, width: int, depth: int, *, color: bool, verbose: bool, hint: str
) -> list[str]:
    result = event.result
    changes: object = result.details.get("diff")
    if isinstance(changes, str) and changes:
        shift = _INDENT * (depth + 1)
        most = DIFF_LINES if verbose or not depth else 6
        room = max(1, width - len(shift))
        text = render_diff(changes, width=room, color=color, max_lines=most, path=_get_path(event))
        return [f"{shift}{line}" for line in text.split("\n")]
    if result.is_error and "exit_code" not in result.details:
        style = YELLOW if result.details.get("status") in _SIGNS else RED
        return _render_first_lines(result.text, style, width, depth, most=_ERROR_LINES, color=color)
    text = _get_output(result)
    if "exit_code" not in result.details and ("\n" not in text.strip("\n") or (_is_summarized(result) and not verbose)):
        return []
    most = _VERBOSE_LINES if verbose else OUTPUT_LINES
    lines = _tidy(text[-most * _LONGEST_LINE :]).split("\n")[-most:]
    room = max(1, width - len(_INDENT) * (depth + 1))
    shown = [piece for line in lines for piece in fold(line, room)][-most:] if any(lines) else []
    left = count_output_lines(result) - len(lines)
    above = [crop(f"\u2026 {format_count(left, 'line')} above{hint}", room)] if left > 0 else []
    return _paint_dim([*above, *shown], depth, color=color)


def _is_summarized(result: ToolResultMessage) -> bool:
    """Whether the line of a call says what its output is about."""
    return any(name in result.details for name in _DESCRIPTIONS)


def _render_first_lines(
    text: str, style: str, width: int, depth: int, *, most: int = _VERBOSE_LINES, color: bool
) -> list[str]:
    shift, start = _INDENT * (depth + 1), text[: most * 400]
    if not (tidy := _tidy(start)):
        return []
    lines = wrap_spans([(tidy, style)], max(1, width - len(shift)))
    more = len(lines) > most or len(text) > len(start)
    shown = [*lines[:most], *([[("\u2026", style)]] if more else [])]
    return [f"{shift}{paint(line, color=color)}" for line in shown]


def _render_last_lines(text: str, most: int, width: int, depth: int, *, color: bool) -> list[str]:
    room = max(1, width - len(_INDENT) * (depth + 1))
    lines = [piece for line in _tidy(text[-most * 400 :]).split("\n") if line.strip() for piece in fold(line, room)]
    return _paint_dim(lines[-most:], depth, color=color)


def _tidy(text: str) -> str:
    # Drops colours, and turns carriage returns into line breaks, so that no text is overwritten and hidden.
    plain = _COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return sanitize(plain).strip("\n")


def _paint_dim(lines: list[str], depth: int, *, color: bool) -> list[str]:
    shift = _INDENT * (depth + 1)
    return [paint([(shift, ""), (line, DIM)], color=color) for line in lines]


def parse_update(update: object) -> tuple[str, str] | None:
    """Returns the kind and text of an update of a running tool, or `None`."""
    if isinstance(update, str):
        return "progress", update
    if not isinstance(update, Mapping):
        return None
    told = cast("Mapping[str, Any]", update)
    kind, text = told.get("type"), told.get("text")
    return (kind, text) if kind in ("output", "progress") and isinstance(text, str) else None
