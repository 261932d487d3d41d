"""Signs of life in a stream: clients and proxies close a connection that is silent while a tool runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

BEAT_SECONDS: Final = 10.0
"""Seconds between two signs of life."""
BEAT: Final = b": beat\n\n"
"""A comment of server-sent events, which clients leave out."""


@asynccontextmanager
async def keep_alive(response: web.StreamResponse, seconds: float = BEAT_SECONDS) -> AsyncGenerator[None]:
    """Write a comment to a stream of server-sent events every so many seconds. Each write must be a whole event."""
    task = asyncio.get_running_loop().create_task(_beat(response, seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _beat(response: web.StreamResponse, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await response.write(BEAT)
        except OSError:
            return  # the client is gone
