"""An answer with thousands of tool calls: none of them runs, and the rest of it is not read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, tool
from steersman.events import AgentEvent
from steersman.testing import ScriptedModel, answer, call

pytestmark = pytest.mark.real_time

MODELS = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "bedrock": "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0",
    "google": "google:gemini-3-pro-preview",
    "openai": "openai-chat:gpt-4.1",
    "responses": "openai:gpt-4.1",
}


class Counter:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.ran = 0

        @tool
        async def count(n: int) -> str:
            """Count."""
            self.ran += 1
            return str(n)

        self.tool = count


def is_call_start(event: AgentEvent) -> bool:
    return event.type == "message_update" and event.delta.type == "tool_call_start"


def many(count: int) -> Any:
    return answer(*[call("count", n=number, id=f"call_{number}") for number in range(count)])


@pytest.mark.parametrize("protocol", SERVERS)
async def test_more_than_a_thousand_calls_are_a_protocol_error_and_none_runs(protocol: str) -> None:
    """api.md, rulings: an answer with more than 1,000 tool calls is a `protocol` error and none of them runs."""
    counter = Counter()
    async with SERVERS[protocol](many(3_000), "never asked") as server:
        agent = Agent(MODELS[protocol], base_url=server.url, api_key="test-key", tools=[counter.tool])
        begun: list[int] = []
        agent.subscribe(lambda event: begun.append(event.seq) if is_call_start(event) else None)
        result = await agent.run("Go.")
        assert (result.end_reason, result.error_kind, counter.ran) == ("error", "protocol", 0)
        assert "more than 1,000 tool calls" in result.detail
        # It is not asked again, and what comes after the thousandth call is not read.
        assert (len(server.requests), len(begun)) == (1, 1_000)
        (calls,) = [message.tool_calls for message in result.messages if message.role == "assistant"]
        assert len(calls) <= 1_000


@pytest.mark.parametrize("protocol", SERVERS)
async def test_up_to_a_thousand_the_surplus_is_answered_with_why(protocol: str) -> None:
    """api.md, rulings: between `max_tool_calls` (256) and that, each surplus call is answered with why."""
    counter = Counter()
    async with SERVERS[protocol](many(1_000), "Done.") as server:
        agent = Agent(MODELS[protocol], base_url=server.url, api_key="test-key", tools=[counter.tool])
        result = await agent.run("Go.")
    assert (result.end_reason, result.text, counter.ran) == ("done", "Done.", 256)
    surplus = [message for message in result.messages if message.role == "tool_result"][256:]
    assert len(surplus) == 1_000 - 256
    assert {message.text for message in surplus} == {"Not run: more than 256 tool calls in one answer."}


async def test_a_stream_fn_of_ones_own_is_held_to_the_same() -> None:
    """As above: whatever gives the answer."""
    counter = Counter()
    result = await Agent(ScriptedModel(many(1_001), "never asked").model, tools=[counter.tool]).run("Go.")
    assert (result.end_reason, result.error_kind, counter.ran) == ("error", "protocol", 0)
