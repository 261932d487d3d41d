"""Glob patterns as regular expressions that cannot run away: a star takes the first place that fits, and keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
_MAX_ALTERNATIVES = 64

_STAR, _FOLDERS, _SLASH = "*", "**", "/"


class BadGlob(ValueError):
    """A pattern that can match nothing; its text says why."""


def glob_regex(pattern: str) -> str:
    """A regular expression for whole paths: `*`, `?` and `[a-z]` stay within a name, `**` goes through folders."""
    runs = _runs(_segments(list(_tokens(pattern))))
    if len(runs) == 1:
        return "/".join(map(_segment_regex, runs[0]))
    first, *middle, last = [list(map(_segment_regex, run)) for run in runs]
    parts = ["".join(f"{segment}/" for segment in first)]
    # The first place where a run of names fits leaves the most room for the next one: there is no reason to go back.
    parts += [f"(?>(?:[^/]*/)*?{''.join(f'{segment}/' for segment in run)})" for run in middle if run]
    parts.append(f"(?:[^/]*/)*{'/'.join(last)}" if last else "(?s:.*)")
    return "".join(parts)


def braces(pattern: str) -> list[str]:
    """The patterns that `{a,b}` stands for; braces without a comma or without an end are taken as they are."""
    found = [pattern]
    done: list[str] = []
    while found:
        candidate = found.pop(0)
        choice = _first_choice(candidate)
        if choice is None:
            done.append(candidate)
        else:
            start, end, options = choice
            found[:0] = [candidate[:start] + option + candidate[end:] for option in options]
        if len(found) + len(done) > _MAX_ALTERNATIVES:
            raise BadGlob(f"its braces stand for more than {_MAX_ALTERNATIVES} patterns")
    return list(dict.fromkeys(done))


def _tokens(pattern: str) -> Iterator[str]:
    """One at a time: a star, a run of stars, a slash, or a regular expression for one character."""
    place, size = 0, len(pattern)
    while place < size:
        char = pattern[place]
        place += 1
        if char == "*":
            start = place - 1
            while place < size and pattern[place] == "*":
                place += 1
            yield _STAR if place - start == 1 or not _stands_alone(pattern, start, place) else _FOLDERS
        elif char == "?":
            yield "[^/]"
        elif char == "[":
            char_class, place = _class(pattern, place)
            yield char_class
        elif char == "\\":
            if place == size:
                raise BadGlob("it ends with a backslash")
            yield _literal(pattern[place])
            place += 1
        else:
            yield _literal(char)


def _literal(char: str) -> str:
    return _SLASH if char == "/" else re.escape(char)


def _stands_alone(pattern: str, start: int, end: int) -> bool:
    """Whether the stars between two places are a whole name, and so mean any number of folders."""
    return (start == 0 or pattern[start - 1] == "/") and (
        end == len(pattern) or pattern[end] == "/" or pattern.startswith("\\/", end)
    )


def _class(pattern: str, place: int) -> tuple[str, int]:
    """A character class, from behind its bracket, and the place behind it."""
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
            last, place = _member(pattern, place + 1)
            if before <= last:
                items.append(f"{_escape(before)}-{_escape(last)}")
            before = ""
        else:
            before, place = _member(pattern, place)
            items.append(_escape(before))
    return f"(?!/)[{'^' if negated else ''}{''.join(items)}]" if items else _nothing(negated), place + 1


def _nothing(negated: bool) -> str:
    return "[^/]" if negated else "(?!)"


def _member(pattern: str, place: int) -> tuple[str, int]:
    if pattern[place] == "\\":
        place += 1
        if place == len(pattern):
            raise BadGlob("a '[' has no ']'")
    return pattern[place], place + 1


def _escape(char: str) -> str:
    return f"\\U{ord(char):08x}"


def _segments(tokens: Sequence[str]) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    for token in tokens:
        if token == _SLASH:
            segments.append([])
        else:
            segments[-1].append(token)
    return segments


def _runs(segments: Sequence[list[str]]) -> list[list[list[str]]]:
    """The names between two `**`."""
    runs: list[list[list[str]]] = [[]]
    for segment in segments:
        if segment == [_FOLDERS]:
            runs.append([])
        else:
            runs[-1].append(segment)
    return runs


def _segment_regex(tokens: Sequence[str]) -> str:
    """One name. What follows a star is taken where it fits first, except for the last piece, which is at the end."""
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


def _first_choice(pattern: str) -> tuple[int, int, list[str]] | None:
    """Where the first `{a,b}` begins and ends, and its options."""
    for match in re.finditer(r"\\.|\{", pattern, re.DOTALL):
        if match[0] == "{" and (found := _options(pattern, match.start())) is not None:
            return found
    return None


def _options(pattern: str, start: int) -> tuple[int, int, list[str]] | None:
    depth, begin = 0, start + 1
    options: list[str] = []
    for match in re.compile(r"\\.|[{},]", re.DOTALL).finditer(pattern, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if (match[0] == "," and depth == 1) or depth == 0:
            options.append(pattern[begin : match.start()])
            begin = match.end()
        if depth == 0:
            return (start, match.end(), options) if len(options) > 1 else None
    return None
