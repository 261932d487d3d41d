"""Three branches of one conversation in parallel; another agent chooses one, and the conversation continues there."""

from __future__ import annotations

import asyncio

from steersman import Agent, Branching, run_branches
from steersman.team import highest
from steersman.testing import ScriptedModel, error


async def main() -> None:
    script = ScriptedModel(
        "What about?", "The sea is wide.", "The sea, the sea, wide and free.", "And free it will be."
    )
    poet = Agent(script.model, system_prompt="You write short poems.")
    await poet.run("A poem, please.")

    broken = ScriptedModel(error("authentication"), id="broken").model
    ways = [
        Branching("The sea.", temperature=0.2, tag="sober"),
        Branching("The sea.", temperature=1.0, tag="bold"),
        Branching("The sea.", model=broken, tag="other model"),
    ]
    judge = Agent(ScriptedModel('{"index": 1, "reason": "It sings."}').model, system_prompt="You love song.")
    result = await run_branches(poet, ways, choose=judge)
    for branch in result.branches:
        print(f"{branch.tag:>12}: {branch.text or branch.result.detail}")
    assert result.chosen is not None
    print(f"      chosen: {result.chosen.tag}, because: {result.detail}")

    # The conversation goes on from there; the other ways are still to be had.
    print("    the poet:", (await poet.run("Go on.")).text)
    print("    its past:", [message.text for message in poet.messages if message.role == "user"])
    print("     sober's:", result.branches[0].log.messages[-1].text)

    # A function can choose as well: here by length, of equal ones the first.
    counter = Agent(ScriptedModel("four", "five", "seven").model)
    by_length = await run_branches(counter, ["A number?"] * 3, choose=highest(lambda branch: -len(branch.text)))
    print("    shortest:", by_length.text)


if __name__ == "__main__":
    asyncio.run(main())
