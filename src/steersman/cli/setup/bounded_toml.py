"""Loads TOML that a project brings along, and that the user has not seen yet, in a time and memory that are bounded."""

from __future__ import annotations

import re
import tomllib
from typing import Any, cast

MAX_KEY_PARTS = 32
"""The most parts of a key such as `a.b.c`; the parser needs memory for the square of their number."""

MAX_DEPTH = 100
"""How deeply tables and lists may be nested; with long keys, a few hundred bytes of TOML make hundreds of levels."""

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
    _check_values(found)
    return found


def _check_values(found: dict[str, Any]) -> None:
    """Raise `ValueError` for values with which Python raises when they are to be written.

    They are nested too deeply, or whole numbers such as `0xfff...`.
    """
    waiting: list[tuple[object, int]] = [(found, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError("It is nested too deeply")
        if isinstance(value, dict | list):
            inner = cast(dict[str, object], value).values() if isinstance(value, dict) else cast(list[object], value)
            waiting += [(item, depth + 1) for item in inner]
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise ValueError(f"A number has more than {MAX_BITS:,} bits")
