"""Sessions that workers run and any process speaks to, by the id of the session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.namespace.v1 import NamespaceInfo
from temporalio.api.workflowservice.v1 import DeleteActivityExecutionRequest, DescribeNamespaceResponse
from temporalio.client import ActivityExecutionStatus
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode
from tests.durable.dying import TellingStore
from tests.durable.kit import Program, new_queue, running
from tests.durable.stage import make_agents
from tests.session.database import Database
from tests.session.kit import records, said

from steersman import Agent, Session, tool
from steersman.context.repair import UNKNOWN
from steersman.durable import Client, DurableError, Worker
from steersman.durable.connection import check_namespace, connect, is_passing
from steersman.session import MemoryStore, PostgresStore, SessionNotFound, SessionQueue
from steersman.session.stores.store import Store, StoreFailed
from steersman.testing import ScriptedModel, answer, call
from steersman.types.model import Request

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def stage(postgres: Database, temporal: str, heartbeat: float = 20.0) -> AsyncGenerator[tuple[Client, Program]]:
    """A client, and a worker in a process of its own."""
    queue = new_queue()
    durable = Client(postgres.store(), temporal, task_queue=queue, heartbeat=heartbeat)
    async with running("tests.durable.program", postgres.dsn, temporal, queue) as program, durable:
        await program.wait_for("ready")
        yield durable, program


def talk(store: Store, id: str) -> list[str]:
    """Who said what in a session."""
    with Session.open(store, id, write=False) as session:
        return [line for line in said(session.messages) if line.startswith(("user", "assistant: R"))]


async def check_without_history(id: str, temporal: str) -> None:
    """Temporal keeps no events of the last run: it is an activity of its own."""
    client = await connect(temporal, "default")
    assert (await client.get_activity_handle(id).describe()).status == ActivityExecutionStatus.COMPLETED
    with pytest.raises(RPCError, match="not found"):
        await client.get_workflow_handle(id).fetch_history()


async def test_a_run_is_steered_from_another_process(postgres: Database, temporal: str) -> None:
    """durable.md U1: said twice under one key it is heard once; a session that rests is woken; history stays short."""
    async with stage(postgres, temporal) as (durable, program):
        await durable.start("steered", "Begin.", agent="holder", key="k")
        await program.wait_for("holding")
        await durable.start("steered", "Begin.", agent="holder", key="k")
        with pytest.raises(DurableError, match="Two stores with sessions of the same ids need two namespaces"):
            await Client(durable.store, temporal, task_queue="another").is_running("steered")
        await durable.steer("steered", "Stop that.", key="once")
        outcome = await durable.wait("steered", timeout=30)
        assert (outcome.end_reason, outcome.text) == ("done", "Read: Stop that.")
        await check_without_history("steered", temporal)
        assert (await durable.steer("steered", "Stop that.", key="once")).is_new is False
        await durable.follow_up("steered", "And now?")
        assert (await durable.wait("steered", timeout=30)).text == "Read: And now?"
        assert not await durable.is_running("steered")
        assert talk(durable.store, "steered") == [
            "user: Begin.",
            "user: Stop that.",
            "assistant: Read: Stop that.",
            "user: And now?",
            "assistant: Read: And now?",
        ]


async def test_a_run_is_aborted_from_another_process(postgres: Database, temporal: str) -> None:
    """durable.md U1: an abort without a run does nothing, not even to the next one."""
    async with stage(postgres, temporal) as (durable, program):
        await durable.start("aborted", "Begin.", agent="holder")
        await program.wait_for("holding")
        await durable.abort("aborted")
        assert (await durable.wait("aborted", timeout=30)).end_reason == "aborted"
        await program.wait_for("let go")
        await durable.abort("aborted")
        await durable.steer("aborted", "Again.")
        assert (await durable.wait("aborted", timeout=30)).text == "Read: Again."


async def test_what_is_said_after_an_abort_starts_a_run(postgres: Database, temporal: str) -> None:
    """durable.md U1: also if it is heard before the run has ended; what was said before it is not lost."""
    queue, store, id, begun = new_queue(), postgres.store(), "said-after", asyncio.Event()
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)

    def speak() -> None:
        with SessionQueue(store, id) as session:
            session.follow_up("And now?")
            while session.waiting():
                threading.Event().wait(0.01)

    @tool
    async def hold() -> str:
        """Hold."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(speak)
        return ""

    def react(request: Request) -> Any:
        text = request.messages[-1].text
        return answer(call("hold")) if text == "Begin." else f"Read: {text}"

    async with Worker(
        lambda: Agent(ScriptedModel(react, repeat_last=True).model, tools=[hold], cancel_grace=30.0),
        store,
        temporal,
        task_queue=queue,
    ):
        await durable.start(id, "Begin.")
        await asyncio.wait_for(begun.wait(), 30)
        await durable.follow_up(id, "Before.")
        await durable.abort(id)
        outcome = await durable.wait(id, timeout=30)
    assert (outcome.end_reason, outcome.text) == ("done", "Read: And now?")
    answers = ["user: Before.", "assistant: Read: Before.", "user: And now?", "assistant: Read: And now?"]
    assert talk(store, id) == ["user: Begin.", *answers]
    ends = [record.payload["end_reason"] for record in records(store, id) if record.type == "run_end"]
    assert ends == ["aborted", "done"]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_question_is_answered_from_another_process(postgres: Database, temporal: str, answers: bool) -> None:
    """durable.md U1: meanwhile the run is put aside and holds no place in the worker; the answer wakes it."""
    id = f"asked-{answers}"
    async with stage(postgres, temporal) as (durable, program):
        await durable.start(id, "Begin.", agent="payer")
        await program.wait_for(f"log The run of {id!r} rests until its question is answered.")
        (question,) = await durable.questions(id)
        assert (question.tool_name, await durable.is_running(id)) == ("pay", True)
        if answers:
            await durable.approve(id, question.approval_id, by="ann")
        else:
            await durable.deny(id, question.approval_id, "too dear", by="ann")
        outcome = await durable.wait(id, timeout=30)
        assert outcome.text.startswith("Read: paid" if answers else "Read: Denied: too dear")
        assert await durable.questions(id) == []
        assert [record.type for record in records(durable.store, id)].count("run_end") == 1
        if answers:
            await program.wait_for("paid")


