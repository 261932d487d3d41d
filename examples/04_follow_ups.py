"""Queue work for when the agent would stop: it reads follow-ups then, one at a time or all at once."""

from __future__ import annotations

import asyncio

from steersman import Agent
from steersman.events import MessageEnd, TurnStart
from steersman.testing import ScriptedModel


async def main() -> None:
    script = ScriptedModel("A plan in three steps.", "The plan as a list.", "The plan in French.", "You are welcome.")
    agent = Agent(script.model, follow_up_mode="one-at-a-time")

    first = agent.follow_up("Now as a list.")
    print(f"queued before the run: {first.status}")
    stream = agent.prompt("Make a plan.")
    second = agent.follow_up("Now in French.", key="french")
    agent.follow_up("Now in French.", key="french")  # the same key twice is one message
    print(f"queued during the run: {second.status}; waiting: {len(agent.queued.follow_up)}")

    async for event in stream:
        if isinstance(event, TurnStart):
            print(f"turn {event.turn_index} ({event.triggered_by})")
        elif isinstance(event, MessageEnd):
            print(f"  {event.message.role}: {event.message.text}")
    print(f"receipts: {first.status}, {second.status}; end: {(await stream).end_reason}")

    late = agent.follow_up("Thank you.")
    print(f"queued after the run: {late.status}")
    result = await agent.continue_()  # nothing new to say: go on with what waits
    print(f"continued with it: {result.text} ({late.status})")


if __name__ == "__main__":
    asyncio.run(main())
