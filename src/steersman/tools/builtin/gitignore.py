"""What `.gitignore` files hide, by git's own rules: the deepest file speaks first, in a file the last fitting line."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from steersman.tools.builtin.patterns import BadGlob, glob_regex

# A project can write anything there, and every name is held against all of it.
MAX_BYTES = 100_000
MAX_RULES = 2_000


@dataclass(frozen=True, slots=True)
class Rule:
    """One line: what it fits, and whether that is hidden or shown again."""

    regex: str
    negated: bool
    folders_only: bool
    by_name: bool


class Rules:
    """The rules of one file. Patterns and paths are bytes to git: here they are Latin-1 text, a letter for a byte."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return _any_of([rule.regex for rule in self.rules if rule.by_name])

    @cached_property
    def _paths(self) -> re.Pattern[str]:
        return _any_of([rule.regex for rule in self.rules if not rule.by_name])

    @cached_property
    def _single(self) -> list[tuple[Rule, re.Pattern[str]]]:
        return [(rule, re.compile(rule.regex)) for rule in reversed(self.rules)]

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Whether a path is hidden; `None` when no rule says anything about it."""
        name = path.rpartition("/")[2]
        # Most paths fit nothing, which one look at all rules together shows.
        if self._names.fullmatch(name) is None and self._paths.fullmatch(path) is None:
            return None
        for rule, regex in self._single:
            if (folder or not rule.folders_only) and regex.fullmatch(name if rule.by_name else path):
                return not rule.negated
        return None


@dataclass(frozen=True, slots=True)
class Ignores:
    """All rules that hold in a folder: its own file and those above it.

    Paths are relative to the workspace. A file in it sees them without the first `cut` characters, one above it with
    `prefix` before them.
    """

    rules: Rules
    cut: int = 0
    prefix: str = ""
    above: Ignores | None = None

    def hides(self, path: str, *, folder: bool) -> bool:
        """Whether an entry is hidden, provided that its folder is not."""
        if not path.isascii():
            path = as_bytes(path)
        level: Ignores | None = self
        while level is not None:
            verdict = level.rules.verdict(level.prefix + path[level.cut :], folder=folder)
            if verdict is not None:
                return verdict
            level = level.above
        return False

    def within(self, folder: str, text: bytes) -> Ignores:
        """These rules and those of a file in a folder beneath; the workspace itself is `""`."""
        return Ignores(parse(text), len(as_bytes(folder)) + 1 if folder else 0, "", self)


def as_bytes(path: str) -> str:
    """A path with a character for every byte."""
    return os.fsencode(path).decode("latin-1")


@lru_cache(maxsize=64)
def parse(text: bytes) -> Rules:
    """The rules of a file; a line that can match nothing is left out, as git does."""
    rules: list[Rule] = []
    for line in text[:MAX_BYTES].removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        rule = _rule(line.removesuffix(b"\r").decode("latin-1"))
        if rule is not None:
            rules.append(rule)
    return Rules(tuple(rules[:MAX_RULES]))


NOTHING = Ignores(Rules(()))


def _rule(line: str) -> Rule | None:
    if line.startswith("#"):
        return None
    # A space at the end counts only behind a backslash.
    pattern = re.sub(r"^((?:[^\\ ]|\\.| +(?! *$))*).*$", r"\1", line, flags=re.DOTALL) if line.endswith(" ") else line
    negated = pattern.startswith("!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith("/")
    pattern = pattern[: len(pattern) - folders_only]
    by_name = "/" not in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    # git compares what stands before the first wildcard as it is, and reads the rest as a pattern of its own.
    plain = "" if by_name else re.split(r"[*?\[\\]", pattern, maxsplit=1)[0]
    try:
        regex = re.escape(plain) + glob_regex(pattern.removeprefix(plain))
    except BadGlob:
        return None
    return Rule(regex, negated, folders_only, by_name)


def _any_of(regexes: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{regex})" for regex in regexes) if regexes else "(?!)")


def outer(root: Path) -> Ignores:
    """The rules that hold in a whole workspace: those of its repository, when there is one, above the workspace."""
    top = repository(root)
    if top is None:
        return NOTHING
    steps = root.relative_to(top).parts
    ignores = NOTHING
    folder, prefix = top, "".join(f"{part}/" for part in steps)
    sources = [(top / ".git" / "info" / "exclude", prefix)]
    for part in steps:
        sources.append((folder / ".gitignore", prefix))
        folder, prefix = folder / part, prefix.removeprefix(f"{part}/")
    for path, before in sources:
        if (text := _read(path)) is not None:
            ignores = Ignores(parse(text), 0, as_bytes(before), ignores)
    return ignores


def repository(folder: Path) -> Path | None:
    """The nearest folder at or above this one that holds a `.git`."""
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), None)


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return read_rules(descriptor, path.name)
    finally:
        os.close(descriptor)


def read_rules(folder: int, name: str = ".gitignore") -> bytes | None:
    """The text of a rules file in an open folder; like git, it follows no link."""
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