async def test_a_question_is_open_for_longer_than_temporal_remembers(postgres: Database, temporal: str) -> None:
    """durable.md U1: the session is the log. Such a run still goes on, and an abort ends it."""
    client, id = await connect(temporal, "default"), "forgotten"
    async with stage(postgres, temporal) as (durable, _):
        await durable.start(id, "Hi.", agent="payer")
        assert (await durable.wait(id, timeout=30)).text == "Read: Hi."
        await durable.follow_up(id, "Begin.")
        assert (await client.get_activity_handle(id).result())["end_reason"] == "waiting"
        await _forget(client, id)
        assert await durable.is_running(id)
        waiting = asyncio.ensure_future(durable.wait(id, timeout=30))
        await durable.abort(id)
        assert (await waiting).end_reason == "aborted"
        assert await durable.questions(id) == []
        assert not await durable.is_running("never")


async def _forget(client: TemporalClient, id: str) -> None:
    """Delete an activity of Temporal, which may know it for a moment longer: the answer comes before the deletion."""
    request = DeleteActivityExecutionRequest(namespace="default", activity_id=id)
    await client.workflow_service.delete_activity_execution(request)
    async with asyncio.timeout(30):
        while True:
            try:
                await client.get_activity_handle(id).describe()
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return
                raise
            await asyncio.sleep(0.02)


async def test_a_worker_that_hangs_is_replaced_and_does_nothing_more(postgres: Database, temporal: str) -> None:
    """durable.md U3, U4: stopped past its lease, it writes nothing and runs nothing when it goes on."""
    async with stage(postgres, temporal, heartbeat=1.0) as (durable, program):
        await durable.start("hung", "Begin.", agent="holder")
        await program.wait_for("holding")
        program.stop()
        worker = Worker(make_agents(_ignore), postgres.store(), temporal, task_queue=durable.task_queue)
        async with worker:
            outcome = await durable.wait("hung", timeout=30)
            assert outcome.text == f"Read: {UNKNOWN}"
            before = records(durable.store, "hung")
            program.go_on()
            await program.wait_for("let go")
            # It has another run to do, so it is well.
        await durable.start("hung-2", "Hi.", agent="holder")
        assert (await durable.wait("hung-2", timeout=30)).text == "Read: Hi."
        assert records(durable.store, "hung") == before
        assert program.lines.count("holding") == 1


