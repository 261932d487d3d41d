"""Matches paths against `.gitignore` files by git's own rules, and translates glob patterns to regular expressions.

The deepest `.gitignore` file decides first; in a file, the last matching line decides. The regular expressions cannot
backtrack exponentially: what follows a star is matched at the first place where it fits.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

# A project can write anything there, and every path is matched against all of it.
MAX_BYTES = 100_000
MAX_RULES = 2_000
MAX_LINE = 4_096
# How much is matched in one step: while Python matches a regular expression, no other thread runs.
MAX_STEP = 20_000

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "space": r"\x09-\x0d\x20",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_STAR, _FOLDERS, _SLASH = "*", "**", "/"


class BadGlob(ValueError):
    """An invalid glob pattern; the message says why."""


def translate_glob(pattern: str) -> str:
    """Translate a glob to a regular expression for whole paths: `*`, `?`, `[a-z]` match in a name, `**` any folders."""
    runs = _split_runs(_split_segments(list(_tokenize(pattern))))
    if len(runs) == 1:
        return "/".join(map(_translate_segment, runs[0]))
    first, *middle, last = [list(map(_translate_segment, run)) for run in runs]
    parts = ["".join(f"{segment}/" for segment in first)]
    # The first match of a run leaves the most text for the next one, so atomic groups lose no match.
    parts += [f"(?>(?:[^/]*/)*?{''.join(f'{segment}/' for segment in run)})" for run in middle if run]
    parts.append(f"(?:[^/]*/)*{'/'.join(last)}" if last else "(?s:.*)")
    return "".join(parts)


def _tokenize(pattern: str) -> Iterator[str]:
    """Yield tokens: a star, a run of stars, a slash, or a regular expression for one character."""
    place, size = 0, len(pattern)
    while place < size:
        char = pattern[place]
        place += 1
        if char == "*":
            start = place - 1
            while place < size and pattern[place] == "*":
                place += 1
            yield _STAR if place - start == 1 or not _is_whole_name(pattern, start, place) else _FOLDERS
        elif char == "?":
            yield "[^/]"
        elif char == "[":
            char_class, place = _translate_class(pattern, place)
            yield char_class
        elif char == "\\":
            if place == size:
                raise BadGlob("it ends with a backslash")
            yield _translate_char(pattern[place])
            place += 1
        else:
            yield _translate_char(char)


def _translate_char(char: str) -> str:
    return _SLASH if char == "/" else re.escape(char)


def _is_whole_name(pattern: str, start: int, end: int) -> bool:
    """Whether the stars are a whole name between slashes, and so match any number of folders."""
    return (start == 0 or pattern[start - 1] == "/") and (
        end == len(pattern) or pattern[end] == "/" or pattern.startswith("\\/", end)
    )


def _translate_class(pattern: str, place: int) -> tuple[str, int]:
    """Translate a character class from after its `[`; return it and the position after its `]`."""
    negated = pattern[place : place + 1] in ("!", "^") and pattern[place : place + 1] != ""
    place += negated
    items: list[str] = []
    before, first = "", True
    while first or pattern[place : place + 1] != "]":
        first = False
        if place >= len(pattern):
            raise BadGlob("a '[' has no ']'")
        char = pattern[place]
        if char == "[" and (named := re.compile(r"\[:([^]]*):\]").match(pattern, place)):
            if named[1] not in _POSIX:
                raise BadGlob(f"there is no character class [:{named[1]}:]")
            items.append(_POSIX[named[1]])
            before, place = "", named.end()
        elif char == "-" and before and pattern[place + 1 : place + 2] not in ("", "]"):
            last, place = _read_member(pattern, place + 1)
            if before <= last:
                items.append(f"{_escape(before)}-{_escape(last)}")
            before = ""
        else:
            before, place = _read_member(pattern, place)
            items.append(_escape(before))
    return f"(?!/)[{'^' if negated else ''}{''.join(items)}]" if items else _translate_empty_class(negated), place + 1


def _translate_empty_class(negated: bool) -> str:
    return "[^/]" if negated else "(?!)"


def _read_member(pattern: str, place: int) -> tuple[str, int]:
    if pattern[place] == "\\":
        place += 1
        if place == len(pattern):
            raise BadGlob("a '[' has no ']'")
    return pattern[place], place + 1


def _escape(char: str) -> str:
    return f"\\U{ord(char):08x}"


def _split_segments(tokens: Sequence[str]) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    for token in tokens:
        if token == _SLASH:
            segments.append([])
        else:
            segments[-1].append(token)
    return segments


def _split_runs(segments: Sequence[list[str]]) -> list[list[list[str]]]:
    """Split the names at each `**`."""
    runs: list[list[list[str]]] = [[]]
    for segment in segments:
        if segment == [_FOLDERS]:
            runs.append([])
        else:
            runs[-1].append(segment)
    return runs


def _translate_segment(tokens: Sequence[str]) -> str:
    """Translate one name. What follows a star matches at its first place; the last piece is at the end."""
    pieces = [""]
    for token in tokens:
        if token == _STAR:
            pieces.append("")
        else:
            pieces[-1] += token
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of a `.gitignore` file: its regular expression, and whether it hides or shows again."""

    regex: str
    negated: bool
    folders_only: bool
    by_name: bool


