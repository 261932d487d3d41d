"""The dispatcher wakes for every end, whatever it was busy with when the end came."""

from __future__ import annotations

import asyncio

from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call


@tool
async def pause(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"{seconds:g}"


async def test_a_tool_that_ends_while_the_sources_of_steering_are_asked_is_not_missed() -> None:
    """loop.md D6: peeking at steering takes its time, and the batch goes on all the same."""

    async def nothing_to_say() -> None:
        await asyncio.sleep(100)

    script = ScriptedModel(answer(call("pause", seconds=1), call("pause", seconds=50)), "Done.")
    agent = Agent(script.model, tools=[pause], get_steering_messages=nothing_to_say, limits=None)
    result = await agent.run("Begin.")
    assert (result.end_reason, result.text) == ("done", "Done.")
    assert [message.text for message in result.messages] == ["Begin.", "", "1", "50", "Done."]
