"""What the tests of OpenAI's APIs share: a server, and its official clients, which are closed with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI
from tests.server import kit
from tests.server.kit import Client, make_deployer

_made: list[AsyncOpenAI] = []


def make_sdk(client: Client, key: str | None = None, **options: Any) -> AsyncOpenAI:
    """The official client."""
    sdk = AsyncOpenAI(base_url=f"{client.url}/v1", api_key=key or client.token, max_retries=0, **options)
    _made.append(sdk)
    return sdk


@asynccontextmanager
async def run_server(agents: Any = make_deployer, **options: Any) -> AsyncGenerator[Client]:
    """A client of a server on a free port; the official clients made for it are closed at the end."""
    async with kit.run_server(agents, **options) as client:
        try:
            yield client
        finally:
            while _made:
                await _made.pop().close()