class IgnoreFile:
    """The rules of one file. Git matches bytes: here patterns and paths are Latin-1 text, one character per byte."""

    def __init__(self, rules: tuple[IgnoreRule, ...]) -> None:
        self.rules = rules

    @cached_property
    def _names(self) -> list[re.Pattern[str]]:
        return compile_steps([rule.regex for rule in self.rules if rule.by_name])

    @cached_property
    def _paths(self) -> list[re.Pattern[str]]:
        return compile_steps([rule.regex for rule in self.rules if not rule.by_name])

    @cached_property
    def _single(self) -> list[tuple[IgnoreRule, re.Pattern[str]]]:
        return [(rule, re.compile(rule.regex)) for rule in reversed(self.rules)]

    def match(self, path: str, *, folder: bool) -> bool | None:
        """Match a path: whether it is hidden, or `None` when no rule matches."""
        name = path.rpartition("/")[2]
        # Most paths match no rule, which one match against all rules together shows.
        if not _match_any(self._names, name) and not _match_any(self._paths, path):
            return None
        for rule, regex in self._single:
            if (folder or not rule.folders_only) and regex.fullmatch(name if rule.by_name else path):
                return not rule.negated
        return None


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """All rules that apply in a folder: its own file and those above it.

    Paths are relative to the workspace. A file in the workspace matches them without the first `cut` characters, a file
    above the workspace with `prefix` before them.
    """

    rules: IgnoreFile
    cut: int = 0
    prefix: str = ""
    above: IgnoreRules | None = None

    def hides(self, path: str, *, folder: bool, check: Callable[[], None] = lambda: None) -> bool:
        """Whether an entry is hidden, given that its folder is not; `check` may raise before each file of rules."""
        if not path.isascii():
            path = to_latin1(path)
        level: IgnoreRules | None = self
        while level is not None:
            check()
            verdict = level.rules.match(level.prefix + path[level.cut :], folder=folder)
            if verdict is not None:
                return verdict
            level = level.above
        return False

    def extend(self, folder: str, text: bytes) -> IgnoreRules:
        """Add the rules of a file in a folder beneath; `""` is the workspace itself."""
        return IgnoreRules(parse_ignore_file(text), len(to_latin1(folder)) + 1 if folder else 0, "", self)


def to_latin1(path: str) -> str:
    """Convert a path to one character per byte."""
    return os.fsencode(path).decode("latin-1")


@lru_cache(maxsize=64)
def parse_ignore_file(text: bytes) -> IgnoreFile:
    """Parse the rules of a file; an invalid line is ignored, as git does."""
    rules: list[IgnoreRule] = []
    for line in text[:MAX_BYTES].removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if len(line) > MAX_LINE:
            continue  # longer than any path, and slow to parse
        rule = _parse_rule(line.removesuffix(b"\r").decode("latin-1"))
        if rule is not None:
            rules.append(rule)
    return IgnoreFile(tuple(rules[:MAX_RULES]))


NO_RULES = IgnoreRules(IgnoreFile(()))


def _strip_end(line: str) -> str:
    """A line without the spaces at its end; the first of them counts after a backslash that is no escaped one."""
    kept = line.rstrip(" ")
    return line[: len(kept) + (len(kept) - len(kept.rstrip("\\"))) % 2]


def _parse_rule(line: str) -> IgnoreRule | None:
    if line.startswith("#"):
        return None
    pattern = _strip_end(line)
    negated = pattern.startswith("!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith("/")
    pattern = pattern[: len(pattern) - folders_only]
    by_name = "/" not in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    # Git compares the text before the first wildcard literally, and reads the rest as a pattern of its own.
    plain = "" if by_name else re.split(r"[*?\[\\]", pattern, maxsplit=1)[0]
    try:
        regex = re.escape(plain) + translate_glob(pattern.removeprefix(plain))
    except BadGlob:
        return None
    return IgnoreRule(regex, negated, folders_only, by_name)


def compile_any(regexes: list[str]) -> re.Pattern[str]:
    """Compile one pattern that matches what any of the given ones matches."""
    return re.compile("|".join(f"(?:{regex})" for regex in regexes) if regexes else "(?!)")


def compile_steps(regexes: list[str]) -> list[re.Pattern[str]]:
    """Compile patterns that together match what any of the given ones matches, each short enough for one step."""
    steps: list[list[str]] = []
    room = 0
    for regex in regexes:
        if len(regex) > room:
            steps.append([])
            room = MAX_STEP
        steps[-1].append(regex)
        room -= len(regex)
    return [compile_any(step) for step in steps]


def _match_any(patterns: list[re.Pattern[str]], text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in patterns)


def load_outer_rules(root: Path) -> IgnoreRules:
    """Load the rules from above the workspace: those of the git repository that contains it, if any."""
    top = find_repository(root)
    if top is None:
        return NO_RULES
    steps = root.relative_to(top).parts
    ignores = NO_RULES
    folder, prefix = top, "".join(f"{part}/" for part in steps)
    sources = [(top / ".git" / "info" / "exclude", prefix)]
    for part in steps:
        sources.append((folder / ".gitignore", prefix))
        folder, prefix = folder / part, prefix.removeprefix(f"{part}/")
    for path, before in sources:
        if (text := _read_file(path)) is not None:
            ignores = IgnoreRules(parse_ignore_file(text), 0, to_latin1(before), ignores)
    return ignores


def find_repository(folder: Path) -> Path | None:
    """Find the nearest folder at or above this one that has a `.git`."""
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), None)


def _read_file(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return read_rules(descriptor, path.name)
    finally:
        os.close(descriptor)


def read_rules(folder: int, name: str = ".gitignore") -> bytes | None:
    """Read a rules file in an open folder; like git, it follows no symlink."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, MAX_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
