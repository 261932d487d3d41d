"""Server-sent events of the fronts: how their data is written, and signs of life between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from steersman.server.one_line import escape_separators

BEAT_SECONDS: Final = 10.0
"""Seconds between two signs of life."""
BEAT: Final = b": beat\n\n"
"""A comment of server-sent events, which clients leave out."""


def encode_data(value: Any) -> bytes:
    """A value as JSON that is one line for every client."""
    return escape_separators(msgspec.json.encode(value))


@asynccontextmanager
async def keep_alive(response: web.StreamResponse, seconds: float = BEAT_SECONDS) -> AsyncGenerator[None]:
    """Write a comment to a stream every so many seconds, for clients and proxies that close what is silent.

    Each other write must be a whole event.
    """
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
