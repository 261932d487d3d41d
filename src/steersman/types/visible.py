"""Untrusted text made safe to show: no character of it moves a cursor, colours, hides or titles anything.

`sanitize` and `sanitize_line` look at one character at a time, so text that arrives in pieces gives the same result
wherever it was split. `escape_invisible` is for text that a person must see whole.
"""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile("[\t\n -~]*")

# Characters that draw nothing although their category is letter or symbol.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159")
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))
_SELECTORS = re.compile("[\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MAX_MARKS = 2
# C0 without \t and \n, DEL, C1 (such as ESC [ in one character), bidirectional controls, line and paragraph
# separators, annotation marks, tag characters (invisible text), non-characters, lone surrogates.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
_BREAKS = re.compile("[\t\n]")


def sanitize(text: str) -> str:
    """Escapes every control character except line breaks and tabs, so that it is shown and not sent to the terminal."""
    return UNSAFE.sub(_escape_match, text)


def sanitize_line(text: str) -> str:
    """Sanitizes text to one line: as `sanitize`, and line breaks and tabs are shown as symbols too."""
    return _BREAKS.sub(_escape_match, UNSAFE.sub(_escape_match, text))


def escape_invisible(text: str) -> str:
    r"""Sanitizes text that a person must approve: every invisible character is also shown, as `\u{200b}`.

    Line breaks and tabs stay. An accent stays on its letter; an accent without a letter is escaped.
    """
    if _PLAIN.fullmatch(text):
        return text
    shown: list[str] = []
    marks: int | None = None
    for character in text:
        marks = _count_marks(character, marks)
        shown.append(character if _is_visible(character, marks) else escape_character(character))
    return "".join(shown)


def escape_character(character: str) -> str:
    r"""Returns a visible form of a character: a symbol for a control character, else such as `\u{200b}`."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\\u{{{code:x}}}"


def _count_marks(character: str, marks: int | None) -> int | None:
    """Returns how many accents the current letter carries; `None` if there is no letter to carry one."""
    category = unicodedata.category(character)
    if category[0] == "M" and category != "Mc":
        return None if marks is None else marks + 1
    return 0 if (category[0] == "L" or category == "Mc") and character not in _BLANK else None


def _is_visible(character: str, marks: int | None) -> bool:
    if character in "\n\t " or "!" <= character <= "~":
        return True
    if draws_nothing(character):
        return False
    return unicodedata.category(character) not in ("Mn", "Me") or (marks is not None and marks <= _MAX_MARKS)


def draws_nothing(character: str) -> bool:
    """Whether nothing is seen of a character by itself. That is so for a space, too."""
    unseen = unicodedata.category(character) in _UNSEEN_CATEGORIES or character in _BLANK
    return unseen or _SELECTORS.match(character) is not None


def _escape_match(match: re.Match[str]) -> str:
    return escape_character(match[0])
