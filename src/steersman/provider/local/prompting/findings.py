"""Reads the results of the built-in tools back: hits of a search, files that were found, lines of a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_HIT = re.compile(r"(\d+)([:-]) (.*)")
_SUMMARY = re.compile(r"\[([\d,]+) match(?:es)? in ([\d,]+) files?(\. There are more)?.*\]")
_MORE_FILES = re.compile(r"\[[\d,]+ more of ([\d,]+)\.")
_NOTHING = re.compile(r"No (?:line|file|folder) in .* matches ")
_MISSING = re.compile(r"'.*' does not exist\.")
_WINDOW = re.compile(r"\[.*?Lines ([\d,]+) to ([\d,]+) of ([\d,]+)\.")
_NEAR = 2
# A line that defines a name, in the languages that people use most.
_DEFINING = (
    r"(?:def|class|function|fn|func|struct|enum|trait|interface|type|module|mod|macro_rules!|const|let|var|static"
    r"|val|object|namespace|#\s*define|record|union|typedef)"
)


_STATEMENT = re.compile(
    r"\s*(?:return|await|yield|raise|if|else|throw|case|assert|not|and|or|in|print|del|with|for|while|new|import|from)\b"
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A line of a search; `exact` says that it matched itself, and is not only near one that did."""

    path: str
    line: int
    text: str
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, and whether that is all there is."""

    hits: tuple[Hit, ...]
    matches: int
    complete: bool

    @property
    def files(self) -> list[str]:
        """The files with a match."""
        return list(dict.fromkeys(hit.path for hit in self.hits if hit.exact))


def is_nothing(result: str) -> bool:
    """Whether a result says that nothing matches."""
    return _NOTHING.match(result) is not None


def is_missing(failure: str) -> bool:
    """Whether a call failed because there is no such file, and not because it was denied."""
    return _MISSING.match(failure) is not None


def parse_search(result: str) -> Found:
    """The hits in a result of `search`."""
    hits: list[Hit] = []
    path, matches, complete = "", 0, True
    for line in () if is_nothing(result) else result.splitlines():
        if found := _HIT.fullmatch(line):
            hits.append(Hit(path, int(found[1]), found[3], found[2] == ":"))
        elif found := _SUMMARY.fullmatch(line):
            matches, complete = _to_number(found[1]), found[3] is None
        elif line != "--" and not line.startswith("["):
            path = line
    return Found(tuple(hits), matches, complete)


def parse_glob(result: str) -> tuple[list[str], int]:
    """The files in a result of `glob`, and how many there are."""
    if is_nothing(result):
        return [], 0
    files = [line for line in result.splitlines() if not line.startswith("[")]
    more = _MORE_FILES.search(result)
    return files, _to_number(more[1]) if more else len(files)


def count_lines(result: str) -> int | None:
    """How many lines the file has that was read; `None` if the result does not say."""
    window = _WINDOW.search(result.rpartition("\n")[2])
    if window:
        return _to_number(window[3]) if window[1] == "1" else None
    return 0 if re.fullmatch(r"'.*' is empty\.", result) else len(result.split("\n"))


def is_definition(name: str, text: str) -> bool:
    """Whether a line of code defines a name."""
    last = re.escape(name.rpartition(".")[2])
    return (
        re.search(rf"(?<![\w.]){_DEFINING}\s+(?:mut\s+|\w+::)?\*?{last}(?![\w])", text) is not None
        or re.match(rf"\s*(?:export |pub |final |public |private |static |self\.)*{last}\s*(?::[^=]*)?:?=(?!=)", text)
        is not None
        or re.match(rf"[\w*&<>:\[\], ]*[\w*&>\]]\s[*&]*{last}\s*\([^;=]*\)?\s*(?:\{{.*)?$", text) is not None
        or re.match(rf"\s*[\"']?{last}[\"']?\s*(?::|=)(?!=)\s*\S", text) is not None
    )


def find_definitions(name: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits that define a name; a statement such as `return name(x)` is none."""
    found = [hit for hit in hits if hit.exact and is_definition(name, hit.text)]
    return [hit for hit in found if not _STATEMENT.match(hit.text)]


def measure_coverage(hits: Sequence[Hit], patterns: Sequence[str]) -> float:
    """The largest share of these patterns that lines close to each other, or their path, have."""
    best = 0
    for hit in hits:
        near = [other.text for other in hits if other.path == hit.path and abs(other.line - hit.line) <= _NEAR]
        place = "\n".join([hit.path, *near])
        best = max(best, sum(re.search(pattern, place, re.IGNORECASE) is not None for pattern in patterns))
    return best / len(patterns) if patterns else 1.0


def _to_number(text: str) -> int:
    return int(text.replace(",", ""))
