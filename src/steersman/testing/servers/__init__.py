"""Strict fake servers on loopback: they judge every request as the real APIs do, and play answers and faults.

    async with AnthropicServer(answer(call("add", a=2, b=3)), "5") as server:
        agent = Agent(server.model(), tools=[add])

They need `aiohttp`, which is loaded with the first server asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.testing.servers.anthropic import AnthropicServer
    from steersman.testing.servers.base import Delivery, Received, Reply, StrictServer
    from steersman.testing.servers.google import GoogleServer
    from steersman.testing.servers.openai_chat import OpenAIChatServer
    from steersman.testing.servers.openai_responses import OpenAIResponsesServer

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "anthropic": "AnthropicServer",
        "base": "Delivery Received Reply StrictServer",
        "google": "GoogleServer",
        "openai_chat": "OpenAIChatServer",
        "openai_responses": "OpenAIResponsesServer",
    },
)

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
