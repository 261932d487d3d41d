"""The `search` tool finds lines that match a regular expression, in files beneath the workspace, within a deadline.

Files are opened here, in batches, and the search engine gets file descriptors: no path is opened twice (TOCTOU).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from steersman.tools.builtin.encoding import skip_partial_character
from steersman.tools.builtin.glob_tool import Glob, Ignored
from steersman.tools.builtin.search_engine import Hit, Query, SearchEngine, find_ripgrep
from steersman.tools.builtin.walk import (
    DEFAULT_SECONDS,
    Deadline,
    DeadlinePassed,
    Folder,
    Walk,
    describe_omissions,
    format_path,
    resolve_start,
)
from steersman.tools.confine.syscalls import is_pseudo_file
from steersman.tools.confine.workspace import Workspace
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool, tool
from steersman.types.content import replace_lone_surrogates
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

MAX_MATCHES = 1_000
MAX_BYTES = 30_000
MAX_FILE = 100_000_000
MAX_PATTERN = 5_000
MAX_LINE = 300
_BEFORE_MATCH = 80
_WINDOW = 1 << 15
_MORE = "…"
_BATCH = 128
_HEAD = 8_000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

Pattern = Annotated[str, msgspec.Meta(description="A regular expression, matched against each line by itself.")]
Path = Annotated[str, msgspec.Meta(description="The folder or file to search, relative to the workspace.")]
GlobFilter = Annotated[
    str | None, msgspec.Meta(description="Only files that match, such as '*.py' or 'src/**'; '!*.md' for all others.")
]
IgnoreCase = Annotated[bool, msgspec.Meta(description="Whether upper and lower case are the same.")]
Literal = Annotated[bool, msgspec.Meta(description="Whether the pattern is plain text, not a regular expression.")]
Context = Annotated[int, msgspec.Meta(ge=0, le=20, description="How many lines to show before and after each match.")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_MATCHES, description="How many matching lines to show at most.")]


def search_tool(workspace: Workspace, *, seconds: float = DEFAULT_SECONDS, ripgrep: bool = True) -> Tool:
    """Make the `search` tool for a workspace; `ripgrep=False` searches with Python even where ripgrep is installed."""

    @tool(name="search", access="read", idempotent=True)
    def search(
        ctx: ToolContext,
        pattern: Pattern,
        path: Path = ".",
        glob: GlobFilter = None,
        ignore_case: IgnoreCase = False,
        literal: Literal = False,
        context: Context = 0,
        limit: Limit = 100,
        ignored: Ignored = False,
    ) -> ToolOutput:
        """Search the lines of files with a regular expression. Shows each file's path and its matching lines, numbered.

        What .gitignore hides, binary files and what links lead to are left out. Long lines are shown around the match.
        """
        _check_pattern(pattern)
        program = find_ripgrep(str(workspace.root)) if ripgrep else None
        work = Search(
            workspace,
            Query(pattern, literal, ignore_case, limit + 1),
            SearchEngine(program),
            Deadline(ctx, seconds),
            context=context,
            limit=limit,
        )
        return work.run(path, glob, ignored=ignored)

    return search


def _check_pattern(pattern: str) -> None:
    if not pattern:
        raise ToolError("The pattern is empty. Give a regular expression, or use glob to find files by name.")
    if len(pattern) > MAX_PATTERN:
        raise ToolError(f"The pattern is too long ({len(pattern):,} characters; at most {MAX_PATTERN:,}).")
    if "\0" in pattern or replace_lone_surrogates(pattern) != pattern:
        raise ToolError("The pattern has a character that no text file has (NUL, or a lone surrogate).")


def _choose_batch_size() -> int:
    """Choose how many files to open together, leaving file descriptors for other searches and for the child."""
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        free = most - len(os.listdir("/dev/fd")) if most != resource.RLIM_INFINITY else _BATCH * 4
    except (ImportError, OSError):
        return 1
    return max(1, min(_BATCH, free // 4))


@dataclass(slots=True)
class Search:
    """One search: opens files in batches, searches them while they are open, and collects the lines to show."""

    workspace: Workspace
    query: Query
    engines: SearchEngine
    deadline: Deadline
    context: int
    limit: int
    lines: list[str] = field(default_factory=list[str])
    batch: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    notes: list[str] = field(default_factory=list[str])
    size: int = 0
    matches: int = 0
    matched_files: int = 0
    batch_size: int = field(default_factory=_choose_batch_size)
    tried: bool = False
    large: list[str] = field(default_factory=list[str])
    more: bool = False

    def run(self, path: str, glob: str | None, *, ignored: bool) -> ToolOutput:
        """Search a file, or the files beneath a folder."""
        start = resolve_start(self.workspace, path)
        late = False
        try:
            if stat.S_ISDIR(self.workspace.stat(path).st_mode):
                self._search_folder(start, glob, ignored=ignored)
            else:
                self._search_file(start, path)
        except DeadlinePassed as error:
            late = True
            self._report_timeout(error)
        finally:
            self._close_batch()
        return self._build_output(path, late=late)

    def _search_folder(self, start: str, glob: str | None, *, ignored: bool) -> None:
        walk = Walk(self.workspace, start, self.deadline, ignored=ignored)
        for found in _filter_files(walk, start, glob):
            self._open_into_batch(*found)
            if self.more:
                break
        self._search_batch()
        if not self.more:
            self.notes += describe_omissions(walk)
        if not self.matches and walk.hidden:
            self.notes.append(
                f"Hidden by .gitignore and not searched: {walk.hidden:,}. Use ignored=true to search there too."
            )

    def _search_file(self, start: str, path: str) -> None:
        descriptor = self.workspace.open(path)
        self.batch.append((start, descriptor))
        if os.fstat(descriptor).st_size > MAX_FILE:
            raise ToolError(f"{path!r} is too large to search: more than {MAX_FILE:,} bytes.")
        if b"\0" in os.pread(descriptor, _HEAD, 0):
            raise ToolError(f"{path!r} is not a text file; only text is searched.")
        self._search_batch()

    def _open_into_batch(self, folder: Folder, name: str) -> None:
        """Open a file for the next batch, unless it is binary, empty or too large."""
        try:
            descriptor = os.open(name, _OPEN, dir_fd=folder.descriptor)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and self.batch:
                self._search_batch()
                self._open_into_batch(folder, name)
            return  # deleted since it was listed, or not readable
        path = folder.join(name)
        self.batch.append((path, descriptor))
        if not self._is_text(path, descriptor, folder):
            os.close(self.batch.pop()[1])
        elif len(self.batch) >= self.batch_size:
            self._search_batch()

    def _is_text(self, path: str, descriptor: int, folder: Folder) -> bool:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return False
        if found.st_size > MAX_FILE:
            self.large.append(path)
            return False
        if found.st_dev != os.fstat(folder.descriptor).st_dev and is_pseudo_file(descriptor):
            return False
        return b"\0" not in os.pread(descriptor, _HEAD, 0)

    def _search_batch(self) -> None:
        """Search the batch and collect its matches; without any file, the pattern is still checked."""
        if not self.batch and self.tried:
            return
        hits = self.engines.find(self.query, [descriptor for _, descriptor in self.batch], self.deadline)
        self.tried = True
        for index, (path, descriptor) in enumerate(self.batch):
            of_file = [hit for hit in hits if hit.file == index]
            if of_file and not self.more:
                self._add_matches(path, descriptor, of_file)
        self._close_batch()

    def _add_matches(self, path: str, descriptor: int, hits: list[Hit]) -> None:
        room = self.limit - self.matches
        self.more = len(hits) > room
        if room <= 0:
            return
        kept = hits[:room]
        lines = [format_path(path), *format_excerpt(descriptor, kept, self.context)]
        size = sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
        while self.size + size > MAX_BYTES and len(kept) > 1:
            self.more = True
            kept = kept[: len(kept) // 2]
            lines = [format_path(path), *format_excerpt(descriptor, kept, self.context)]
            size = sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
        if self.size + size > MAX_BYTES and self.lines:
            self.more = True
            return
        self.lines += lines
        self.size += size
        self.matches += len(kept)
        self.matched_files += 1

    def _close_batch(self) -> None:
        for _, descriptor in self.batch:
            os.close(descriptor)
        self.batch.clear()

    def _report_timeout(self, error: DeadlinePassed) -> None:
        where = (
            f" in {format_path(self.batch[error.file][0])}"
            if error.file is not None and error.file < len(self.batch)
            else ""
        )
        self.notes.append(
            f"Stopped after {self.deadline.seconds:g} seconds{where}, not everything was searched. "
            "Use a simpler pattern, or narrow it down with 'path' or 'glob'."
        )

    def _build_output(self, path: str, *, late: bool) -> ToolOutput:
        lines = self.lines
        if self.matches:
            files = "1 file" if self.matched_files == 1 else f"{self.matched_files:,} files"
            count = "1 match" if self.matches == 1 else f"{self.matches:,} matches"
            more = ". There are more: narrow the search with 'path' or 'glob'" if self.more else ""
            lines.append(f"[{count} in {files}{more}.]")
        elif not late:
            lines.append(_describe_no_match(self.query, path))
        if self.large:
            self.notes.append(
                f"Not searched, because larger than {MAX_FILE:,} bytes: {', '.join(map(format_path, self.large[:5]))}."
            )
        lines += [f"[{note}]" for note in self.notes]
        details = {"matches": self.matches, "files": self.matched_files, "complete": not (late or self.more)}
        return ToolOutput("\n".join(lines), details=details, is_error=late)


def _describe_no_match(query: Query, path: str) -> str:
    text = f"No line in {path!r} matches {query.pattern!r:.200}."
    if "\\n" in query.pattern or "\n" in query.pattern:
        text += " Lines are searched one by one, so a pattern with a line break matches none."
    return text


def _filter_files(walk: Walk, start: str, glob: str | None) -> Iterator[tuple[Folder, str]]:
    """Yield the files of a walk that the glob filter accepts."""
    wanted = glob is None or not glob.startswith("!")
    pattern = None if glob is None else Glob(glob if wanted else glob[1:])
    for folder in walk:
        for name in folder.files:
            path = folder.join(name)
            if pattern is None or pattern.matches(path[len(start) + 1 :] if start else path, name) is wanted:
                yield folder, name


def format_excerpt(descriptor: int, hits: Iterable[Hit], context: int) -> list[str]:
    """Format matching lines as `12: text`, lines around them as `13- text`, and `--` where lines are left out."""
    lines: dict[int, tuple[str, str]] = {}
    for hit in hits:
        if context:
            _add_context(lines, descriptor, hit, context)
        lines[hit.line] = (":", _read_match_line(descriptor, hit))
    shown: list[str] = []
    last = 0
    for number in sorted(lines):
        if context and shown and number > last + 1:
            shown.append("--")
        mark, text = lines[number]
        shown.append(f"{number}{mark} {text}")
        last = number
    return shown


def _read_match_line(descriptor: int, hit: Hit) -> str:
    """Read the line of a match, from a little before the match where the line is long."""
    skipped = max(0, hit.column - 1 - _BEFORE_MATCH) if hit.column > MAX_LINE - _BEFORE_MATCH else 0
    data = os.pread(descriptor, MAX_LINE * 4 + 4, hit.offset + skipped)
    return _MORE * (skipped > 0) + decode_truncated(
        skip_partial_character(data.partition(b"\n")[0]) if skipped else data.partition(b"\n")[0]
    )


def _add_context(lines: dict[int, tuple[str, str]], descriptor: int, hit: Hit, context: int) -> None:
    start = max(0, hit.offset - _WINDOW)
    before = os.pread(descriptor, hit.offset - start, start).split(b"\n")[:-1]
    for back, data in enumerate(reversed(before[-context:]), 1):
        cut = start > 0 and back == len(before)
        lines.setdefault(
            hit.line - back, ("-", _MORE * cut + decode_truncated(skip_partial_character(data) if cut else data))
        )
    after = os.pread(descriptor, _WINDOW, hit.offset)
    following = after.split(b"\n")[1:]
    if following and not following[-1]:
        # An empty piece after the last line end is not a line.
        following.pop()
    for ahead, data in enumerate(following[:context], 1):
        lines.setdefault(hit.line + ahead, ("-", decode_truncated(data)))


def decode_truncated(data: bytes) -> str:
    """Decode a line, truncated to the length that is shown."""
    text = data.removesuffix(b"\r")[: MAX_LINE * 4 + 4].decode("utf-8", "replace")
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}{_MORE}"
