"""Makes untrusted text safe for a terminal: the result cannot move the cursor, colour, hide or title anything.

`sanitize` and `sanitize_line` are those of `types/visible.py`; `escape_json` does the same to JSON.
"""

from __future__ import annotations

import re

from steersman.types.visible import draws_nothing, sanitize, sanitize_line

_NOT_PLAIN = re.compile("[^\t\n -~]")

__all__ = ["escape_json", "sanitize", "sanitize_line"]


def escape_json(text: str) -> str:
    r"""Escapes these and all that cannot be seen in JSON as `\u` and four digits, so that it means the same."""
    return _NOT_PLAIN.sub(lambda match: _escape_in_json(match[0]) if draws_nothing(match[0]) else match[0], text)


def _escape_in_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
