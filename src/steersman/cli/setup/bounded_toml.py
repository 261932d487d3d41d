"""Loads TOML that a project brings along, and that the user has not seen yet, in a time and memory that are bounded."""

from __future__ import annotations

import re
import tomllib
from typing import Any, cast

MAX_KEY_PARTS = 32
"""The most parts of a key such as `a.b.c`; the parser needs memory for the square of their number."""

MAX_BITS = 2_000
"""The most bits of a whole number, which are 602 digits; TOML has 64."""

_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\[^\n])*+"|'[^'\n]*+')"""
# It begins at no escaped quotation mark, so that each is looked at once.
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_\\-])(?:{_PART}[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}")


def load_toml(text: str) -> dict[str, Any]:
    """Loads TOML; raises `ValueError` if it is malformed, nested too deeply, or has a very long key or number."""
    if (found := _LONG_KEY.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"A key has more than {MAX_KEY_PARTS} parts (at line {line})")
    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("It is nested too deeply") from error
    if _has_long_number(found):
        raise ValueError(f"A number has more than {MAX_BITS:,} bits")
    return found


def _has_long_number(found: dict[str, Any]) -> bool:
    """Whether a whole number is so long, such as `0xfff...`, that Python raises when it is to be written."""
    waiting: list[object] = [found]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += cast(dict[str, object], value).values()
        elif isinstance(value, list):
            waiting += cast(list[object], value)
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            return True
    return False