async def test_a_worker_that_stops_hands_its_runs_over(postgres: Database, temporal: str) -> None:
    """durable.md U1: what a tool was doing is told as unknown, and the run goes on elsewhere."""
    queue, told = new_queue(), asyncio.Event()
    durable = Client(postgres.store(), temporal, task_queue=queue)

    def make_worker(say: Callable[[str], None]) -> Worker:
        return Worker(make_agents(say), postgres.store(), temporal, task_queue=queue)

    async with make_worker(lambda line: told.set() if line == "holding" else None):
        await durable.start("handed", "Begin.", agent="holder")
        await asyncio.wait_for(told.wait(), 30)
    assert await durable.is_running("handed")
    async with make_worker(_ignore):
        assert (await durable.wait("handed", timeout=30)).text == f"Read: {UNKNOWN}"


def _ignore(_: str) -> None:
    """Print nothing."""


async def test_what_cannot_be_run_is_told_and_nothing_is_lost(postgres: Database, temporal: str) -> None:
    """durable.md U1: an agent that no worker has; the prompt stays queued."""
    queue = new_queue()
    durable = Client(postgres.store(), temporal, task_queue=queue)
    async with Worker(make_agents(_ignore), postgres.store(), temporal, task_queue=queue):
        await durable.start("unknown", "Hi.", agent="nope")
        with pytest.raises(
            DurableError, match=r"No agent named 'nope' in this worker\. Agents here: holder, payer, keeper\."
        ):
            await durable.wait("unknown", timeout=60)
        await durable.start("unknown", "And hi.", agent="holder")
        assert (await durable.wait("unknown", timeout=30)).end_reason == "done"
    assert [line for line in talk(durable.store, "unknown") if line.startswith("user")] == [
        "user: Hi.",
        "user: And hi.",
    ]


async def test_a_session_that_is_open_elsewhere_is_not_taken_away(postgres: Database, temporal: str) -> None:
    """durable.md U3: a first attempt waits for the other one, and says so; what was queued is heard there."""
    queue, store = new_queue(), postgres.store()
    durable = Client(store, temporal, task_queue=queue, heartbeat=0.5)
    session = Session.create(store, "elsewhere")
    agent = Agent(ScriptedModel("Mine.").model, session=session)
    async with Worker(make_agents(_ignore), postgres.store(), temporal, task_queue=queue):
        await durable.start("elsewhere", "Hi.", agent="holder")
        with pytest.raises(DurableError, match="is being written to by another program or object"):
            await durable.wait("elsewhere", timeout=30)
    assert session.taken is None
    await agent.run("I.")
    assert [message.text for message in agent.messages if message.role == "user"] == ["I.", "Hi."]
    agent.close()
    session.close()


async def test_mistakes_are_told_at_once(postgres: Database, temporal: str) -> None:
    store = postgres.store()
    with pytest.raises(DurableError, match=r"Temporal cannot be reached at '127\.0\.0\.1:1'"):
        await Client(store, "127.0.0.1:1").start("s", "Hi.")
    with pytest.raises(DurableError, match="Temporal has no namespace 'nope'"):
        await Client(store, temporal, namespace="nope").start("s", "Hi.")
    old = DescribeNamespaceResponse(namespace_info=NamespaceInfo(name="old"))
    with pytest.raises(DurableError, match="runs no standalone activities in the namespace 'old'"):
        check_namespace(old)
    with pytest.raises(SessionNotFound):
        await Client(store, temporal).steer("never", "Hi.")
    with pytest.raises(TypeError, match="need a store that all workers can reach"):
        Client(MemoryStore(), temporal)
    with pytest.raises(ValueError, match=r"heartbeat is at least 0.5 seconds, got 0"):
        Client(store, temporal, heartbeat=0)
    with pytest.raises(ValueError, match="max_sessions is a number above 0, got 0"):
        Worker(make_agents(_ignore), store, temporal, max_sessions=0)
    with pytest.raises(Exception, match=r"could not be listed in|could not be listed"):
        await Worker(make_agents(_ignore), PostgresStore("host=/nowhere"), temporal).run()
    assert store.list() == []


def test_to_wait_goes_on_while_temporal_is_away() -> None:
    """Of an unknown kind is "transport error": Temporal was killed while it was asked."""
    kinds = RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.NOT_FOUND
    assert [is_passing(RPCError("transport error", kind, b"")) for kind in kinds] == [True, True, False, False]


