"""How often a run changes its worker: without an end if it gets on, and five times if it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.client import ActivityExecutionStatus
from temporalio.client import Client as TemporalClient
from tests.durable.deadly import STEPS, make_deadly_agent
from tests.durable.kit import new_queue, running
from tests.durable.stage import Ledger
from tests.session.database import Database

from steersman import Agent, tool
from steersman.durable import Client, DurableError, Worker
from steersman.durable.connection import connect
from steersman.testing import ScriptedModel, answer, call

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("kind", ["idempotent", "once"])
async def test_a_run_that_kills_every_worker_is_given_up(
    postgres: Database, temporal: str, tmp_path: Path, kind: str
) -> None:
    """durable.md U4: after five, whether its call is repeated or the model makes it again; a sixth worker lives."""
    queue, ledger, id = new_queue(), Ledger(tmp_path / "ledger"), f"deadly-{kind}"
    durable = Client(postgres.store(), temporal, task_queue=queue)
    place = (postgres.dsn, temporal, queue, str(ledger.path))
    await durable.start(id, "Begin.", agent="deadly")
    async with running("tests.durable.deadly", *place, "6", "0", kind) as program:
        with pytest.raises(DurableError, match="Its last 5 workers were lost before they had ended a turn"):
            await durable.wait(id, timeout=60)
        assert [await program.read_line() for _ in range(5)] == ["dead"] * 5
        assert ledger.lines() == ["step"] * 5
        assert not await durable.is_running(id)
    # What was said is not lost: the session goes on once it can.
    async with Worker({"deadly": make_deadly_agent(ledger, None)}, postgres.store(), temporal, task_queue=queue):
        await durable.continue_(id)
        assert (await durable.wait(id, timeout=60)).text == "All taken."


async def test_what_was_deadly_is_left_out_after_an_abort(postgres: Database, temporal: str, tmp_path: Path) -> None:
    """docs/scale.md: the next prompt is answered, and the call is not begun again."""
    queue, ledger, id = new_queue(), Ledger(tmp_path / "ledger"), "left-out"
    durable = Client(postgres.store(), temporal, task_queue=queue)
    place = (postgres.dsn, temporal, queue, str(ledger.path))
    await durable.start(id, "Begin.", agent="deadly")
    async with running("tests.durable.deadly", *place, "1", "0", "idempotent") as program:
        assert await program.read_line() == "dead"
    await durable.abort(id)
    await durable.start(id, "And now?")
    agent = Agent(ScriptedModel(lambda request: request.messages[-1].text, repeat_last=True).model)
    async with Worker({"deadly": agent}, postgres.store(), temporal, task_queue=queue):
        assert (await durable.wait(id, timeout=60)).text == "And now?"
    assert ledger.lines() == ["step"]


async def test_lost_workers_of_a_run_that_gets_on_do_not_count(
    postgres: Database, temporal: str, tmp_path: Path
) -> None:
    """docs/scale.md: a worker without the agent lets another one try, also after five that were lost."""
    queue, ledger, id = new_queue(), Ledger(tmp_path / "ledger"), "gets-on"
    client = await connect(temporal, "default")
    durable = Client(postgres.store(), client, task_queue=queue)
    place = (postgres.dsn, temporal, queue, str(ledger.path))
    await durable.start(id, "Begin.", agent="deadly")
    async with running("tests.durable.deadly", *place, "5", "1", "idempotent") as program:
        assert [await program.read_line() for _ in range(5)] == ["dead"] * 5
    async with Worker({"other": Agent(ScriptedModel("Hi.").model)}, postgres.store(), client, task_queue=queue):
        await _wait_for_attempt(client, id, 7)
    async with Worker({"deadly": make_deadly_agent(ledger, None)}, postgres.store(), client, task_queue=queue):
        assert (await durable.wait(id, timeout=60)).text == "All taken."
    assert ledger.lines() == ["step"] * (STEPS + 5)


async def test_workers_that_are_stopped_do_not_count(postgres: Database, temporal: str) -> None:
    """docs/scale.md: a tool that takes longer than six workers live is begun again by the seventh."""
    queue, id, begun = new_queue(), "patient", asyncio.Event()
    durable = Client(postgres.store(), temporal, task_queue=queue, heartbeat=20.0)
    is_due = asyncio.Event()

    @tool(idempotent=True)
    async def hold() -> str:
        """Hold."""
        begun.set()
        await is_due.wait()
        return "held"

    def make_agent() -> Agent:
        model = ScriptedModel(
            lambda request: answer(call("hold")) if request.messages[-1].text == "Begin." else "Done.", repeat_last=True
        )
        return Agent(model.model, tools=[hold], cancel_grace=0.01)

    await durable.start(id, "Begin.")
    for _ in range(6):
        begun.clear()
        async with Worker(make_agent, postgres.store(), temporal, task_queue=queue):
            await asyncio.wait_for(begun.wait(), 30)
    is_due.set()
    async with Worker(make_agent, postgres.store(), temporal, task_queue=queue):
        assert (await durable.wait(id, timeout=30)).text == "Done."


async def _wait_for_attempt(client: TemporalClient, id: str, number: int) -> None:
    """Wait until Temporal has an attempt to give: the one before it has told its error."""
    async with asyncio.timeout(60):
        while (found := await client.get_activity_handle(id).describe()).attempt < number:
            assert found.status == ActivityExecutionStatus.RUNNING, f"It has ended with attempt {found.attempt}."
            await asyncio.sleep(0.05)
