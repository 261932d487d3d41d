"""How rules compare texts: exactly to allow, and without regard to case and look-alikes to forbid."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, TypeAlias

Match: TypeAlias = Literal["yes", "maybe", "no"]
"""Whether a rule that forbids is about something: surely, perhaps, or surely not."""

MAX_TEXT_LENGTH = 10_000
"""Longer texts are not compared: they are never allowed, and always perhaps forbidden."""


def fold(text: str) -> str:
    """The text without differences of case and of look-alike characters."""
    return unicodedata.normalize("NFKC", text).casefold()


def translate_pattern(pattern: str) -> str:
    """A pattern as a regular expression: `*` and `?` stay within a folder, `**` does not."""
    found = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*")
    return found.replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
