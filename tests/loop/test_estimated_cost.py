"""One number for the cost, wherever it is read."""

from __future__ import annotations

import pytest

from steersman import Agent, AssistantMessage, get_model
from steersman.provider import describe
from steersman.testing import answer
from steersman.testing.servers import OpenAIChatServer
from steersman.types import Prices, Usage

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("by", ["base_url", "environment"])
async def test_the_cost_behind_another_address_is_an_estimate_by_the_list_price(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """api.md, rulings: one number everywhere, also behind a `base_url`."""
    describe("openai-chat:cost-test", prices=Prices(1.0, 10.0))
    usage = Usage(input=1_000, output=100)
    async with OpenAIChatServer(answer("Hi.", usage=usage)) as server:
        if by == "environment":
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        model = get_model("openai-chat:cost-test", base_url=server.url if by == "base_url" else None)
        agent = Agent(model, api_key="test-key")
        result = await agent.run("Hello")
    assert result.end_reason == "done"
    said = result.messages[-1]
    assert isinstance(said, AssistantMessage)
    assert result.cost == result.usage.cost == said.usage.cost == pytest.approx(0.002)


async def test_a_model_without_a_known_price_has_no_cost() -> None:
    """As above: `None` only where the id has no known price and the server says none."""
    async with OpenAIChatServer(answer("Hi.", usage=Usage(input=10, output=1))) as server:
        result = await Agent("openai-chat:some-model-of-ones-own", base_url=server.url, api_key="test-key").run("Hi")
    assert (result.cost, result.usage.cost) == (None, None)