@pytest.mark.parametrize("late", [False, True])
async def test_what_is_said_while_a_run_ends_is_heard(postgres: Database, temporal: str, late: bool) -> None:
    """durable.md U1: also while the session is being closed, when its lock says that a worker has it open."""
    queue, store, id = new_queue(), postgres.store(), f"ending-{late}"
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)
    left = ["More."]

    def speak() -> None:
        with SessionQueue(store, id) as session:
            if left:
                session.follow_up(left.pop())

    def make_agent() -> Agent:
        model = ScriptedModel(lambda request: f"Read: {request.messages[-1].text}", repeat_last=True)
        agent = Agent(model.model)
        agent.subscribe(lambda event: speak() if event.type == "agent_end" and not late else None)
        return agent

    shown = TellingStore(store, lambda what: speak() if what == "closing" and late else None)
    async with Worker(make_agent, shown, temporal, task_queue=queue):
        await durable.start(id, "Hi.")
        assert (await durable.wait(id, timeout=30)).text == "Read: More."
    assert talk(store, id) == ["user: Hi.", "assistant: Read: Hi.", "user: More.", "assistant: Read: More."]


class AskedStore(TellingStore):
    """The store of a client, which calls a function whenever it was asked for the writer of a session."""

    def __init__(self, store: PostgresStore, call: Callable[[], None]) -> None:
        super().__init__(store, _ignore)
        self._call, self._has_writer, self.follow = call, store.has_writer, store.follow

    def has_writer(self, session_id: str, /) -> bool:
        found = self._has_writer(session_id)
        self._call()
        return found


async def test_what_is_said_after_the_last_look_of_a_worker_is_heard(postgres: Database, temporal: str) -> None:
    """durable.md U1: Temporal still calls it running then, and refuses to start it a second time."""
    queue, id = new_queue(), "looked"
    store, loop, left = postgres.store(), asyncio.get_running_loop(), ["More."]
    refused, waking = threading.Event(), list[asyncio.Future[None]]()

    asked, seen = list[str](), list[bool]()

    def count() -> None:
        asked.append(id)
        if len(asked) == 2:  # for the second time: Temporal has refused
            refused.set()

    durable = Client(AskedStore(store, count), temporal, task_queue=queue, heartbeat=20.0)

    def speak(what: str) -> None:
        if what == "looked" and left:
            with SessionQueue(store, id) as session:
                session.follow_up(left.pop())
            waking.append(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(durable.wake(id), loop), loop=loop))
            seen.append(refused.wait(20))

    model = ScriptedModel(lambda request: f"Read: {request.messages[-1].text}", repeat_last=True)
    async with Worker(lambda: Agent(model.model), TellingStore(store, speak), temporal, task_queue=queue):
        await durable.start(id, "Hi.")
        await durable.wait(id, timeout=30)
        await waking[0]
        assert (await durable.wait(id, timeout=30)).text == "Read: More."
    assert seen == [True]


async def test_what_is_queued_wakes_a_worker_also_if_the_database_dies_after_that(
    postgres: Database, temporal: str
) -> None:
    """durable.md U2: an error would have it said a second time."""
    queue, store, failures = new_queue(), postgres.store(), [StoreFailed("The server is gone.")]

    def fail() -> None:
        if failures:
            raise failures.pop()

    durable = Client(AskedStore(store, fail), temporal, task_queue=queue, heartbeat=20.0)
    Session.create(store, "queued").close()
    async with Worker(make_agents(_ignore)["holder"], store, temporal, task_queue=queue):
        assert (await durable.steer("queued", "Hi.")).is_new
        assert (await durable.wait("queued", timeout=30)).text == "Read: Hi."
    assert failures == []


