"""Makes untrusted text safe for a terminal: the result cannot move the cursor, colour, hide or title anything.

`sanitize` and `sanitize_line` look at one character at a time, so text that arrives in pieces gives the same result
wherever it was split.
"""

from __future__ import annotations

import re

from steersman.types.visible import escape_character

# C0 without \t and \n, DEL, C1 (such as ESC [ in one character), bidirectional controls, line and paragraph
# separators, annotation marks, tag characters (invisible text), non-characters, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
_BREAKS = re.compile("[\t\n]")


def sanitize(text: str) -> str:
    """Escapes every control character except line breaks and tabs, so that it is shown and not sent to the terminal."""
    return _UNSAFE.sub(_escape_match, text)


def sanitize_line(text: str) -> str:
    """Sanitizes text to one line: as `sanitize`, and line breaks and tabs are shown as symbols too."""
    return _BREAKS.sub(_escape_match, _UNSAFE.sub(_escape_match, text))


def escape_json(text: str) -> str:
    r"""Escapes the same characters in JSON as `\u` and four digits, so that it is safe to show and means the same."""
    return _UNSAFE.sub(lambda match: _escape_in_json(match[0]), text)


def _escape_in_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def _escape_match(match: re.Match[str]) -> str:
    return escape_character(match[0])
