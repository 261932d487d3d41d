"""Front matter: the lines between two `---` at the beginning of a Markdown file, as YAML has them in simple files."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence

_KEY = re.compile(r"([A-Za-z0-9_-]+)[ \t]*:(?:[ \t]+(.*))?")
_BLOCK = re.compile(r"([|>])[-+0-9]*(?:[ \t]+#.*)?")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:#.*)?""")
# Characters that begin a YAML value other than text.
_NO_TEXT = "[]{}&*!%@`,?"


MAX_LINES, MAX_LENGTH = 256, 8_192
"""The most lines and characters of front matter: a project may have hundreds of such files, read at every start."""


class BadFrontMatter(ValueError):
    """Malformed front matter; the text says what is wrong."""


def parse_front_matter(text: str, *, lists: Collection[str] = ()) -> tuple[dict[str, str], str]:
    """Parse front matter: return its keys with their texts, and the body after it.

    A value that is no text is left out, except a list for one of the keys `lists`: its items are joined with commas.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text[:MAX_LENGTH].split("\n", MAX_LINES)
    is_cut = len(text) > MAX_LENGTH or len(lines) > MAX_LINES
    if lines[0].rstrip() != "---":
        raise BadFrontMatter("it does not begin with a line '---'")
    whole = lines[:-1] if is_cut else lines
    end = next((index for index, line in enumerate(whole[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        where = f", in its first {MAX_LINES} lines and {MAX_LENGTH:,} characters" if is_cut else ""
        raise BadFrontMatter(f"its front matter has no end, a second line '---'{where}")
    found: dict[str, str] = {}
    for key, value, more in _split_entries(lines[1:end]):
        read = _parse_list(key, value, more) if key in lists else _parse_value(key, value, more)
        if read is not None:
            found[key] = read
    return found, text[sum(len(line) + 1 for line in lines[: end + 1]) :].strip("\n")


def _split_entries(lines: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each key, the value on its line, and the indented lines and list items below it."""
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            raise BadFrontMatter(f"{line!r:.80} is not a line such as 'name: value'")
        start = index
        while index < len(lines) and (not lines[index].strip() or lines[index][0] in " \t-"):
            index += 1
        yield match[1], (match[2] or "").strip(), list(lines[start:index])


def _parse_value(key: str, value: str, more: list[str]) -> str | None:
    """Parse a value as text; `None` for a list, a table or any other value."""
    if block := _BLOCK.fullmatch(value):
        return _parse_block(more, folded=block[1] == ">")
    if value[:1] in ('"', "'"):
        return _parse_quoted(key, value)
    if (value and value[0] in _NO_TEXT) or (not value and more):
        return None
    plain = [re.split(r"[ \t]#", value)[0], *more]
    return " ".join(" ".join(plain).split())


def _parse_list(key: str, value: str, more: list[str]) -> str:
    """Parse a list, on its line or below it, as texts joined with commas; a text is one already."""
    below = [line.strip() for line in more if line.strip()]
    if value.startswith("[") and value.endswith("]") and not below:
        items = value[1:-1].split(",")
    elif not value and all(line.startswith("- ") or line == "-" for line in below):
        items = [line[1:] for line in below]
    elif (found := _parse_value(key, value, more)) is not None:
        items = found.split(",")
    else:
        raise BadFrontMatter(f"{key!r} is not a list such as 'a, b'")
    return ", ".join(item.strip().strip("\"'") for item in items)


def _parse_block(lines: list[str], *, folded: bool) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:].rstrip() for line in lines).strip("\n")
    return re.sub(r"\n+", lambda breaks: breaks[0][1:] or " ", text) if folded else text


def _parse_quoted(key: str, value: str) -> str:
    match = _QUOTED.fullmatch(value)
    if match is None:
        raise BadFrontMatter(f"the quoted text of {key!r} does not end on its line")
    if value[0] == "'":
        return match[1][1:-1].replace("''", "'")
    try:
        return str(json.loads(match[1]))
    except ValueError as error:
        raise BadFrontMatter(f"the quoted text of {key!r} has an escape that is not known here") from error
