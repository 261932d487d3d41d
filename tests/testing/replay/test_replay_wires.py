"""What a replay would send next is, byte for byte, what the live agent sends next, on all four protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steersman import Agent, ContextConfig, Retry, Session, ToolOutput, prun_with_memo, tool
from steersman.provider.wires.anthropic import wire as anthropic
from steersman.provider.wires.google import wire as google
from steersman.provider.wires.openai_chat import wire as openai_chat
from steersman.provider.wires.openai_responses import wire as openai_responses
from steersman.provider.wires.protocol import Wire
from steersman.testing import answer, call, cut, normalize_events, replay, thinking
from steersman.testing.grammar import EventCollector
from steersman.testing.servers import (
    AnthropicServer,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Reply,
    StrictServer,
)
from steersman.types.content import ImageContent, TextContent
from steersman.types.events import CompactionStarted

pytestmark = pytest.mark.real_time

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
PROTOCOLS: dict[str, tuple[type[StrictServer], str, Wire]] = {
    "anthropic": (AnthropicServer, "claude-sonnet-4-5", anthropic.WIRE),
    "openai": (OpenAIResponsesServer, "gpt-5", openai_responses.WIRE),
    "openai-chat": (OpenAIChatServer, "deepseek-reasoner", openai_chat.WIRE),
    "google": (GoogleServer, "gemini-3-pro-preview", google.WIRE),
}
AT_ONCE = Retry(base_delay=0.0, jitter=0.0)


@tool
async def look(at: str) -> ToolOutput:
    """Look at something."""
    return ToolOutput([TextContent(f"The {at}."), ImageContent(DOT)])


def script(words: int) -> list[Any]:
    """Thinking, calls at once, pictures, a failure, a break in the stream, a prun, and words enough to compact."""
    return [
        answer(thinking("Hm.", signature="c2ln"), "Let me look.", call("look", at="sea"), call("look", at="sky")),
        Reply(503, "busy"),
        cut("I se", after=1),
        answer("Both are blue. " + "And wide. " * words, call("prun_with_memo", tokens=10, memo="Blue.")),
        "Done.",
        "Yes.",
        "Goodbye.",
    ]


@pytest.mark.parametrize(
    "context_config", [None, ContextConfig(max_context_tokens=1_200, threshold=0.5, keep_recent=2)]
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_next_request_is_the_same_to_the_byte(
    protocol: str, context_config: ContextConfig | None, tmp_path: Path
) -> None:
    """failures.md I9, D5. The session is read from its file again, as another program would."""
    kind, name, wire = PROTOCOLS[protocol]
    path, heard = tmp_path / "sessions.db", EventCollector()
    options: dict[str, Any] = {"system_prompt": "You sail.", "tools": [look, prun_with_memo], "max_tokens": 2_000}
    with kind(*script(0 if context_config is None else 300)) as server:
        agent = Agent(server.model(name), session=path, retry=AT_ONCE, context_config=context_config, **options)
        agent.subscribe(heard)
        await agent.run("Look around.")
        await agent.run("Sure?")
        with Session.open(path, write=False) as session:
            replayed = await replay(session, like=agent)
            unaided = await replay(session)
        result = await agent.run("Thank you.")
        agent.close()
    assert (result.text, server.left) == ("Goodbye.", 0)
    assert bool(heard.of(CompactionStarted)) is (context_config is not None)
    assert normalize_events(replayed.events) == normalize_events(unaided.events)
    assert normalize_events(replayed.events) == normalize_events(heard.events)[: len(normalize_events(replayed.events))]
    body = replayed.encode_next_request(wire, "Thank you.") if context_config is None else None
    if body is not None:
        assert body == server.raw[-1].body
        # The session by itself knows everything but where the server is.
        assert unaided.build_next_request("Thank you.").system_prompt == "You sail."
        assert (
            wire.request(replayed.model, unaided.build_next_request("Thank you."), unaided.options, None).body == body
        )
    requests = [request for run in replayed.runs for request in run.requests]
    answered = [received.body for received in server.raw[:-1]]
    for request in requests:
        assert wire.request(replayed.model, request, replayed.options, None).body in answered
