"""The paths that rules deny to the running tool call, checked where a path is resolved and where names are listed.

A policy judges the text of a path, before the call. Only the tool knows where a symlink leads when it opens it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol


class DenyPath(Protocol):
    """Returns the rule that denies a real, absolute path to the call, or an empty text."""

    def __call__(self, path: str, *, writing: bool) -> str: ...


_denying: ContextVar[DenyPath | None] = ContextVar("steersman_denied_paths", default=None)


def deny_paths(deny: DenyPath | None) -> None:
    """Deny paths to everything that runs in this task and in the threads it starts; `None` denies none."""
    _denying.set(deny)


def has_denied_paths() -> bool:
    """Whether there are any denied paths."""
    return _denying.get() is not None


def find_denial(path: str, *, writing: bool = False) -> str:
    """Find the rule that denies a real, absolute path to the running call; an empty text where none does."""
    deny = _denying.get()
    return "" if deny is None else deny(path, writing=writing)


def make_name_filter(folder: str) -> Callable[[str], bool] | None:
    """Make the test whether a name in a folder may be shown; `None` where all may."""
    deny = _denying.get()
    return None if deny is None else lambda name: not deny(f"{folder}/{name}", writing=False)
