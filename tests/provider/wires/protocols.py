"""The protocols side by side: who reads each, who speaks it, and the same answer in all of them."""

from __future__ import annotations

from tests.provider.wires.reading import Reading

from steersman.provider.scripted.script import to_turn
from steersman.provider.wires.anthropic.wire import WIRE as ANTHROPIC
from steersman.provider.wires.bedrock.frames import FrameDecoder
from steersman.provider.wires.bedrock.wire import WIRE as BEDROCK
from steersman.provider.wires.google.wire import WIRE as GOOGLE
from steersman.provider.wires.google.wire import ArrayDecoder
from steersman.provider.wires.openai_chat.wire import WIRE as CHAT
from steersman.provider.wires.openai_responses.wire import WIRE as RESPONSES
from steersman.testing import answer, call, thinking
from steersman.testing.servers import (
    AnthropicServer,
    BedrockServer,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Received,
    StrictServer,
)
from steersman.types.model import Model

# By the first word of the names of the fixtures.
READINGS = {
    "anthropic": Reading(ANTHROPIC, Model("anthropic", "m")),
    "bedrock": Reading(BEDROCK, Model("bedrock", "m"), FrameDecoder),
    "google": Reading(GOOGLE, Model("google", "m")),
    "google array": Reading(GOOGLE, Model("google", "m"), ArrayDecoder),
    "openai": Reading(CHAT, Model("openai-chat", "m")),
    "responses": Reading(RESPONSES, Model("openai", "m")),
}
SERVERS: dict[str, type[StrictServer]] = {
    "anthropic": AnthropicServer,
    "bedrock": BedrockServer,
    "google": GoogleServer,
    "openai": OpenAIChatServer,
    "responses": OpenAIResponsesServer,
}
WORDS = 'Größe 🙂\u2028\x85 \\"}}}}'
TOLD = answer(
    thinking("想一想 🤔"),
    WORDS,
    call("count_lines", path="日本/é", id="call_1"),
    call("count_lines", id="call_2"),
    deltas=3,
)


def played(server: StrictServer, **query: str) -> bytes:
    """A stream as a strict server sends it."""
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    received = Received("POST", "/", {"model": "m"}, query, {}, b"{}", body, 1)
    server.raw.append(received)
    return b"".join(server.render_stream(to_turn(TOLD), received))
