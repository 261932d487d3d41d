"""Patterns for paths, domains and arguments in rules. They compare texts; nothing here reads a file.

Allowing is exact, and only for a path that can mean one file. A `deny` or `ask` rule ignores case and look-alike
characters, and also matches what may be meant.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from posixpath import normpath
from typing import Literal, TypeAlias

Match: TypeAlias = Literal["yes", "maybe", "no"]
"""Whether a `deny` or `ask` rule matches a call: surely, perhaps, or surely not."""

MAX_TEXT_LENGTH = 10_000
"""Longer texts are not compared: they are never allowed, and may always be forbidden."""

# No user name, no backslash, nothing invisible: every parser finds the same host in such a URL.
_URL = re.compile(r"https?://([A-Za-z0-9.-]+)(?::[0-9]{1,5})?(?:[/?#][!-\[\]-~]*)?")
_ACROSS = re.compile(r"((?<![^/])\*\*/|\*\*)")
_ACROSS_FOLDERS = {"**/": "(?:.*?/)??", "**": ".*?"}
_BRACES = re.compile(r"\{[^{}]*,[^{}]*\}")
_DOMAIN = re.compile(r"(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_MARKS = re.compile(r"[^\w\x00-\x7f]{30}")  # accents are no word characters


def fold_lookalikes(text: str) -> str:
    """Remove differences of case and of look-alike characters from a text."""
    return normalize_characters(text).casefold()


def normalize_characters(text: str) -> str:
    """Replace characters by those they look like (NFKC), in a time that grows with the length of the text.

    The accents of one letter are sorted, which takes the square of their number: a run of them is read in pieces.
    """
    if text.isascii():
        return text
    ends = [0, *[match.end() for match in _MARKS.finditer(text)], len(text)]
    return "".join([unicodedata.normalize("NFKC", text[start:end]) for start, end in pairwise(ends)])


def translate_pattern(pattern: str) -> str:
    """Translate a pattern to a regular expression: `*` and `?` match within a folder, `**` across folders.

    A part between two wildcards is taken where it first fits (an atomic group), because if the rest fits behind another
    place, it fits behind that one. With all places tried, a long text could take hours.
    """
    first, *others = _ACROSS.split(pattern)
    found = _translate_run(first, is_last=not others)
    for place in range(0, len(others), 2):
        is_last = place + 2 == len(others)
        run = _ACROSS_FOLDERS[others[place]] + _translate_run(others[place + 1], is_last=is_last)
        found += run if is_last else f"(?>{run})"
    return found


def _translate_run(run: str, *, is_last: bool) -> str:
    """Translate what is between two wildcards that match across folders."""
    first, *others = [re.escape(part).replace(r"\?", "[^/]") for part in run.split("*")]
    for place, part in enumerate(others, start=1):
        first += f"[^/]*{part}" if is_last and place == len(others) else f"(?>[^/]*?{part})"
    return first


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A path pattern such as `src/**`, relative to the workspace (its path as given, and its real path)."""

    roots: tuple[str, ...]
    exact: re.Pattern[str]
    loose: re.Pattern[str]
    start: str
    absolute: bool

    def allows(self, path: object) -> bool:
        """Whether a path surely matches."""
        if not isinstance(path, str) or not _is_plain(path):
            return False
        relative = _make_relative(path, self.roots)
        return relative.startswith("/") == self.absolute and self.exact.fullmatch(relative) is not None

    def match(self, path: object, *, below: bool) -> Match:
        """Whether a path matches, or may match; with `below`, everything in the folder counts."""
        if not isinstance(path, str) or len(path) > MAX_TEXT_LENGTH:
            return "maybe"
        return self.match_forms(PathForms(path, self.roots), below=below)

    def match_forms(self, forms: PathForms, *, below: bool) -> Match:
        """Whether a path matches, or may match, that was read with the roots of this pattern."""
        if any(self.loose.fullmatch(form) for form in (forms.whole if self.absolute else forms.seen)):
            return "yes"
        if below and any(self._may_lead_below(form) for form in forms.given):
            return "maybe"
        return "maybe" if forms.turns_back else "no"

    def covers(self, path: str) -> bool:
        """Whether a real, absolute path matches."""
        # The workspace may be in a folder that an absolute pattern names.
        form = _make_absolute(path, self.roots) if self.absolute else _make_relative(path, self.roots)
        return self.loose.fullmatch(fold_lookalikes(form)) is not None

    def _may_lead_below(self, path: str) -> bool:
        """Whether a matching path lies in that folder, or may."""
        if not self.start:
            return True
        folder = fold_lookalikes(_make_absolute(path.strip(), self.roots)).rstrip("/")
        starts = [self.start] if self.absolute else [f"{fold_lookalikes(root)}/{self.start}" for root in self.roots]
        return any(f"{start}/".startswith(f"{folder}/") for start in starts)


