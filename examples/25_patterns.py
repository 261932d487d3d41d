"""Agents together: a pipeline whose first step is two agents side by side, a loop, a hand-off, and a supervisor."""

from __future__ import annotations

import asyncio
from typing import Any

from steersman import Agent, ExecutionLimits, RunResult, Usage
from steersman.team import Handoff, Loop, Parallel, Part, Pipeline, Supervisor, judge
from steersman.testing import ScriptedModel, answer, call


def play(*turns: Any) -> Agent[Any]:
    """An agent that says these things; put your own model here."""
    return Agent(ScriptedModel(*turns, usage=Usage(input=100, output=20)).model)


def has_rhyme(result: RunResult[Any]) -> bool | str:
    return result.text.endswith("mat.") or "It does not rhyme."


async def main() -> None:
    drafts = Parallel(
        {"sober": play("A cat sat."), "bold": play("A cat! It sat!")},
        combine=judge(play('{"index": 0, "reason": "It is calm."}')),
    )
    polish = Loop(play("A cat sat down.", "A cat sat on a mat."), until=has_rhyme, max_rounds=3)
    poem = Pipeline({"drafts": drafts, "polish": polish}, limits=ExecutionLimits(max_turns=30))
    result = await poem.run("A line about a cat.")
    print(f"pipeline: {result.text} ({result.usage.total} tokens)")

    desk = Handoff(
        {
            "reception": play(answer(call("hand_off_to_billing", reason="An invoice."))),
            "billing": Part(play("It is 3 euros.", "It is paid."), "Knows invoices."),
        }
    )
    print("hand-off:", (await desk.run("What does A-17 cost?")).text, (await desk.run("Is it paid?")).text)

    lead = play(answer(call("coder", prompt="Write it."), call("tester", prompt="Test it.")), "Written and tested.")
    team = Supervisor(lead, {"coder": Part(play("Done."), "Writes code."), "tester": play("It works.")})
    print("supervisor:", (await team.run("A sort function.")).text)


if __name__ == "__main__":
    asyncio.run(main())
