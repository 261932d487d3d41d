"""Short and clean text: values in error messages, untrusted text without invisible characters, single lines."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any, cast
from unicodedata import category

from steersman.types.content import replace_lone_surrogates

# Unicode categories: control characters, invisible and bidirectional formatting, lone surrogates, private use.
_INVISIBLE = frozenset(("Cc", "Cf", "Co", "Cs"))

_MAX_WORD = 300
_MAX_COMPARED = 10


def find_similar(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Find the texts most like a word, the nearest first; in little time, also where a project chose what is known.

    To compare two texts takes up to the cube of their length: only those with the most letters in common are.
    """
    # A millisecond at import, and only errors need it.
    from difflib import SequenceMatcher, get_close_matches

    word = word[:_MAX_WORD]
    matcher = SequenceMatcher(b=word)

    def count_common_letters(other: str) -> float:
        matcher.set_seq1(other[: 2 * _MAX_WORD])
        return matcher.quick_ratio()

    return get_close_matches(word, nlargest(_MAX_COMPARED, known, key=count_common_letters), most)


def format_value(value: Any, limit: int = 80) -> str:
    """Format a value for an error message: truncated, with `null`, `true` and `false` as JSON writes them."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = _write_beginning(value, limit)
    except (RecursionError, ValueError):
        # A value nested too deeply, or an integer with more digits than Python prints.
        return f"a {type(value).__name__} too large to show"
    text = replace_lone_surrogates(text)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _write_beginning(value: Any, room: int) -> str:
    """Write the beginning of what `repr` returns: of a huge value, not all is written only to be truncated."""
    if isinstance(value, str):
        return repr(value[: room + 1])
    if type(value) is list:
        return _join_beginning("[", "]", (("", item) for item in cast(list[Any], value)), room)
    if type(value) is dict:
        items = cast(dict[Any, Any], value).items()
        return _join_beginning("{", "}", ((f"{_write_beginning(key, room)}: ", item) for key, item in items), room)
    return repr(value)


def _join_beginning(first: str, last: str, items: Iterable[tuple[str, Any]], room: int) -> str:
    text = first
    for name, item in items:
        if len(text) > room:
            return text
        text += f"{', ' if len(text) > 1 else ''}{name}{_write_beginning(item, room)}"
    return text + last


def strip_invisible(text: str, limit: int, *, lines: bool = True) -> str:
    """Remove invisible characters and truncate to `limit` characters; `lines=False` puts the text on one line."""
    # Only the beginning is processed: a text may have millions of characters.
    start = text[: limit * 2]
    if not lines:
        start = " ".join(start.split())
    shown = "".join([letter for letter in start if letter in "\n\t" or category(letter) not in _INVISIBLE])
    return shown if len(shown) <= limit and len(text) <= limit * 2 else f"{shown[: limit - 1]}…"


def to_one_line(text: str, limit: int) -> str:
    """Put a text on one line, without unprintable characters, truncated to `limit` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: limit * 4]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
