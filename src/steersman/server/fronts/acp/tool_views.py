"""How an editor sees a tool call: its title, kind, locations, and its changes as diffs. Pure functions of the log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from steersman.types.visible import escape_invisible, sanitize_line

Fields: TypeAlias = dict[str, Any]

_KINDS = {
    "read": "read",
    "list": "search",
    "glob": "search",
    "search": "search",
    "write": "edit",
    "edit": "edit",
    "bash": "execute",
    "fetch": "fetch",
}
_LONGEST_TITLE = 200
_MOST_READ = 10_000
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def describe_call(cwd: str, name: str, arguments: Mapping[str, Any]) -> Fields:
    """The fields of a tool call that follow from its name and arguments."""
    fields: Fields = {
        "title": make_title(name, arguments),
        "name": name,
        "kind": find_kind(name),
        "rawInput": dict(arguments),
    }
    if locations := find_locations(cwd, name, arguments):
        fields["locations"] = locations
    if diffs := make_diffs(cwd, name, arguments):
        fields["content"] = diffs
    return fields


def find_kind(name: str) -> str:
    """The kind of a tool, which chooses an icon."""
    return _KINDS.get(name, "other")


def make_title(name: str, arguments: Mapping[str, Any]) -> str:
    """What the call does, in a line: the ends of lines are shown, because what comes after one may be a command."""
    told = next((arguments[key] for key in ("command", "path", "pattern", "url", "prompt") if key in arguments), "")
    lines = [" ".join(line.split()) for line in str(told)[:_MOST_READ].strip().split("\n")]
    text = sanitize_line(escape_invisible(" \n ".join(lines)))
    title = text if name == "bash" and text else f"{name} {text}".strip()
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"


def find_locations(cwd: str, name: str, arguments: Mapping[str, Any]) -> list[Fields]:
    """The file that a built-in tool works on, as an absolute path."""
    path = arguments.get("path")
    if name not in _KINDS or not isinstance(path, str) or not path or "\0" in path:
        return []
    found: Fields = {"path": make_absolute(cwd, path)}
    line = arguments.get("start_line", arguments.get("offset"))
    if name == "read" and isinstance(line, int) and line > 0:
        found["line"] = line
    return [found]


def make_diffs(cwd: str, name: str, arguments: Mapping[str, Any], diff: str | None = None) -> list[Fields]:
    """The changes of `edit` and `write`. `diff` is the unified diff of a write that has run, for the old content."""
    path: Any = arguments.get("path")
    if not isinstance(path, str) or "\0" in path:
        return []
    where = make_absolute(cwd, path)
    if name == "edit" and isinstance(edits := arguments.get("edits"), Sequence):
        pairs = [_read_pair(edit) for edit in cast(Sequence[Any], edits)]
        return [_make_diff(where, *pair) for pair in pairs if pair is not None]
    content: Any = arguments.get("content")
    if name == "write" and isinstance(content, str):
        return [_make_diff(where, None if diff is None else undo_diff(content, diff), content)]
    return []


def undo_diff(new: str, diff: str) -> str | None:
    """The text before a unified diff; `None` if there was none, or the diff does not fit the new text."""
    lines = new.replace("\r\n", "\n").split("\n")
    old: list[str] = []
    at = 0
    for head, body in _split_hunks(diff):
        length = int(head[4] or "1")
        start = int(head[3]) - (1 if length else 0)
        if start < at or [line[1:] for line in body if line[0] in " +"] != lines[start : start + length]:
            return None
        old += lines[at:start]
        old += [line[1:] for line in body if line[0] in " -"]
        at = start + length
    return "\n".join([*old, *lines[at:]]) or None


def _split_hunks(diff: str) -> list[tuple[re.Match[str], list[str]]]:
    hunks: list[tuple[re.Match[str], list[str]]] = []
    for line in diff.split("\n"):
        if (head := _HUNK.match(line)) is not None:
            hunks.append((head, []))
        elif hunks and line[:1] in (" ", "+", "-"):
            hunks[-1][1].append(line)
    return hunks


def make_absolute(cwd: str, path: str) -> str:
    """A path as seen from the folder of the session."""
    return os.path.normpath(os.path.join(cwd, path))


def _read_pair(edit: Any) -> tuple[str, str] | None:
    if not isinstance(edit, Mapping):
        return None
    fields = cast(Mapping[str, Any], edit)
    old, new = fields.get("old"), fields.get("new")
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _make_diff(path: str, old: str | None, new: str) -> Fields:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def show_content(blocks: Sequence[Mapping[str, Any]]) -> list[Fields]:
    """Text and images of a message as content blocks of the protocol."""
    shown: list[Fields] = []
    for block in blocks:
        if block.get("type") == "text" and block.get("text"):
            shown.append({"type": "text", "text": block["text"]})
        elif block.get("type") == "image":
            shown.append({"type": "image", "data": block["data"], "mimeType": block.get("mime_type", "image/png")})
    return shown
