"""The `read` tool shows a text file in windows of lines, or an image. `edit` finds the text exactly as shown.

So there are no line numbers, every line end is a line feed, and a binary file is described instead of shown.
"""

from __future__ import annotations

import base64
import codecs
import io
import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from steersman.tools.builtin.encoding import SAMPLE, Encoding, count_undecodable, detect_encoding
from steersman.tools.builtin.images import MAX_IMAGE_BYTES, detect_image_type, inspect_image
from steersman.tools.confine.denied_paths import make_name_filter
from steersman.tools.confine.file_versions import DIGEST_SIZE, identify_reader
from steersman.tools.confine.path_errors import WrongKind, translate_os_error
from steersman.tools.confine.workspace import Workspace
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool, tool
from steersman.types.content import ImageContent, TextContent, replace_lone_surrogates
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

MAX_LINES = 1_990
MAX_BYTES = 48_000
"""A window with its note stays below the loop's limit for tool output, so the loop does not truncate it."""
_MAX_COUNTED_BYTES = 64 * 1024 * 1024
_MAX_SCANNED_BYTES = 512 * 1024 * 1024
_CHUNK = 1 << 20

_KINDS = {
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a ZIP archive, or a document that is one inside",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "a program or library (ELF)",
    b"SQLite format 3\0": "an SQLite database",
    b"\x00asm": "WebAssembly",
}

Path = Annotated[str, "The file, relative to the workspace or absolute inside it."]
Offset = Annotated[int | None, msgspec.Meta(ge=0, description="The first line to show, counted from 1.")]
Limit = Annotated[
    int | None, msgspec.Meta(ge=1, description=f"How many lines to show. {MAX_LINES:,} if not given, and at most.")
]


class Window:
    """Collects the lines from `first` on, at most `lines` lines and `room` bytes, from a text of any length.

    The text comes in pieces in which every line end is `\\n`. `kept` are the lines without their ends. `cut` is the
    length of a line that did not fit as a whole; it is then the only one, truncated.
    """

    def __init__(self, first: int, lines: int, room: int) -> None:
        self.first = first
        self.kept: list[str] = []
        self.cut: int | None = None
        self.full = False
        self._lines = lines
        self._room = room
        self._line = 1  # which line the next character belongs to
        self._open = ""  # what is kept of that line
        self._length = 0  # how long it is

    @property
    def next_line(self) -> int:
        """The number of the first line after the window."""
        return self.first + len(self.kept)

    @property
    def total(self) -> int:
        """The number of lines of the text, once it has ended."""
        return self._line - 1

    def feed(self, text: str) -> None:
        """Add the next piece of the text."""
        if not text:
            return
        place = self._skip(text)
        while place < len(text):
            end = text.find("\n", place)
            if end < 0:
                self._extend(text[place:])
                return
            self._extend(text[place:end])
            self._finish()
            place = end + 1
            if self.full:
                place = self._count(text, place)

    def end(self) -> None:
        """End the text; a last line without a line end counts too."""
        if self._length:
            self._finish()

    def _skip(self, text: str) -> int:
        """Skip the lines before the window; return where in the piece it begins."""
        if self.full:
            return self._count(text, 0)
        missing = self.first - self._line
        if missing <= 0:
            return 0
        if text.count("\n") < missing:
            return self._count(text, 0)
        place = 0
        for _ in range(missing):
            place = text.index("\n", place) + 1
        self._line = self.first
        self._length = 0
        return place

    def _count(self, text: str, place: int) -> int:
        """Count the lines in the rest of a piece without keeping them."""
        self._line += text.count("\n", place)
        self._length = len(text) - max(place, text.rfind("\n") + 1)
        return len(text)

    def _extend(self, piece: str) -> None:
        self._length += len(piece)
        # A character has at least one byte, so more than this cannot fit.
        self._open += piece[: max(0, self._room + 1 - len(self._open))]

    def _finish(self) -> None:
        if not self.full and self._line >= self.first:
            self._keep()
        self._line += 1
        self._open = ""
        self._length = 0

    def _keep(self) -> None:
        line = replace_lone_surrogates(self._open)
        data = line.encode()
        if len(data) >= self._room:
            self.full = True
            if self.kept:
                return
            line = data[: self._room].decode("utf-8", "ignore")
            self.cut = self._length
        self.kept.append(line)
        self._room -= len(data) + 1
        self.full = self.full or len(self.kept) == self._lines


def read_tool(workspace: Workspace) -> Tool:
    """Make the tool `read` for a workspace."""

    def keys(arguments: dict[str, Any]) -> tuple[str, ...]:
        return workspace.keys(arguments["path"])

    @tool(access="read", keys=keys, idempotent=True)
    def read(path: Path, offset: Offset = None, limit: Limit = None, ctx: ToolContext | None = None) -> ToolOutput:
        """Read a text file, or look at a picture (PNG, JPEG, GIF, WebP).

        A long text comes in windows of lines; a note at the end says how to read on.
        """
        descriptor = _open_file(workspace, path)
        try:
            sample = os.pread(descriptor, SAMPLE, 0)
            if (mime_type := detect_image_type(sample)) is not None:
                return _read_image(descriptor, path, mime_type)
            encoding = detect_encoding(sample)
            if encoding is None:
                raise ToolError(_describe_binary(path, sample, os.fstat(descriptor).st_size))
            window = Window(max(1, offset or 1), min(limit or MAX_LINES, MAX_LINES), MAX_BYTES)
            scan = _Scan(descriptor, encoding, window, ctx)
            try:
                scan.run()
            except UnicodeError as error:
                raise ToolError(f"{path!r} says it is {encoding.codec} and is not: {error}.") from error
            workspace.seen.remember(identify_reader(ctx), workspace.relative(path), scan.digest)
            return _build_output(path, scan)
        except OSError as error:
            raise translate_os_error(error, path) from error
        finally:
            os.close(descriptor)

    return read


