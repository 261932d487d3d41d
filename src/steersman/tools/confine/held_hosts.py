"""The hosts that rules deny or ask about, for a redirect: a policy judges the URL of a call, and no other one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_holding: ContextVar[Callable[[str], bool] | None] = ContextVar("steersman_held_hosts", default=None)


def hold_hosts(hold: Callable[[str], bool] | None) -> None:
    """Have no redirect followed to a URL for which `hold` is true, by anything that runs in this task."""
    _holding.set(hold)


def is_held(url: str) -> bool:
    """Whether a rule denies the host of a URL, or asks about it."""
    hold = _holding.get()
    return hold is not None and hold(url)
