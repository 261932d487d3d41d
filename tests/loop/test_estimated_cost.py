"""One number for the cost, wherever it is read."""

from __future__ import annotations

import pytest

from steersman import Agent, AgentContext, AgentLoopConfig, AssistantMessage, Model, Retry, agent_loop, get_model
from steersman.provider import describe
from steersman.testing import answer, error
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


@pytest.mark.parametrize("way", ["agent", "assigned", "variant", "fallback", "agent_loop"])
async def test_a_model_made_by_hand_has_the_list_price_of_its_id(way: str) -> None:
    """As above: the cost is by the list price of the model's id, also for a `Model` that the user made."""
    describe("openai-chat:made-by-hand", prices=Prices(1.0, 10.0), context_window=9_000)
    script = [answer("Hi.", usage=Usage(input=1_000, output=100))]
    async with OpenAIChatServer(*([error("overloaded")] if way == "fallback" else []), *script) as server:
        model = Model("openai-chat", "made-by-hand", base_url=server.url, api_key="test-key")
        other = get_model("openai-chat:other", base_url=server.url, api_key="test-key")
        match way:
            case "agent":
                result = await Agent(model).run("Hello")
            case "assigned":
                agent = Agent(other)
                agent.model = model
                result = await agent.run("Hello")
            case "variant":
                result = await Agent(other).variant(model=model).run("Hello")
            case "fallback":
                result = await Agent(other, fallbacks=[model], retry=Retry(max_attempts=1)).run("Hello")
            case _:
                result = await agent_loop("Hello", AgentContext(), AgentLoopConfig(model=model))
    assert (result.end_reason, result.cost) == ("done", pytest.approx(0.002))
    assert (model.prices, model.context_window) == (None, None)


def test_a_model_made_by_hand_has_the_context_window_of_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """api.md: context is managed by default when the model's window is known; another server may have another one."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    describe("openai-chat:made-by-hand", prices=Prices(1.0, 10.0), context_window=9_000, max_output_tokens=1_000)
    by_hand, by_name = Agent(Model("openai-chat", "made-by-hand")), Agent("openai-chat:made-by-hand")
    assert by_hand.model == by_name.model
    assert by_hand.config.snapshot([]).context == by_name.config.snapshot([]).context == {"max_context_tokens": 8_000}
    assert Agent(Model("openai-chat", "made-by-hand", base_url="http://127.0.0.1:1")).model.context_window is None
    own = Model("openai-chat", "made-by-hand", context_window=5_000, prices=Prices(2.0, 2.0))
    assert (Agent(own).model.context_window, Agent(own).model.prices) == (5_000, Prices(2.0, 2.0))
    unknown = Model("lab", "rat")
    assert AgentLoopConfig(model=unknown).model is unknown
