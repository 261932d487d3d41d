"""Ids that are unique across processes and cheap to make: a random prefix for the process, then a counter."""

from __future__ import annotations

import itertools
import os

_prefix = ""
_counter = itertools.count(1)


def _reseed() -> None:
    """A forked child counts on from the same number, so it needs a prefix of its own."""
    global _prefix
    _prefix = os.urandom(6).hex()


_reseed()
os.register_at_fork(after_in_child=_reseed)


def new_id(kind: str) -> str:
    """An id such as `loop_5f0c2a9b1e44_1a`."""
    return f"{kind}_{_prefix}_{next(_counter):x}"
