"""Text from elsewhere made fit for a terminal: nothing that comes out of here can move, colour, hide or title anything.

`safe` and `one_line` look at one character at a time, so text that arrives in pieces comes out the same wherever it was
cut; `exact` also looks at what stands to the left.
"""

from __future__ import annotations

import re
import unicodedata

# C0 without \t and \n, DEL, C1 (ESC [ and its kin in one character), what turns the direction of writing, separators of
# lines and paragraphs, annotation marks, tag characters (text nobody sees), non-characters, halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
_BREAKS = re.compile("[\t\n]")
_PLAIN = re.compile("[\t\n -~]*")

# Letters and signs by category that draw nothing all the same.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159")
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))
_SELECTORS = re.compile("[\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MAX_MARKS = 2


def safe(text: str) -> str:
    """Text for a screen: line breaks and tabs stay, whatever else could steer a terminal is shown, not sent."""
    return _UNSAFE.sub(_shown, text)


def one_line(text: str) -> str:
    """Text as one line: as `safe`, and line breaks and tabs are shown as signs too."""
    return _BREAKS.sub(_shown, _UNSAFE.sub(_shown, text))


def exact(text: str) -> str:
    r"""Text a person must judge: as `safe`, and every character that cannot be seen is written as `\u{200b}`.

    Line breaks and tabs stay. An accent stays on the letter it belongs to; one without a letter is written out.
    """
    if _PLAIN.fullmatch(text):
        return text
    shown: list[str] = []
    marks: int | None = None
    for character in text:
        marks = _marks_after(character, marks)
        shown.append(character if _can_be_seen(character, marks) else _shown_character(character))
    return "".join(shown)


def _marks_after(character: str, marks: int | None) -> int | None:
    """How many accents the letter here carries, `None` where there is no letter to carry one."""
    category = unicodedata.category(character)
    if category[0] == "M" and category != "Mc":
        return None if marks is None else marks + 1
    return 0 if (category[0] == "L" or category == "Mc") and character not in _BLANK else None


def _can_be_seen(character: str, marks: int | None) -> bool:
    if character in "\n\t " or "!" <= character <= "~":
        return True
    category = unicodedata.category(character)
    if category in _UNSEEN_CATEGORIES or character in _BLANK or _SELECTORS.match(character):
        return False
    return category not in ("Mn", "Me") or (marks is not None and marks <= _MAX_MARKS)


def _shown(match: re.Match[str]) -> str:
    return _shown_character(match[0])


def _shown_character(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\\u{{{code:x}}}"
