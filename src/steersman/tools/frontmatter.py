"""The head of a Markdown file between two `---` lines: keys and texts, a small and harmless part of YAML read by hand.

Plain, quoted, folded (`>`) and literal (`|`) texts are read. Lists, tables, tags and anchors are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

_KEY = re.compile(r"([A-Za-z0-9_-]+)[ \t]*:(?:[ \t]+(.*))?")
_BLOCK = re.compile(r"([|>])[-+0-9]*(?:[ \t]+#.*)?")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:#.*)?""")
# What YAML begins something else with than a text.
_NO_TEXT = "[]{}&*!%@`,?"


class BadFrontMatter(ValueError):
    """A head that is not one; its text says what is wrong."""


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The keys with their texts, and the body behind the head."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if not lines or lines[0].rstrip() != "---":
        raise BadFrontMatter("it does not begin with a line '---'")
    end = next((place for place, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        raise BadFrontMatter("its head has no end, a second line '---'")
    found: dict[str, str] = {}
    for key, value, more in _entries(lines[1:end]):
        read = _text(key, value, more)
        if read is not None:
            found[key] = read
    return found, "\n".join(lines[end + 1 :]).strip("\n")


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Each key, what stands beside it, and the indented lines and list items below it."""
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            raise BadFrontMatter(f"{line!r:.80} is not a line such as 'name: value'")
        start = place
        while place < len(lines) and (not lines[place].strip() or lines[place][0] in " \t-"):
            place += 1
        yield match[1], (match[2] or "").strip(), list(lines[start:place])


def _text(key: str, value: str, more: list[str]) -> str | None:
    """A value as text; `None` for a list, a table or whatever else it may be."""
    if block := _BLOCK.fullmatch(value):
        return _block(more, folded=block[1] == ">")
    if value[:1] in ('"', "'"):
        return _quoted(key, value)
    if (value and value[0] in _NO_TEXT) or (not value and more):
        return None
    plain = [re.split(r"[ \t]#", value)[0], *more]
    return " ".join(" ".join(plain).split())


def _block(lines: list[str], *, folded: bool) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:].rstrip() for line in lines).strip("\n")
    return re.sub(r"\n+", lambda breaks: breaks[0][1:] or " ", text) if folded else text


def _quoted(key: str, value: str) -> str:
    match = _QUOTED.fullmatch(value)
    if match is None:
        raise BadFrontMatter(f"the quoted text of {key!r} does not end on its line")
    if value[0] == "'":
        return match[1][1:-1].replace("''", "'")
    try:
        return str(json.loads(match[1]))
    except ValueError as error:
        raise BadFrontMatter(f"the quoted text of {key!r} has an escape that is not known here") from error
