"""What a server says of its progress, passed on at a bearable rate: the first at once, then the latest now and then."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from steersman.tools.mcp.words import plain

_UPDATE_SECONDS = 0.1
_LONGEST_WORDS = 1_000

Told = tuple[float, float | None, str | None]


class Progress:
    """The progress of one call; `update` gets ten of its words a second at most."""

    __slots__ = ("_last", "_loop", "_timer", "_update", "_waiting")

    def __init__(self, update: Callable[[Any], None]) -> None:
        self._update = update
        self._loop = asyncio.get_running_loop()
        self._last = -math.inf
        self._waiting: Told | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def show(self, progress: float, total: float | None, message: str | None) -> None:
        """Take what the server says."""
        self._waiting = (progress, total, message)
        pause = self._last + _UPDATE_SECONDS - self._loop.time()
        if pause <= 0:
            self._pass_on()
        elif self._timer is None:
            self._timer = self._loop.call_later(pause, self._pass_on)

    def close(self) -> None:
        """The call is over: what was said last is passed on, and nothing after it."""
        self._pass_on()

    def _pass_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting is not None:
            told, self._waiting = self._waiting, None
            self._last = self._loop.time()
            self._update(_as_update(*told))


def _as_update(progress: float, total: float | None, message: str | None) -> dict[str, Any]:
    """A progress notification as an update of the call."""
    told: dict[str, Any] = {"type": "progress"}
    amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
    told["text"] = plain(message, _LONGEST_WORDS, lines=False) if message else amount
    if math.isfinite(progress):
        told["progress"] = progress
    if total is not None and math.isfinite(total):
        told["total"] = total
    return told
