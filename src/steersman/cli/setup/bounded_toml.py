"""Loads TOML that a project brings along, and that the user has not seen yet, in a time and memory that are bounded."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_KEY_PARTS = 32
"""The most parts of a key such as `a.b.c`; the parser needs memory for the square of their number."""

_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\[^\n])*+"|'[^'\n]*+')"""
# It begins at no escaped quotation mark, so that each is looked at once.
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_\\-])(?:{_PART}[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}")


def load_toml(text: str) -> dict[str, Any]:
    """Loads TOML; raises `ValueError` if it is malformed, nested too deeply, or has a very long key."""
    if (found := _LONG_KEY.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"A key has more than {MAX_KEY_PARTS} parts (at line {line})")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("It is nested too deeply") from error