async def test_a_run_is_continued_while_the_worker_closes_the_one_that_failed(
    postgres: Database, temporal: str
) -> None:
    """durable.md U1: its lock says that a worker has the session open, and its log that no run goes on."""
    queue, store, loop, id = new_queue(), postgres.store(), asyncio.get_running_loop(), "continued"
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)
    asked, continuing = threading.Event(), list[asyncio.Future[None]]()

    impatient = Client(AskedStore(store, asked.set), temporal, task_queue=queue, heartbeat=20.0)

    def speak(what: str) -> None:
        if what == "closing" and not continuing:
            future = asyncio.run_coroutine_threadsafe(impatient.continue_(id), loop)
            continuing.append(asyncio.wrap_future(future, loop=loop))
            asked.wait(20)

    async def react(request: Request) -> str:
        if model.requests[1:]:
            await durable.continue_(id)  # while a run goes on this does nothing
            return f"Read: {request.messages[-1].text}"
        raise RuntimeError("The model is away.")

    model = ScriptedModel(react, repeat_last=True)
    async with Worker(lambda: Agent(model.model), TellingStore(store, speak), temporal, task_queue=queue):
        await durable.start(id, "Hi.")
        assert (await durable.wait(id, timeout=30)).end_reason == "error"
        await continuing[0]
        assert (await durable.wait(id, timeout=30)).text == "Read: Hi."
    assert (asked.is_set(), len(model.requests)) == (True, 2)


async def test_settings_reach_the_worker_and_are_kept_for_the_next_one(postgres: Database, temporal: str) -> None:
    """durable.md U2: through the queue, from the next turn on; they start no run."""
    queue, store = new_queue(), postgres.store()
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)

    def make_agent() -> Agent:
        def tell(_: Request) -> str:
            return f"thinking: {model.requests[-1][1].thinking_level}"

        model = ScriptedModel(tell, repeat_last=True)
        return Agent(model.model)

    async def ask() -> str:
        await durable.start("set", "And now?")
        return (await durable.wait("set", timeout=30)).text

    async with Worker(make_agent, store, temporal, task_queue=queue):
        assert await ask() == "thinking: off"
        assert await durable.configure("set", thinking_level="high", key="k") == (2, True)
        assert not await durable.is_running("set")
        assert await ask() == "thinking: high"
    async with Worker(make_agent, store, temporal, task_queue=queue):
        assert await ask() == "thinking: high"
        with pytest.raises(ValueError, match="These settings cannot be changed so"):
            await durable.configure("set", thinking_level="deep")  # pyright: ignore[reportArgumentType]


async def test_a_worker_guesses_at_nothing_that_a_newer_one_has_written(postgres: Database, temporal: str) -> None:
    """Version skew: an unknown order stays queued, an unknown record ends the attempt, and nothing is lost."""
    queue, store = new_queue(), postgres.store()
    durable = Client(store, temporal, task_queue=queue, heartbeat=20.0)
    await durable.start("skew", "Hi.", agent="holder")
    orders = store.open_queue("skew")
    orders.add("id:new", b'{"kind":"rewind","id":"q1","to":3}')
    async with Worker(make_agents(_ignore), store, temporal, task_queue=queue):
        assert (await durable.wait("skew", timeout=30)).text == "Read: Hi."
        with Session.open(store, "skew") as session:
            session.recorder.add("hologram", {"of": "a newer version"})
        await durable.start("skew", "And now?")
        with pytest.raises(DurableError, match=r"records of kinds that this worker does not know: 'hologram'\. Update"):
            await durable.wait("skew", timeout=60)
    assert [number for number, _ in orders.waiting()] == [2, 3]
    orders.close()
    assert talk(store, "skew") == ["user: Hi.", "assistant: Read: Hi."]


async def test_state_and_artifacts_outlive_the_worker_and_go_with_an_export(
    postgres: Database, temporal: str, tmp_path: Path
) -> None:
    """durable.md U1: another worker goes on with what the killed one had kept."""
    queue, store = new_queue(), postgres.store()
    arguments = ("tests.durable.program", postgres.dsn, temporal, queue)
    async with Client(store, temporal, task_queue=queue, heartbeat=2.0) as durable:
        async with running(*arguments) as program:
            await program.wait_for("ready")
            await durable.start("keeps", "Begin.", agent="keeper")
            await program.wait_for("holding")  # what came before is saved by then
            await program.kill()
        async with running(*arguments) as program:
            outcome = await durable.wait("keeps", timeout=60)
    assert outcome.text == "version 2: The number is 2."
    with Session.open(store, "keeps", write=False) as session:
        session.export(tmp_path / "keeps.jsonl")
    with Session.import_(tmp_path / "keeps.jsonl", tmp_path / "sessions.db") as copy:
        assert copy.problems == []
        assert copy.log.state == {"count": 2}
        contents = [copy.artifacts.load("kept.txt", version) for version in (1, 2)]
    assert contents == [b"The number is 1.", b"The number is 2."]
