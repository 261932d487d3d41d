"""Where fallbacks are asked, and with which key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman import Agent, AgentLoopConfig, Retry, get_model
from steersman.testing import error
from steersman.testing.servers import OpenAIChatServer

ADDRESS, KEY = "http://127.0.0.1:1/v1", "key-of-the-first"


@pytest.mark.real_time
async def test_a_fallback_given_by_name_is_asked_at_the_same_server_with_the_same_key() -> None:
    """api.md: nothing is sent anywhere the user did not choose. A name of the same provider is no other server."""
    async with OpenAIChatServer(error("invalid_request"), "From the second.", key=KEY) as server:
        agent = Agent(
            "openai-chat:first", base_url=server.url, api_key=KEY, fallbacks=["openai-chat:second"], retry=Retry()
        )
        result = await agent.run("Hello")
    assert (result.text, result.detail) == ("From the second.", "")
    assert [request["model"] for request in server.requests] == ["first", "second"]


@pytest.mark.parametrize("how", ["agent", "configure", "config"])
def test_only_a_name_of_the_same_provider_keeps_url_and_key(how: str) -> None:
    """As with `agent.model = ...` (api.md, rulings); a `Model` is asked where it says."""
    fallbacks = ["openai-chat:second", "anthropic:claude-sonnet-4-5", get_model("openai-chat:third")]
    if how == "config":
        model = get_model("openai-chat:first", base_url=ADDRESS, api_key=KEY)
        config = AgentLoopConfig(model=model, fallbacks=fallbacks)
    elif how == "agent":
        config = Agent("openai-chat:first", base_url=ADDRESS, api_key=KEY, fallbacks=fallbacks).config
    else:
        agent = Agent("openai-chat:first", base_url=ADDRESS, api_key=KEY)
        agent.configure(fallbacks=fallbacks)
        config = agent.config
    expected = [(ADDRESS, KEY), (None, None), (None, None)]
    assert [(found.base_url, found.api_key) for found in map(get_model, config.fallbacks)] == expected
    moved = replace(config, model=get_model("openai-chat:first", base_url="http://127.0.0.1:2/v1"))
    assert [found.base_url for found in map(get_model, moved.fallbacks)] == [ADDRESS, None, None]
