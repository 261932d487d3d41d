"""How much fits into what Temporal passes on: a workflow that hands over more than 2 MB at once never gets on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

MOST_TOGETHER: Final = 1_500_000
"""The most bytes of several messages together."""
MOST_ALONE: Final = 1_900_000
"""The most bytes of one message."""


def count_bytes(value: Any) -> int:
    """The bytes of a value as Temporal's usual converter writes it."""
    return len(json.dumps(msgspec.to_builtins(value)))


def check_message(x: Any) -> None:
    """Raise `ValueError` for a message that is too long to be passed on."""
    if (size := count_bytes(x)) > MOST_ALONE:
        raise ValueError(f"A message to a workflow has at most {MOST_ALONE:,} bytes as JSON, got {size:,}.")


def split_parts(items: Sequence[T], may_begin: Callable[[T], bool]) -> list[list[T]]:
    """Split these, in order, into parts that fit; at least one. A part begins only with what may begin one."""
    parts: list[list[T]] = [[]]
    size = 0
    for item in items:
        more = count_bytes(item)
        if parts[-1] and size + more > MOST_TOGETHER and may_begin(item):
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += more
    return parts
