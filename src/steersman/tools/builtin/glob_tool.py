"""The `glob` tool finds files by a pattern of their path. It opens no file."""

from __future__ import annotations

from typing import Annotated

import msgspec

from steersman.tools.builtin.braces import expand_braces
from steersman.tools.builtin.gitignore import BadGlob, compile_any, translate_glob
from steersman.tools.builtin.walk import (
    DEFAULT_SECONDS,
    Deadline,
    DeadlinePassed,
    Walk,
    describe_omissions,
    format_path,
    resolve_start,
)
from steersman.tools.confine.workspace import Workspace, WrongKind
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool, tool
from steersman.types.errors import ToolError
from steersman.types.tools import ToolOutput

MAX_MATCHES = 500
MAX_BYTES = 30_000
MAX_PATTERN = 1_000

Pattern = Annotated[
    str,
    msgspec.Meta(
        description="Such as '*.py' (in any folder), 'src/**/*.ts', '*.{js,ts}'. With '/' at its end it is for folders."
    ),
]
Path = Annotated[str, msgspec.Meta(description="The folder to look in, relative to the workspace.")]
Ignored = Annotated[bool, msgspec.Meta(description="Whether to look also at what .gitignore hides.")]


class Glob:
    """A glob pattern. Without a slash it matches names in any folder; with one, the whole path."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise ToolError(f"The glob pattern is too long ({len(pattern):,} characters; at most {MAX_PATTERN:,}).")
        self.folders = pattern.endswith("/")
        try:
            single = [_translate_single(part.rstrip("/")) for part in expand_braces(pattern)]
        except BadGlob as error:
            raise ToolError(
                f"The glob pattern {pattern!r:.200} is wrong: {error}. A backslash makes the next character literal."
            ) from error
        self._names = compile_any([regex for regex, by_name in single if by_name])
        self._paths = compile_any([regex for regex, by_name in single if not by_name])

    def matches(self, path: str, name: str) -> bool:
        """Whether it matches a path (relative to the searched folder) or its last name."""
        return self._names.fullmatch(name) is not None or self._paths.fullmatch(path) is not None


def _translate_single(pattern: str) -> tuple[str, bool]:
    by_name = "/" not in pattern
    while pattern.startswith("./"):
        pattern = pattern[2:]
    if pattern in ("", "."):
        raise BadGlob("it is empty")
    if pattern.startswith("/"):
        raise BadGlob("it begins with '/', and patterns are relative to the folder given as 'path'")
    if ".." in pattern.split("/"):
        raise BadGlob("it has '..'; give the folder as 'path' instead")
    return translate_glob(pattern), by_name


def glob_tool(workspace: Workspace, *, seconds: float = DEFAULT_SECONDS) -> Tool:
    """Make the `glob` tool for a workspace."""

    @tool(name="glob", access="read", idempotent=True)
    def glob(ctx: ToolContext, pattern: Pattern, path: Path = ".", ignored: Ignored = False) -> ToolOutput:
        """Find files by a pattern of their paths: *, ?, [a-z], ** for any number of folders, {a,b} for either.

        A pattern without a slash fits names in any folder. What .gitignore hides is left out; links are not entered.
        """
        inside = f"{workspace.root}/"
        finder = Finder(Glob(pattern.removeprefix(inside) if path == "." else pattern))
        walk = Walk(workspace, resolve_start(workspace, path), Deadline(ctx, seconds), ignored=ignored)
        try:
            finder.search(walk)
        except WrongKind as error:
            raise ToolError(f"{path!r} is not a folder. Give the folder to look in, or leave 'path' out.") from error
        return finder.build_output(pattern, path, walk)

    return glob


class Finder:
    """Collects the matching paths, as many as are shown, and counts all of them."""

    def __init__(self, glob: Glob) -> None:
        self.glob = glob
        self.lines: list[str] = []
        self.count = self.size = 0
        self.late = False

    def search(self, walk: Walk) -> None:
        """Walk the folders until the deadline."""
        try:
            for folder in walk:
                for name in folder.folders if self.glob.folders else sorted(folder.files + folder.links):
                    self._consider(folder.join(name), name, walk.start)
        except DeadlinePassed:
            self.late = True

    def _consider(self, path: str, name: str, start: str) -> None:
        if not self.glob.matches(path[len(start) + 1 :] if start else path, name):
            return
        line = format_path(path) + "/" * self.glob.folders
        self.count += 1
        self.size += len(line.encode("utf-8", "replace")) + 1
        if self.count <= MAX_MATCHES and self.size <= MAX_BYTES:
            self.lines.append(line)

    def build_output(self, pattern: str, path: str, walk: Walk) -> ToolOutput:
        """Build the output: what was found, and what was not searched."""
        lines = list(self.lines)
        if not lines:
            lines.append(f"No {'folder' if self.glob.folders else 'file'} in {path!r} matches {pattern!r:.200}.")
            if walk.hidden:
                lines.append(
                    f"[Hidden by .gitignore and left out: {walk.hidden:,}. Use ignored=true to look there too.]"
                )
        elif self.count > len(lines):
            more = self.count - len(lines)
            lines.append(f"[{more:,} more of {self.count:,}. Use a narrower pattern, or give a path.]")
        if self.late:
            lines.append(f"[Stopped after {walk.deadline.seconds:g} seconds, before everything was seen. Give a path.]")
        lines += [f"[{note}]" for note in describe_omissions(walk)]
        return ToolOutput("\n".join(lines), details={"matches": self.count}, is_error=self.late)
