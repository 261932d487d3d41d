"""Colours code by its syntax, line by line. Only colours change: the text stays as it was, or it stays plain.

The text is a stranger's. So only the usual languages are coloured, long lines are not, little is looked at in one go,
and a language whose colouring took long once stays plain. A line is coloured once, with those before it as context.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from typing import Any

from steersman.cli.terminal.spans import Span, slice_spans
from steersman.cli.terminal.theme import get_theme, has_many_colors

MAX_LINE = 300
"""The longest line, in characters, that is coloured."""

MAX_SECONDS = 0.1
"""A language is no longer coloured after a part took more processor time than this."""

# The library's patterns take time by the square of the length of some texts.
_CONTEXT, _PART = 800, 1_200
_LANGUAGES: Mapping[str, str] = {
    name: language
    for language, names in {
        "bash": "bash sh zsh shell",
        "c": "c h",
        "cpp": "cpp c++ cc cxx hpp hh",
        "csharp": "csharp cs c#",
        "css": "css",
        "docker": "docker dockerfile",
        "go": "go golang",
        "html": "html htm",
        "ini": "ini cfg conf",
        "java": "java",
        "javascript": "javascript js jsx mjs cjs",
        "json": "json jsonc",
        "kotlin": "kotlin kt kts",
        "lua": "lua",
        "php": "php",
        "python": "python py python3 pyi",
        "ruby": "ruby rb",
        "rust": "rust rs",
        "scala": "scala",
        "sql": "sql",
        "swift": "swift",
        "toml": "toml",
        "typescript": "typescript ts tsx",
        "xml": "xml svg",
        "yaml": "yaml yml",
    }.items()
    for name in names.split()
}
_CHANGES = {"+": "32", "-": "31", "@": "2", "\\": "2", "[": "2"}
_BACKGROUNDS = {"+": "added", "-": "removed"}
_ROLES: tuple[tuple[str, str], ...] = (
    ("Token.Comment", "comment"),
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "name"),
    ("Token.Name.Decorator", "name"),
    ("Token.Name.Builtin", "name"),
    ("Token.Name.Tag", "name"),
    ("Token.Name.Attribute", "name"),
)


def find_language(word: str) -> str | None:
    """The language that the first word of a fence names, or `None` if it is not coloured."""
    return _LANGUAGES.get(word.strip().split(" ")[0].strip("{}.").lower())


def find_language_of_file(path: str) -> str | None:
    """The language of a file by its name, or `None` if it is not coloured."""
    name = path.rpartition("/")[2].lower()
    return _LANGUAGES.get(name) or (_LANGUAGES.get(name.rpartition(".")[2]) if "." in name else None)


def color_diff(lines: Sequence[str], path: str, environment: Mapping[str, str] = os.environ) -> list[list[Span]]:
    """Colours the lines of a unified diff, which must be sanitized: by change, and by the language of the file.

    Without faint backgrounds in the terminal, or without a known language, a changed line has one colour.
    """
    language = find_language_of_file(path) if has_many_colors(environment) and get_theme().styles.get("added") else None
    block = Highlighter(language)
    if not block.active:
        return [[(line, _CHANGES.get(line[:1], ""))] for line in lines]
    colored = block.color([line[1:] if line[:1] in ("+", "-", " ") else "" for line in lines])
    return [_mark_change(line, spans) for line, spans in zip(lines, colored, strict=True)]


def _mark_change(line: str, spans: list[Span]) -> list[Span]:
    sign = line[:1]
    back = _BACKGROUNDS.get(sign)
    if sign != " " and back is None:
        return [(line, _CHANGES.get(sign, ""))]
    if back is None:
        return [(sign, ""), *spans]
    return [
        (sign, f"{back};{_CHANGES[sign]}"),
        *[(text, f"{back};{style}" if style else back) for text, style in spans],
    ]


class Highlighter:
    """Colours the lines of one block, in order; keeps the last lines as context for the next ones."""

    def __init__(self, language: str | None, *, clock: Callable[[], float] = time.thread_time) -> None:
        self._language = language
        self._clock = clock
        self._context: list[str] = []

    @property
    def active(self) -> bool:
        """Whether lines are coloured."""
        return self._language is not None and self._language not in _slow

    def color(self, lines: Sequence[str]) -> list[list[Span]]:
        """Colours the next lines, which must be sanitized; returns their spans, whose text is that of the lines."""
        done: list[list[Span]] = []
        at = 0
        while at < len(lines):
            part = _take_part(lines, at)
            done += self._color_part(part)
            at += len(part)
        return done

    def _color_part(self, lines: Sequence[str]) -> list[list[Span]]:
        plain = [[(line, "")] for line in lines]
        language = self._language
        if language is None or language in _slow or any(len(line) > MAX_LINE for line in lines):
            return plain
        if (lexer := _find_lexer(language)) is None:
            return plain
        begun = self._clock()
        spans = _color(lexer, [*self._context, *lines])
        if self._clock() - begun > MAX_SECONDS:
            _slow.add(language)
        done = plain if spans is None else spans[len(self._context) :]
        self._keep([*self._context, *lines])
        return done

    def _keep(self, lines: list[str]) -> None:
        size = 0
        for at in range(len(lines) - 1, -1, -1):
            size += len(lines[at]) + 1
            if size > _CONTEXT:
                lines = lines[at + 1 :]
                break
        self._context = lines


def _take_part(lines: Sequence[str], at: int) -> Sequence[str]:
    """As many lines as are coloured at once; at least one."""
    size, end = 0, at
    while end < len(lines) and (size := size + len(lines[end]) + 1) <= _PART:
        end += 1
    return lines[at : max(end, at + 1)]


def _color(lexer: Any, lines: Sequence[str]) -> list[list[Span]] | None:
    """The spans of each line; `None` if the library fails, or says another text."""
    text = "\n".join(lines)
    try:
        found: list[Span] = [(value, _find_role(kind)) for _, kind, value in lexer.get_tokens_unprocessed(text)]
    except Exception:  # noqa: BLE001  # a lexer may fail on any text: it stays plain
        return None
    if "".join([value for value, _ in found]) != text:
        return None
    found = [("".join(value for value, _ in same), role) for role, same in groupby(found, key=itemgetter(1))]
    cuts: list[tuple[int, int]] = []
    start = 0
    for line in lines:
        cuts.append((start, start + len(line)))
        start += len(line) + 1
    return [spans or [("", "")] for spans in slice_spans(found, cuts)]


def _find_lexer(language: str) -> Any:
    """The library's reader of a language; `None` without the library."""
    if language not in _lexers:
        try:
            lexers: Any = import_module("pygments.lexers")
            _lexers[language] = lexers.get_lexer_by_name(language)
        except ImportError:
            _lexers[language] = None
    return _lexers[language]


def _find_role(kind: object) -> str:
    if (known := _known_roles.get(kind)) is None:
        name = str(kind)
        known = next((role for begin, role in _ROLES if name.startswith(begin)), "")
        _known_roles[kind] = known
    return known


_lexers: dict[str, Any] = {}
_known_roles: dict[object, str] = {}
_slow: set[str] = set()
