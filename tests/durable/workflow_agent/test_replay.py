"""Histories of workflows that were kept are replayed by the code of today: running workflows survive a deployment.

`python -m tests.durable.workflow_agent.test_replay ADDRESS` records them again, after a change that is meant.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from tests.durable.workflow_agent.stage import Stage, connect, make_agent

from steersman import Agent
from steersman.durable.workflow_agent import AgentPlugin
from steersman.session import MemoryStore

HISTORIES = Path(__file__).parent.parent / "histories"
NAMES = ("steered", "aborted", "continued")


def make_replayer(agent: Agent[Any]) -> Replayer:
    return Replayer(workflows=[], plugins=[AgentPlugin({"actor": agent}, MemoryStore())])


@pytest.mark.real_time
@pytest.mark.parametrize("name", NAMES)
async def test_a_kept_history_is_replayed(name: str) -> None:
    """durable.md section 3: replay of kept histories on every Python version."""
    history = WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text())

    await make_replayer(make_agent(Path("nowhere"))).replay_workflow(history)


@pytest.mark.real_time
async def test_a_run_that_would_go_another_way_is_noticed() -> None:
    """The test above can fail: an agent that may take one turn only does not make this history."""
    history = WorkflowHistory.from_json("steered", (HISTORIES / "steered.json").read_text())
    agent = make_agent(Path("nowhere"), before_turn=_refuse)

    with pytest.raises(Exception, match=r"(?i)nondeterminism"):
        await make_replayer(agent).replay_workflow(history)


def _refuse(_messages: object, turn: int) -> Any:
    from steersman import Stop

    return Stop("no more") if turn else None


async def record(address: str) -> None:
    """Record the histories."""
    for name in NAMES:
        with TemporaryDirectory() as folder:
            async with Stage(await connect(address), Path(folder)).open() as stage, stage.work():
                history = await _play(stage, name)
        (HISTORIES / f"{name}.json").write_text(history.to_json() + "\n")


async def _play(stage: Stage, name: str) -> WorkflowHistory:
    stage.held = {"look 2", "act 3"}
    handle = await stage.start(max_events=30 if name == "continued" else 9_000)
    await stage.wait_for("look 2")
    await handle.signal("steer", args=["left", "wait"])
    stage.let_go("look 2")
    await stage.wait_for("act 3")
    await (handle.signal("abort") if name == "aborted" else handle.signal("steer", args=["right", "cancel"]))
    await stage.finish(handle)
    return await stage.client.get_workflow_handle(handle.id).fetch_history()


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
