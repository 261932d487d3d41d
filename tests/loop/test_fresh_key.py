"""A key that is refused in the middle of a run is asked for once more."""

from __future__ import annotations

from typing import Any

import pytest

from steersman import Agent, AgentContext, AgentLoopConfig, agent_loop, get_model, tool
from steersman.events import RetryScheduled
from steersman.testing import EventCollector, answer, call
from steersman.testing.servers import OpenAIChatServer

pytestmark = pytest.mark.real_time


@tool
async def look() -> str:
    """Look."""
    return "seen"


class Keys:
    """A key store whose keys go out of date: each is given so many times."""

    def __init__(self, *keys: str) -> None:
        self.keys = [*keys]
        self.given: list[str] = []

    def __call__(self) -> str:
        self.given.append(self.keys.pop(0) if len(self.keys) > 1 else self.keys[0])
        return self.given[-1]


@pytest.mark.parametrize("how", ["get_api_key", "api_key"])
@pytest.mark.parametrize("retry", ["usual", "none"])
async def test_a_refused_key_is_asked_for_once_more(how: str, retry: str) -> None:
    """api.md: a 401 in mid-run asks `get_api_key` for a fresh key, and goes on."""
    keys = Keys("test-key", "out-of-date-1", "test-key")
    async with OpenAIChatServer(answer(call("look")), "Done.") as server:
        options: dict[str, Any] = {"get_api_key": keys} if how == "get_api_key" else {}
        if retry == "none":
            options["retry_strategy"] = None
        model = get_model("openai-chat:m", base_url=server.url, api_key=keys if how == "api_key" else None)
        agent = Agent.from_config(AgentLoopConfig(model=model, **options), tools=[look])
        heard = EventCollector()
        agent.subscribe(heard)
        result = await agent.run("Go.")
    assert (result.end_reason, result.text) == ("done", "Done.")
    assert keys.given == ["test-key", "out-of-date-1", "test-key"]
    # It is told as a retry, at once, and without the key.
    (notice,) = heard.of(RetryScheduled)
    assert (notice.delay, notice.error.kind, notice.error.status) == (0.0, "authentication", 401)
    assert "out-of-date-1" not in repr(heard.events)


async def test_a_second_refusal_ends_the_run() -> None:
    """As above: never more than once per request."""
    keys = Keys("wrong-key-1", "wrong-key-2", "test-key")
    async with OpenAIChatServer("never said") as server:
        model = get_model("openai-chat:m", base_url=server.url)
        stream = agent_loop("Go.", AgentContext(), AgentLoopConfig(model=model, get_api_key=keys))
        result = await stream
    assert (result.end_reason, result.error_kind) == ("error", "authentication")
    assert keys.given == ["wrong-key-1", "wrong-key-2"]
    assert len(server.raw) == 2
    for key in keys.given:
        assert key not in repr(result)


async def test_a_fixed_key_is_not_tried_again() -> None:
    """As above: there is nothing fresh to ask for."""
    async with OpenAIChatServer("never said") as server:
        result = await Agent("openai-chat:m", base_url=server.url, api_key="wrong-key").run("Go.")
    assert (result.error_kind, len(server.raw)) == ("authentication", 1)
