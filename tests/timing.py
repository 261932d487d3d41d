"""How long something may take before a test says that it does not happen: never a guess about the machine."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable


async def ample(work: Callable[[], Awaitable[object]], least: float) -> float:
    """Seconds in which this work is done for sure: ten times as many as it takes here, as busy as the machine is."""
    await work()  # what is only done the first time, as loading modules
    began = time.monotonic()
    await work()
    return max(least, round(10 * (time.monotonic() - began), 1))
