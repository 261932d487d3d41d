"""The clock of tests with real sockets and processes, which a test can let run faster: no wait needs a tight bound.

So a server may take its time on a busy machine, and what is to be cut off after minutes is cut off at once.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

FAST = 1000


class PacedLoop(asyncio.SelectorEventLoop):
    """An ordinary event loop, until it is told that its seconds are shorter."""

    def __init__(self) -> None:
        self._rate = 1
        self._then = (0.0, 0.0)
        super().__init__(_PacedSelector(self))

    @property
    def rate(self) -> int:
        """How many of its seconds pass in a real one."""
        return self._rate

    @rate.setter
    def rate(self, rate: int) -> None:
        self._then = (super().time(), self.time())
        self._rate = rate

    def time(self) -> float:
        """Return its own seconds."""
        real, own = self._then
        return own + (super().time() - real) * self._rate


class _PacedSelector(selectors.DefaultSelector):
    def __init__(self, loop: PacedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout if timeout is None else timeout / self._loop.rate)


def hurry(rate: int = FAST) -> None:
    """Let the clock of this test run a thousand times faster from now on, or with 1 as it did before."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PacedLoop), "only a test marked `real_time` has such a clock"
    loop.rate = rate