def _open_file(workspace: Workspace, path: str) -> int:
    try:
        return workspace.open(path)
    except WrongKind as error:
        raise _explain_folder(workspace, path, error) from error


def _explain_folder(workspace: Workspace, path: str, error: WrongKind) -> WrongKind:
    """Explain that the path is a folder, and list what is in it to help find the right file."""
    try:
        entries = workspace.scan(path)
    except ToolError:
        return error
    shows = make_name_filter(str(workspace.root / workspace.relative(path)))
    shown_entries = [entry for entry in entries if shows is None or shows(entry.name)]
    names = [repr(f"{entry.name}/" if entry.kind == "folder" else entry.name) for entry in shown_entries]
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return WrongKind(f"{path!r} is a folder, not a file. In it: {shown or 'nothing'}.")


class _Scan:
    """Reads a file once to fill the window; unless the file is huge, counts its lines and computes its digest too."""

    def __init__(self, descriptor: int, encoding: Encoding, window: Window, ctx: ToolContext | None) -> None:
        self.window = window
        self.strange = 0
        self.whole = False
        self.digest: str | None = None
        self.size = os.fstat(descriptor).st_size
        self._encoding = encoding
        self._descriptor = descriptor
        self._ctx = ctx

    def run(self) -> None:
        """Read until the window is full, and on to the end unless the file is huge."""
        content = blake2b(digest_size=DIGEST_SIZE) if self.size <= _MAX_COUNTED_BYTES else None
        decoder = codecs.getincrementaldecoder(self._encoding.codec)(self._encoding.errors)
        lines = io.IncrementalNewlineDecoder(decoder, translate=True)
        place = 0
        while chunk := os.pread(self._descriptor, _CHUNK, place):
            if content is not None:
                content.update(chunk)
            self._take(lines.decode(chunk if place else chunk[len(self._encoding.mark) :]))
            place += len(chunk)
            if self.window.full and max(place, self.size) > _MAX_COUNTED_BYTES:
                return
            if place > _MAX_SCANNED_BYTES:
                raise ToolError(
                    f"Line {self.window.first:,} is not in the first {_MAX_SCANNED_BYTES:,} bytes. Use a program."
                )
            if self._ctx is not None and self._ctx.cancelled:
                raise ToolError("Reading was cancelled.")
        self._take(lines.decode(b"", final=True))
        self.window.end()
        self.whole = True
        self.digest = content and content.hexdigest()

    def _take(self, text: str) -> None:
        if self._encoding.codec == "utf-8":
            self.strange += count_undecodable(text)
        self.window.feed(text)


def _build_output(path: str, scan: _Scan) -> ToolOutput:
    window = scan.window
    if scan.size == 0 and not window.kept:
        return ToolOutput(f"{path!r} is empty.", {"total_lines": 0})
    if not window.kept:
        raise ToolError(f"{path!r} has {_pluralize(window.total, 'line')}, so there is no line {window.first:,}.")
    details: dict[str, Any] = {"first_line": window.first, "last_line": window.next_line - 1}
    if scan.whole:
        details["total_lines"] = window.total
    text = "\n".join(window.kept)
    notes = list(_describe_window(scan))
    return ToolOutput(f"{text}\n\n[{' '.join(notes)}]" if notes else text, details)


def _describe_window(scan: _Scan) -> Iterator[str]:
    window = scan.window
    last = window.next_line - 1
    if window.cut is not None:
        yield f"Line {last:,} has {window.cut:,} characters, of which the first {len(window.kept[0]):,} are shown."
    more = not scan.whole or last < window.total
    if more or window.first > 1:
        total = f"{window.total:,}" if scan.whole else f"many ({scan.size:,} bytes)"
        yield f"Lines {window.first:,} to {last:,} of {total}."
    if more:
        yield f"Read on with offset={window.next_line}."
    if scan.strange:
        yield f"{_pluralize(scan.strange, 'byte')} not UTF-8, shown as \ufffd where they are; edit keeps them."


def _pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _read_image(descriptor: int, path: str, mime_type: str) -> ToolOutput:
    size = os.fstat(descriptor).st_size
    if size > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{path!r} is a picture ({mime_type}) of {size:,} bytes; at most {MAX_IMAGE_BYTES:,} can be shown. "
            "Make it smaller."
        )
    data = os.pread(descriptor, MAX_IMAGE_BYTES + 1, 0)
    try:
        picture = inspect_image(data, mime_type)
    except ValueError as error:
        raise ToolError(f"{path!r} is a picture ({mime_type}) that cannot be shown: {error}.") from error
    words = f"{path!r}: {mime_type}, {picture.width} x {picture.height} pixels, {len(data):,} bytes."
    return ToolOutput([TextContent(words), ImageContent(base64.b64encode(data).decode(), mime_type)])


def _describe_binary(path: str, sample: bytes, size: int) -> str:
    kind = next((words for start, words in _KINDS.items() if sample.startswith(start)), None)
    if kind is None and b"\0" not in sample:
        return (
            f"{path!r} ({size:,} bytes) is neither UTF-8 nor UTF-16 text: another encoding, or no text. "
            "Convert it first, for example with iconv."
        )
    return f"{path!r} is {kind or 'binary'} ({size:,} bytes), not text. Use a program that understands it."
