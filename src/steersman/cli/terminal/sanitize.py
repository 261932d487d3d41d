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


def _escape_match(match: re.Match[str]) -> str:
    return escape_character(match[0])
