"""How far an agent may go: turns, money and time, and what it says when it gets there."""

from __future__ import annotations

import asyncio

from steersman import Agent, ExecutionLimits, Prices, RepeatedCalls, RunResult, Usage, tool
from steersman.testing import ScriptedModel, answer, call, stall


@tool
def search(query: str) -> str:
    """Search for something."""
    return "nothing found"


def show(name: str, result: RunResult) -> None:
    print(f"{name}: {result.end_reason}, {result.detail}")
    print(f"  last word: {result.messages[-1].text}")


def curious(*, usage: Usage | None = None) -> ScriptedModel:
    """A model that never stops by itself."""
    return ScriptedModel(
        answer(call("search", query="more")), repeat_last=True, usage=usage, prices=Prices(input=3, output=15)
    )


async def main() -> None:
    agent = Agent(curious().model, tools=[search], limits=ExecutionLimits(max_turns=3))
    show("turns", await agent.run("Find it."))

    agent = Agent(
        curious(usage=Usage(input=1000, output=1000)).model, tools=[search], limits=ExecutionLimits(max_cost=0.05)
    )
    result = await agent.run("Find it.")
    show("money", result)
    print(f"  spent ${result.cost:.3f} on {result.usage.total} tokens")

    stalled = ScriptedModel(stall("I am thinking about"))
    show("time", await Agent(stalled.model, limits=ExecutionLimits(max_duration=0.05)).run("Hurry."))

    script = ScriptedModel(answer(call("search", query="more")), "I found nothing in the time I had.")
    agent = Agent(script.model, tools=[search], limits=ExecutionLimits(max_turns=1, wrap_up=True))
    show("wrap up", await agent.run("Find it."))

    agent = Agent(curious().model, tools=[search], repeated_calls=RepeatedCalls(nudge_after=3, stop_after=5))
    show("repetition", await agent.run("Find it."))


if __name__ == "__main__":
    asyncio.run(main())
