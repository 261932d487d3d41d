"""Strict fake servers on loopback: they validate every request as the real APIs do, and play answers and faults.

    async with AnthropicServer(answer(call("add", a=2, b=3)), "5") as server:
        agent = Agent(server.model(), tools=[add])

They need `aiohttp`, which is imported with the first server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.testing.servers.anthropic.server import AnthropicServer
    from steersman.testing.servers.base import Delivery, Received, Reply, StrictServer
    from steersman.testing.servers.bedrock.server import BedrockServer
    from steersman.testing.servers.google.server import GoogleServer
    from steersman.testing.servers.openai_chat.server import OpenAIChatServer
    from steersman.testing.servers.openai_responses.server import OpenAIResponsesServer

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "anthropic.server": "AnthropicServer",
        "base": "Delivery Received Reply StrictServer",
        "bedrock.server": "BedrockServer",
        "google.server": "GoogleServer",
        "openai_chat.server": "OpenAIChatServer",
        "openai_responses.server": "OpenAIResponsesServer",
    },
)

__all__ = [
    "AnthropicServer",
    "BedrockServer",
    "Delivery",
    "GoogleServer",
    "OpenAIChatServer",
    "OpenAIResponsesServer",
    "Received",
    "Reply",
    "StrictServer",
]