class PathForms:
    """A path as the rules of `deny` and `ask` see it: the forms in which it may be meant.

    `seen` are relative to the workspace, `whole` are absolute.
    """

    __slots__ = ("given", "seen", "turns_back", "whole")

    def __init__(self, path: str, roots: tuple[str, ...]) -> None:
        self.given = {path, path.replace("\\", "/"), _expand_home(path)}
        found = {_make_relative(form.strip(), roots) for form in self.given}
        self.seen = {fold_lookalikes(form) for form in found}
        self.whole = {fold_lookalikes(_make_absolute(form, (root,))) for form in found for root in roots}
        self.turns_back = _turns_back(path)


def _expand_home(path: str) -> str:
    try:
        return os.path.expanduser(path)
    except ValueError:  # a character that no name of a user has
        return path


def _make_absolute(path: str, roots: tuple[str, ...]) -> str:
    return _join_slashes(normpath(path if path.startswith("/") else f"{roots[0]}/{path}"))


def _join_slashes(path: str) -> str:
    """Make one slash of those at the start, of which POSIX keeps two."""
    return f"/{path.lstrip('/')}" if path.startswith("/") else path


def _make_relative(path: str, roots: tuple[str, ...]) -> str:
    """Make a path relative to the workspace; it stays absolute where it leads out of it."""
    whole = _make_absolute(path, roots)
    for root in roots:
        if whole == root:
            return "."
        if whole.startswith(f"{root.rstrip('/')}/"):
            return whole[len(root.rstrip("/")) + 1 :]
    return whole


def _is_plain(path: str) -> bool:
    """Whether a path can mean only one file, judging by its text."""
    if len(path) > MAX_TEXT_LENGTH or not path.strip() or path != path.strip() or not path.isprintable():
        return False
    return "\\" not in path and not path.startswith("~") and ".." not in path.split("/")


