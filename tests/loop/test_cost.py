"""What a run costs, whichever model answered and however often it was asked."""

from __future__ import annotations

import pytest

from steersman import (
    Agent,
    AssistantMessage,
    ContextConfig,
    ExecutionLimits,
    Model,
    Prices,
    Retry,
    SummaryCompaction,
    Usage,
    tool,
)
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import ScriptedModel, answer, call, error


@tool(access="read")
def look(place: int) -> str:
    """Look."""
    return f"nothing at {place}"


MILLION = Usage(input=1_000_000, output=0)


async def test_an_answer_costs_what_the_model_that_gave_it_charges() -> None:
    """loop.md T8: after a fallback the prices are those of the model that was asked."""
    script = ScriptedModel(error("quota", usage=MILLION), answer("Fine.", usage=MILLION))
    dear = Model("scripted", "dear", prices=Prices(input=100, output=0), settings={"script": script})
    cheap = Model("scripted", "cheap", prices=Prices(input=1, output=0), settings={"script": script})
    result = await Agent(dear, fallbacks=[cheap]).run("Go.")
    assert (result.text, result.cost) == ("Fine.", pytest.approx(101))
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.usage.cost == pytest.approx(1)


async def test_an_attempt_that_failed_is_paid_for_too() -> None:
    """loop.md T8; failures.md S10: retries count, for the cost and for its limit."""
    script = ScriptedModel(
        error("overloaded", after=1, usage=MILLION),
        answer("Fine.", usage=MILLION),
        prices=Prices(input=1, output=0),
    )
    agent = Agent(script.model, retry=Retry(jitter=0), limits=ExecutionLimits(max_cost=1.5))
    result = await agent.run("Go.")
    assert (result.text, result.cost) == ("Fine.", pytest.approx(2))
    assert (await agent.run("Again.")).end_reason == "error"  # the script is used up; the limit is per run


async def test_a_model_without_prices_has_unknown_cost() -> None:
    """Unknown is not 0."""
    script = ScriptedModel(answer("Fine.", usage=MILLION))
    result = await Agent(script.model).run("Go.")
    assert result.cost is None


@pytest.mark.parametrize("summarised", [False, True])
async def test_an_unreported_cost_is_estimated_for_its_limit(summarised: bool) -> None:
    """loop.md T3: a server that reports no usage cannot spend more than a run may; the cost itself stays unknown."""
    prices, long = Prices(input=1_000, output=0), "word " * 300
    turns = [answer("A summary.")] * summarised + [answer("Hm. ", call("look", place=place)) for place in range(9)]
    script = ScriptedModel(*turns, usage=Usage(), prices=prices)
    size = ContextConfig(
        max_context_tokens=2_000, threshold=0.6, keep_recent=1, compaction=CompactionConfig(SummaryCompaction())
    )
    agent = Agent(
        script.model,
        tools=[look],
        messages=[{"role": role, "content": long} for _ in range(3) for role in ("user", "assistant")],
        limits=ExecutionLimits(max_cost=1.5 if summarised else 4),
        context_config=size if summarised else None,
    )
    result = await agent.run("Go.")
    assert (result.end_reason, result.cost) == ("limit", None)
    assert result.detail.startswith("Max cost reached")
    assert len(script.requests) == 2
