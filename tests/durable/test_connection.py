"""The way to Temporal: a server that is only starting, and one from which a worker is cut off."""

from __future__ import annotations

import pytest
from tests.durable.door import door_to
from tests.durable.kit import new_queue, running
from tests.durable.stage import make_agents
from tests.session.database import Database
from tests.session.kit import records

from steersman.context.repair import UNKNOWN
from steersman.durable import Client, DurableError, Worker
from steersman.durable.connection import connect

pytestmark = pytest.mark.real_time


async def test_a_server_that_is_not_healthy_yet_is_asked_again(temporal: str) -> None:
    """A worker and Temporal are often started together."""
    async with door_to(temporal) as door:
        door.refusals = ["Frontend is not healthy yet"] * 2
        client = await connect(door.address, "default")
        assert (client.namespace, door.refusals) == ("default", [])


async def test_a_server_that_refuses_for_another_reason_is_told(temporal: str) -> None:
    async with door_to(temporal) as door:
        door.refusals = ["Closed on Sundays"] * 20
        with pytest.raises(DurableError, match=r"Temporal cannot be reached at .*Closed on Sundays"):
            await connect(door.address, "default")


async def test_a_worker_that_is_cut_off_from_temporal_is_replaced_and_does_nothing_more(
    postgres: Database, temporal: str
) -> None:
    """durable.md U3: it hears from the database that another one has the session, and is well once it is back."""
    queue, store = new_queue(), postgres.store()
    durable = Client(store, temporal, task_queue=queue)
    async with door_to(temporal) as door, running("tests.durable.program", postgres.dsn, door.address, queue) as cut:
        await cut.wait_for("ready")
        await durable.start("cut-off", "Begin.", agent="holder")
        await cut.wait_for("holding")
        door.shut()
        async with Worker(make_agents(print), store, temporal, task_queue=queue):
            assert (await durable.wait("cut-off", timeout=30)).text == f"Read: {UNKNOWN}"
            before = records(store, "cut-off")
            await cut.wait_for("let go")
        door.open()
        await durable.start("cut-off-2", "Begin.", agent="holder")
        await cut.wait_for("holding")
        await durable.steer("cut-off-2", "Enough.")
        assert (await durable.wait("cut-off-2", timeout=30)).text == "Read: Enough."
    assert records(store, "cut-off") == before
