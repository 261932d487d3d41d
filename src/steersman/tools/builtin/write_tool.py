"""The `write` tool replaces all of a file atomically, as UTF-8.

A file that has changed since the model read it is not overwritten (`StaleFile`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

from steersman.tools.builtin.changes import Swap, compare_lines, format_diff, split_lines
from steersman.tools.builtin.encoding import detect_encoding, normalize_line_ends
from steersman.tools.confine.file_versions import digest, identify_reader
from steersman.tools.confine.path_errors import MissingPath, StaleFile, TooLarge
from steersman.tools.confine.workspace import Workspace
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool, tool
from steersman.types.content import replace_lone_surrogates
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

_MAX_COMPARED_BYTES = 2 * 1024 * 1024
_NOT_COMPARED = b"\0"

Path = Annotated[str, "The file, relative to the workspace or absolute inside it. Missing folders are made."]
Content = Annotated[str, "All of the text the file is to have."]


def write_tool(workspace: Workspace) -> Tool:
    """Make the tool `write` for a workspace."""

    def keys(arguments: dict[str, Any]) -> tuple[str, ...]:
        return workspace.keys(arguments["path"])

    def preview(arguments: dict[str, Any], ctx: ToolContext | None) -> str:
        return _preview(
            workspace, arguments["path"], replace_lone_surrogates(arguments["content"]), identify_reader(ctx)
        )

    @tool(access="edit", keys=keys, preview=preview)
    def write(path: Path, content: Content, ctx: ToolContext | None = None) -> ToolOutput:
        """Make a file with this content, or replace all of a file's content. To change a part of it, use edit."""
        with workspace.lock(path):
            if ctx is not None and ctx.cancelled:
                raise ToolError("The write was cancelled.")
            return _write(workspace, path, replace_lone_surrogates(content), identify_reader(ctx))

    return write


def _preview(workspace: Workspace, path: str, content: str, reader: str) -> str:
    """The diff that a write would make, with everything that it would remove; raises `ToolError` if it would fail."""
    name = workspace.relative(path)
    workspace.check_writable(path)
    old = _read_old(workspace, path)
    known = None if old is None else workspace.seen.look_up(reader, name)
    if old is not None and known is not None and not _is_same(old, known.content):
        raise StaleFile(f"{path!r} has changed since it was last read here. Read it again, then make the change.")
    before = _decode_old(old)
    new_lines = _split_shown_lines(content)
    if before is None:
        swaps = [Swap(0, 0, new_lines)]
        lost = "[all of the file is replaced; what it has now is not shown, because it is not text or too long]"
        return f"{format_diff(name, [], swaps, max_length=math.inf)}{lost}\n"
    old_lines = _split_shown_lines(before)
    swaps = compare_lines(old_lines, new_lines)
    notes = list(_describe_differences(old or b"", before, content))
    if "\r\n" in content and "\r\n" not in before:
        notes.append("It gets Windows line ends (CRLF).")
    if old is None and not content:
        notes.append(f"{name!r} is a new file with nothing in it.")
    elif not swaps:
        same = content.encode() == old
        notes.append(f"No line of {name!r} changes." if same else f"Only line ends or the encoding of {name!r} change.")
    diff = format_diff(name, old_lines, swaps, created=old is None, max_length=math.inf)
    return "".join([diff, *[f"[{note}]\n" for note in notes]])


def _split_shown_lines(text: str) -> list[str]:
    """Split a text for a person to approve: a lone CR stays, and is shown, because most programs take it for no end."""
    return split_lines(text.replace("\r\n", "\n"))


def _is_same(old: bytes, known: str) -> bool:
    """Whether the content is the known one; for a file that is too large to compare, the write itself decides."""
    return old == _NOT_COMPARED or digest(old) == known


def _write(workspace: Workspace, path: str, content: str, reader: str) -> ToolOutput:
    name, data = workspace.relative(path), content.encode()
    old = _read_old(workspace, path)
    known = None if old is None else workspace.seen.look_up(reader, name)
    written = workspace.replace(path, data, expect=None if known is None else known.content)
    workspace.seen.remember(reader, name, digest(data))
    lines = split_lines(content)
    size = f"{len(lines):,} line{'' if len(lines) == 1 else 's'}, {len(data):,} bytes"
    words = [f"{'Created' if written.created else 'Replaced the content of'} {path!r}: {size}."]
    if written.other_names:
        words.append(f"The file had {written.other_names} more names (hard links), which keep the old content.")
    details: dict[str, Any] = {"path": replace_lone_surrogates(name), "created": written.created}
    before = _decode_old(old)
    if before is not None:
        words += _describe_differences(old or b"", before, content)
        old_lines = split_lines(normalize_line_ends(before))
        swaps = compare_lines(old_lines, split_lines(normalize_line_ends(content)))
        details["diff"] = format_diff(name, old_lines, swaps, created=written.created)
    return ToolOutput(" ".join(words), details)


def _read_old(workspace: Workspace, path: str) -> bytes | None:
    """Read the file's content now; `None` where there is no file, and a NUL byte (not text) where it is too large."""
    try:
        return workspace.read_bytes(path, limit=_MAX_COMPARED_BYTES)
    except MissingPath:
        return None
    except TooLarge:
        return _NOT_COMPARED


def _decode_old(old: bytes | None) -> str | None:
    """Decode the old content for the diff; `None` where it is not text."""
    if not old:
        return ""
    encoding = detect_encoding(old)
    try:
        return None if encoding is None else encoding.decode(old)
    except UnicodeError:
        return None


def _describe_differences(old: bytes, before: str, content: str) -> Iterator[str]:
    """Describe changes of line ends and encoding, which the model cannot see and may not have intended."""
    if "\r\n" in before and "\r" not in content and "\n" in content:
        yield "It had Windows line ends (CRLF) and has line feeds now; edit would have kept them."
    encoding = detect_encoding(old)
    if encoding is not None and encoding.mark:
        yield f"It was {encoding.codec} with a byte order mark and is UTF-8 without one now; edit would have kept it."
