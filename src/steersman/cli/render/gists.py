"""What matters about a tool call, in few words: the argument that says what it is about, the size of its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from steersman.cli.render.diffs import changed_lines
from steersman.cli.render.numbers import count
from steersman.cli.terminal.sanitize import one_line
from steersman.types.messages import ToolResultMessage

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
