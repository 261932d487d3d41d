"""A session outlives the program: one is killed in the middle of a batch of calls, another goes on where it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from steersman import Agent, AssistantMessage, tool
from steersman.testing import ScriptedModel, answer, call


@tool(idempotent=True)
async def weigh(parcel: str) -> str:
    """Weigh a parcel; doing it twice does no harm."""
    return f"{parcel} weighs 2 kg"


@tool
async def charge(customer: str) -> str:
    """Charge a customer; the program is killed while it does."""
    os.kill(os.getpid(), signal.SIGKILL)
    return f"charged {customer}"


async def first(path: str) -> None:
    batch = answer(call("weigh", parcel="A"), call("charge", customer="Ada"), call("weigh", parcel="B"))
    agent = Agent(ScriptedModel(batch).model, tools=[weigh, charge], tool_execution="sequential", session=path)
    await agent.run("Ship both.")


async def second(path: str) -> None:
    script = ScriptedModel("Was Ada charged?", "Then both are shipped.", "Then I wait.")
    with Agent(script.model, tools=[weigh, charge], session=path) as agent:
        await agent.continue_()
        for message in agent.messages:
            calls = message.tool_calls if isinstance(message, AssistantMessage) else []
            print(f"{message.role:>11}: {message.text}{', '.join(call.name for call in calls)}")
        assert agent.session is not None
        here = agent.session.tree()[0].leaf
        await agent.run("Yes.")
        await agent.branch(here, "not charged", prompt="No.")
        for branch in agent.session.tree():
            print(f"{branch.length} entries, label {branch.label!r}{', here' * branch.current}")


if len(sys.argv) > 1:
    asyncio.run(first(sys.argv[1]))
else:
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "sessions.db")
        code = subprocess.run([sys.executable, __file__, file], check=False).returncode
        print(f"the first program ended with {signal.Signals(-code).name}")
        asyncio.run(second(file))
