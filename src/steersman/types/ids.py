"""Ids that are unique across processes and cheap to make: a random prefix per process, then a counter."""

from __future__ import annotations

import itertools
import os

_prefix = ""
_counter = itertools.count(1)


def _reseed() -> None:
    """Choose a new prefix: a forked child continues from the same counter."""
    global _prefix
    _prefix = f"_{os.urandom(6).hex()}_"


_reseed()
os.register_at_fork(after_in_child=_reseed)


def new_id(kind: str) -> str:
    """Make an id such as `loop_5f0c2a9b1e44_26`."""
    return f"{kind}{_prefix}{next(_counter)}"
