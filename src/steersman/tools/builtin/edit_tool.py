"""The `edit` tool replaces exact passages of a text file: all edits of a call, or none.

Each passage is searched in the file as it is, not in the result of another edit. Outside the passages no byte changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from steersman.tools.builtin.changes import (
    MAX_DIFF_LENGTH,
    Change,
    Edit,
    build_swaps,
    describe_lines,
    find_changes,
    format_diff,
    split_lines,
)
from steersman.tools.builtin.encoding import UTF8, Encoding, TextFile, count_undecodable, detect_encoding
from steersman.tools.confine.file_versions import digest, identify_reader
from steersman.tools.confine.path_errors import MissingPath, StaleFile, TooLarge
from steersman.tools.confine.workspace import Workspace
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool, tool
from steersman.types.content import replace_lone_surrogates
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

MAX_FILE_BYTES = 16 * 1024 * 1024
"""The largest file that can be edited, in bytes, and the most characters that one can have after an edit."""

Path = Annotated[str, "The file, relative to the workspace or absolute inside it."]
Edits = Annotated[
    list[Edit],
    msgspec.Meta(
        min_length=1,
        description="The replacements. Each 'old' is looked for in the file as it is now; they must not overlap.",
    ),
]


def edit_tool(workspace: Workspace) -> Tool:
    """Make the tool `edit` for a workspace."""

    def keys(arguments: dict[str, Any]) -> tuple[str, ...]:
        return workspace.keys(arguments["path"])

    def preview(arguments: dict[str, Any], ctx: ToolContext | None) -> str:
        edits = msgspec.convert(arguments["edits"], list[Edit])
        workspace.check_writable(arguments["path"])
        return _plan_edit(workspace, arguments["path"], edits, identify_reader(ctx)).format_diff(math.inf)

    @tool(access="edit", keys=keys, preview=preview)
    def edit(path: Path, edits: Edits, ctx: ToolContext | None = None) -> ToolOutput:
        """Replace exact passages of a text file. Line ends and encoding of the file are kept.

        Give 'old' exactly as read shows it, with enough around it to be there only once. Several edits of one file go
        into one call.
        """
        with workspace.lock(path):
            if ctx is not None and ctx.cancelled:
                raise ToolError("The edit was cancelled.")
            return _edit(workspace, path, edits, identify_reader(ctx))

    return edit


@dataclass(frozen=True, slots=True)
class _EditPlan:
    """What an edit would do: the file as it is, and the passages it replaces."""

    name: str
    before: str
    encoding: Encoding
    page: TextFile
    found: Sequence[Change]

    def format_diff(self, max_length: float = MAX_DIFF_LENGTH) -> str:
        """The unified diff of the changes."""
        lines = split_lines(self.page.text)
        swaps = build_swaps(self.page.text, lines, self.found)
        return format_diff(self.name, lines, swaps, max_length=max_length)


def _plan_edit(workspace: Workspace, path: str, edits: Sequence[Edit], reader: str) -> _EditPlan:
    """Find what an edit would change; raises `ToolError` if it cannot be made."""
    name = workspace.relative(path)
    data = _read_file(workspace, path)
    before = digest(data)
    known = workspace.seen.look_up(reader, name)
    if known is not None and known.edited != before:
        raise StaleFile(f"{path!r} has changed since it was last read here. Read it again, then make the change.")
    encoding, page = _decode(path, data)
    try:
        found = find_changes(page, edits)
    except ValueError as error:
        raise ToolError(f"{path!r} was not edited.\n{error}") from error
    _check_size(path, page, found)
    _check_encodable(path, page, encoding, found)
    return _EditPlan(name, before, encoding, page, found)


def _edit(workspace: Workspace, path: str, edits: Sequence[Edit], reader: str) -> ToolOutput:
    plan = _plan_edit(workspace, path, edits, reader)
    name, before, encoding, page, found = plan.name, plan.before, plan.encoding, plan.page, plan.found
    new = encoding.encode(_apply_to_raw(page, found))
    written = workspace.replace(path, new, expect=before)
    workspace.seen.record_edit(reader, name, before, digest(new))
    places = [change.start for change in found]
    times = f"{len(found)} replacement{'' if len(found) == 1 else 's'}, at {describe_lines(page, places)}"
    text = f"Edited {path!r}: {times}."
    if written.other_names:
        text += f" The file had {written.other_names} more names (hard links), which keep the old content."
    details = {"path": replace_lone_surrogates(name), "replacements": len(found), "diff": plan.format_diff()}
    return ToolOutput(text, details)


def _read_file(workspace: Workspace, path: str) -> bytes:
    try:
        return workspace.read_bytes(path, limit=MAX_FILE_BYTES)
    except MissingPath as error:
        raise MissingPath(f"{error} To make a new file, use write.") from error
    except TooLarge as error:
        raise TooLarge(f"{error} Change it with a program, such as sed.") from error


def _decode(path: str, data: bytes) -> tuple[Encoding, TextFile]:
    encoding = detect_encoding(data)
    if encoding is None:
        raise ToolError(f"{path!r} is not text in UTF-8 or UTF-16, so it cannot be edited. Use a program for it.")
    try:
        return encoding, TextFile(encoding.decode(data))
    except UnicodeError as error:
        raise ToolError(f"{path!r} says it is {encoding.codec} and is not, so it cannot be edited.") from error


def _check_size(path: str, page: TextFile, found: Sequence[Change]) -> None:
    """Refuse what makes a file too large before it is built: a long text in place of each letter."""
    size = len(page.text) + sum(len(change.new) - (change.end - change.start) for change in found)
    if size > MAX_FILE_BYTES:
        raise TooLarge(f"{path!r} was not edited: it would have {size:,} characters, more than {MAX_FILE_BYTES:,}.")


def _check_encodable(path: str, page: TextFile, encoding: Encoding, found: Sequence[Change]) -> None:
    """Refuse to add non-ASCII characters to a file in an unknown older encoding: their bytes are unknown."""
    if encoding == UTF8 and count_undecodable(page.raw) and not all(change.new.isascii() for change in found):
        raise ToolError(
            f"{path!r} is not UTF-8 throughout, so only ASCII characters can be put into it. Convert it first, "
            "for example with iconv, or leave the other characters out."
        )


def _apply_to_raw(page: TextFile, found: Sequence[Change]) -> str:
    pieces: list[str] = []
    done = 0
    for change in found:
        old = page.text[change.start : change.end]
        head, tail = _count_common(old, change.new)
        start, end = page.find_raw_offset(change.start + head), page.find_raw_offset(change.end - tail)
        new = change.new[head : len(change.new) - tail]
        pieces += (page.raw[done:start], page.restore_line_ends(new, start, end))
        done = end
    return "".join((*pieces, page.raw[done:]))


def _count_common(old: str, new: str) -> tuple[int, int]:
    """Count the characters that both have in common at the start and at the end; these keep their line ends."""
    most = min(len(old), len(new))
    head = next((place for place in range(most) if old[place] != new[place]), most)
    most -= head
    tail = next((place for place in range(most) if old[-1 - place] != new[-1 - place]), most)
    return head, tail
