"""A supervised session while no worker has it: before a run, between two attempts, and at a question."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.client import PendingActivityState
from temporalio.common import RetryPolicy
from tests.durable.kit import new_queue
from tests.durable.stage import make_agents
from tests.durable.test_supervised import talk
from tests.session.database import Database

from steersman import Agent, Session
from steersman.durable import Client, DurableError, Worker
from steersman.durable.connection import connect
from steersman.durable.job import ACTIVITY
from steersman.session import PostgresStore, SessionNotFound
from steersman.session.records import Record
from steersman.testing import ScriptedModel

pytestmark = pytest.mark.real_time


def make_reader() -> Agent:
    """An agent that repeats what it has read."""
    return Agent(ScriptedModel(lambda request: f"Read: {request.messages[-1].text}", repeat_last=True).model)


async def test_an_abort_before_the_run_counts_whatever_is_set_after_it(postgres: Database, temporal: str) -> None:
    """durable.md U1, U2: settings start no run, and end no abort; what is said after it is heard."""
    queue, store = new_queue(), postgres.store()
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)
    await durable.start("early", "Hi.")
    await durable.abort("early")
    await durable.configure("early", title="Aborted")
    async with Worker(make_reader, store, temporal, task_queue=queue):
        assert (await durable.wait("early", timeout=30)).end_reason == "aborted"
        assert talk(store, "early") == []
        await durable.follow_up("early", "Go.")
        assert (await durable.wait("early", timeout=30)).text == "Read: Go."


class ForgetfulStore(PostgresStore):
    """A database whose answer is lost after the commit, so that the store tries once more."""

    def create_and_queue(self, session_id: str, records: list[Record], key: str, data: bytes, /) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().create_and_queue(session_id, records, key, data)
        super().create_and_queue(session_id, records, key, data)


async def test_a_prompt_whose_commit_was_not_answered_is_heard_once(postgres: Database, temporal: str) -> None:
    """durable.md U2: the second try finds a session, which is its own."""
    queue, store = new_queue(), ForgetfulStore(postgres.dsn)
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)
    async with Worker(make_reader, store, temporal, task_queue=queue):
        assert await durable.start("once", "Hi.") == (1, False)
        await durable.wait("once", timeout=30)
    assert talk(store, "once") == ["user: Hi.", "assistant: Read: Hi."]


async def test_who_waits_for_an_answer_learns_that_the_session_was_deleted(postgres: Database, temporal: str) -> None:
    """durable.md U1: Temporal goes on saying that the run waits."""
    queue, store, client = new_queue(), postgres.store(), await connect(temporal, "default")
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)
    async with Worker(make_agents(_ignore), store, temporal, task_queue=queue, rest_after=0.1):
        await durable.start("deleted", "Begin.", agent="payer")
        assert (await client.get_activity_handle("deleted").result())["end_reason"] == "waiting"
        waiting = asyncio.ensure_future(durable.wait("deleted", timeout=30))
        store.delete("deleted")
        with pytest.raises(SessionNotFound):
            await waiting
        assert not await durable.is_running("deleted")


async def test_who_waits_for_an_answer_learns_that_another_program_has_ended_the_run(
    postgres: Database, temporal: str
) -> None:
    """durable.md U1: the session is the log, also where Temporal says that the run waits."""
    queue, store, client = new_queue(), postgres.store(), await connect(temporal, "default")
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)
    async with Worker(make_agents(_ignore), store, temporal, task_queue=queue, rest_after=0.1):
        await durable.start("ended", "Begin.", agent="payer")
        assert (await client.get_activity_handle("ended").result())["end_reason"] == "waiting"
        assert await durable.is_running("ended")
        waiting = asyncio.ensure_future(durable.wait("ended", timeout=30))
        with Session.open(store, "ended") as session:
            agent = make_agents(_ignore)["payer"]()
            agent.configure(session=session)
            stream = agent.continue_()
            agent.abort()
            await stream
            agent.close()
        assert (await waiting).end_reason == "aborted"
        assert not await durable.is_running("ended")


async def test_a_session_that_was_opened_between_two_attempts_is_not_taken_away(
    postgres: Database, temporal: str
) -> None:
    """durable.md U3: the attempt before has closed it, so whoever has it open is another program."""
    queue, store, client = new_queue(), postgres.store(), await connect(temporal, "default")
    durable = Client(store, temporal, task_queue=queue, heartbeat=0.5)
    async with Worker({"other": make_reader}, store, temporal, task_queue=queue):
        await durable.start("between", "Hi.", agent="nope")
        await _wait_between_attempts(client, "between")
        with Session.open(store, "between") as session:
            with pytest.raises(DurableError, match="is being written to by another program or object"):
                await durable.wait("between", timeout=30)
            assert session.taken is None


async def test_a_job_that_no_worker_can_read_is_given_up(postgres: Database, temporal: str) -> None:
    """docs/scale.md, Versions: also one whose fields have changed, and not only their number."""
    queue, store, client, id = new_queue(), postgres.store(), await connect(temporal, "default"), "newer-job"
    durable = Client(store, temporal, task_queue=queue)
    Session.create(store, id).close()
    async with Worker(make_reader, store, temporal, task_queue=queue):
        await client.start_activity(
            ACTIVITY,
            {"session_id": id, "agent": {"name": "coder"}, "format": 2},
            id=id,
            task_queue=queue,
            start_to_close_timeout=timedelta(days=1),
            heartbeat_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )
        with pytest.raises(DurableError, match=r"This worker cannot read its job: .*\. Update the worker\."):
            await durable.wait(id, timeout=30)


async def _wait_between_attempts(client: TemporalClient, id: str) -> None:
    """Wait until an attempt has failed and the next one has not begun."""
    async with asyncio.timeout(30):
        while True:
            found = await client.get_activity_handle(id).describe()
            if found.attempt > 1 and found.run_state == PendingActivityState.SCHEDULED:
                return
            await asyncio.sleep(0.02)


def _ignore(_: str) -> None:
    """Print nothing."""
