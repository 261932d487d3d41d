"""Text that a person must see whole: every invisible character is shown."""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile("[\t\n -~]*")

# Characters that draw nothing although their category is letter or symbol.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159")
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))
_SELECTORS = re.compile("[\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MAX_MARKS = 2


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
    category = unicodedata.category(character)
    if category in _UNSEEN_CATEGORIES or character in _BLANK or _SELECTORS.match(character):
        return False
    return category not in ("Mn", "Me") or (marks is not None and marks <= _MAX_MARKS)