def _turns_back(path: str) -> bool:
    """Whether `..` comes after a name: if that name is a symlink, the text does not say where the path leads."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    return any(part == ".." and before != ".." for before, part in pairwise(parts))


def parse_path_pattern(pattern: str, roots: tuple[str, ...]) -> PathPattern:
    """Parse the parentheses of a rule for a file tool, such as `write(src/**)`."""
    text = pattern.strip()
    if not text or not text.isprintable():
        raise ValueError("it names no path")
    if text.endswith(":*") or (text[0] in "'\"" and text.endswith(text[0])):
        raise ValueError("a path stands in the parentheses as it is, without quotes and without `:*`: read(.env)")
    parts = text.split("/")
    if ".." in parts:
        raise ValueError("a path with '..' could mean any place; write it from the workspace or from '/'")
    if any("**" in part and part != "**" for part in parts):
        raise ValueError("`**` stands for whole folders, as in src/** or **/*.py")
    if _BRACES.search(text):
        raise ValueError("braces stand for nothing here; write a rule for each, as in read(*.pem) and read(*.key)")
    text = _join_slashes(normpath(os.path.expanduser(text) if text.startswith("~/") else text))
    for root in roots:
        text = text.removeprefix(f"{root.rstrip('/')}/")
    # The workspace as a whole is all that is in it.
    loose = "**" if text in ("", ".") else fold_lookalikes(text)
    # A forbidden folder is forbidden with its content, and a name without a folder is forbidden in every folder.
    anywhere = "" if "/" in loose else "(?:.*/)?"
    start = re.split(r"[*?]", loose, maxsplit=1)[0] if not anywhere else ""
    return PathPattern(
        roots,
        re.compile(translate_pattern(text), re.DOTALL),
        re.compile(f"{anywhere}{translate_pattern(loose.removesuffix('/**').rstrip('/'))}(?:/.*)?", re.DOTALL),
        start.rstrip("/") if start == loose else start.rpartition("/")[0],
        text.startswith("/"),
    )


def find_host(url: object) -> str | None:
    """The host that a plain URL surely leads to, or None."""
    match = _URL.fullmatch(url) if isinstance(url, str) else None
    return match[1].lower().rstrip(".") if match else None


@dataclass(frozen=True, slots=True)
class Domain:
    """The host of a URL: `example.com`, or `*.example.com` for everything below it."""

    name: str

    def allows(self, url: object) -> bool:
        """Whether a URL surely leads to this host."""
        host = find_host(url)
        if host is None:
            return False
        return host.endswith(self.name[1:]) if self.name.startswith("*.") else host == self.name

    def match(self, url: object) -> Match:
        """Whether a URL leads to this host or one below it, or may."""
        if not isinstance(url, str):
            return "maybe"
        name = self.name.removeprefix("*.")
        host = find_host(url)
        if host is None:
            return "yes" if len(url) <= MAX_TEXT_LENGTH and name in fold_lookalikes(url) else "maybe"
        return "yes" if host == name or host.endswith(f".{name}") else "no"


def parse_domain(pattern: str) -> Domain:
    """Parse the parentheses of a rule for `fetch`, such as `fetch(domain:example.com)`."""
    name = pattern.strip().removeprefix("domain:").lower().rstrip(".")
    if not pattern.strip().startswith("domain:") or not _DOMAIN.fullmatch(name):
        raise ValueError("an address is named by its host, as in fetch(domain:docs.example.com)")
    return Domain(name)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool and the pattern for its value."""

    name: str
    exact: re.Pattern[str]
    loose: re.Pattern[str]
    number: float | None

    def allows(self, value: object) -> bool:
        """Whether the value surely matches."""
        text = _to_text(value)
        return (
            text is not None and text.isprintable() and ".." not in text.split("/") and bool(self.exact.fullmatch(text))
        )

    def match(self, value: object) -> Match:
        """Whether the value matches, or may match."""
        text = _to_text(value)
        if text is None:
            return "maybe"
        forms = [fold_lookalikes(form) for form in (text, text.strip(), normpath(text.strip()))]
        if isinstance(value, float) and value.is_integer():
            forms.append(str(int(value)))  # 5.0 is 5 to a tool
        is_same = not isinstance(value, bool) and value == self.number
        return "yes" if is_same or any(self.loose.fullmatch(form) for form in forms) else "no"


def parse_argument(pattern: str) -> Argument:
    """Parse the parentheses of a rule for any other tool, such as `deploy(target=staging)`."""
    name, equals, text = [part.strip() for part in pattern.partition("=")]
    if not equals or not name or not text:
        raise ValueError("say which argument is meant, as in deploy(target=staging)")
    if re.fullmatch(r"'[^']*'|\"[^\"]*\"", text):
        raise ValueError("a value stands behind `=` as it is, without quotes: deploy(target=staging)")
    return Argument(
        name,
        re.compile(translate_pattern(text), re.DOTALL),
        re.compile(translate_pattern(fold_lookalikes(text)), re.DOTALL),
        float(text) if _NUMBER.fullmatch(text) else None,
    )


def _to_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, str | int | float) else None
    return text if text is not None and len(text) <= MAX_TEXT_LENGTH else None
