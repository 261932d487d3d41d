"""Positions in the events of a session: `"12"` is record 12, `"12.3"` the third transient event after it."""

from __future__ import annotations

import re
from typing import NamedTuple

_POSITION = re.compile(r"(\d{1,18})(?:\.(\d{1,18}))?", re.ASCII)
RECORD = -1
"""The number of a record itself; what is transient after it counts from 1, and a snapshot may be 0."""


class Position(NamedTuple):
    """A place in the events of one session; positions of one session are ordered."""

    record: int
    number: int = RECORD

    def __str__(self) -> str:
        return str(self.record) if self.number == RECORD else f"{self.record}.{self.number}"


def parse_position(text: str) -> Position:
    """The position of a text; raises `ValueError` if it is none."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise ValueError(
            f"A position is a record's number, such as '12', or '12.3' inside an answer, got {text!r:.100}."
        )
    number = found[2]
    return Position(int(found[1]), RECORD if number is None else int(number))
