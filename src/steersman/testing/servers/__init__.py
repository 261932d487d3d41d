"""Strict fake servers on loopback: they judge every request as the real APIs do, and play answers and faults.

    async with AnthropicServer(answer(call("add", a=2, b=3)), "5") as server:
        agent = Agent(server.model(), tools=[add])

They need `aiohttp`, which is loaded with the first server asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.testing.servers.anthropic import AnthropicServer
    from steersman.testing.servers.base import Delivery, Received, Reply, StrictServer
    from steersman.testing.servers.google import GoogleServer
    from steersman.testing.servers.openai_chat import OpenAIChatServer
    from steersman.testing.servers.openai_responses import OpenAIResponsesServer

_HOMES = {
    "AnthropicServer": "anthropic",
    "Delivery": "base",
    "GoogleServer": "google",
    "OpenAIChatServer": "openai_chat",
    "OpenAIResponsesServer": "openai_responses",
    "Received": "base",
    "Reply": "base",
    "StrictServer": "base",
}

__all__ = [
    "AnthropicServer",
    "Delivery",
    "GoogleServer",
    "OpenAIChatServer",
    "OpenAIResponsesServer",
    "Received",
    "Reply",
    "StrictServer",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
