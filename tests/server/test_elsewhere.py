"""Sessions that are open in another server on the same store, or in a program without one (durable.md U2, U5)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import SOAK
from tests.server.kit import Client, Event, Gate, check_order, make_agent, make_deployer, run_server
from tests.server.test_two_servers import keep_records, show
from tests.server.test_watch import join_text
from tests.session.database import Database

from steersman import Agent, Session
from steersman.session import SessionQueue, SqliteStore, Store
from steersman.testing import ScriptedModel, answer, call
from steersman.types import StreamEvent

pytestmark = pytest.mark.real_time
LONG = "One two three, four five six. " * 12


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that several servers use."""
    if request.param == "postgres":
        postgres: Database = request.getfixturevalue("postgres")
        return postgres.store()
    return SqliteStore(tmp_path / "sessions.db")


@asynccontextmanager
async def run_both(agents: Any, store: Store, **options: Any) -> AsyncGenerator[tuple[Client, Client]]:
    """Clients of two servers."""
    async with run_server(agents, store=store) as a, run_server(agents, store=store, **options) as b:
        yield a, b


def make_slow(gate: Gate) -> Callable[[], Agent]:
    """An agent whose first answer takes its time, and whose tool waits."""
    first = answer(LONG, call("wait"), deltas=60, pace=0.01)
    return make_agent(
        first, answer("Done. " * 9, deltas=9, pace=0.01), "More.", "Still more.", tools=[gate.make_tool()]
    )


async def test_a_run_without_a_server_is_watched_through_one(store: Store) -> None:
    """U5, S2: from its start, from the middle of an answer, and with nothing twice."""
    gate = Gate()
    agent = make_slow(gate)()
    agent.configure(session=Session.create(store, "s"))
    async with run_server(make_deployer, store=store) as client:
        early = asyncio.ensure_future(client.collect("s"))
        run = asyncio.ensure_future(agent.run("Go."))
        await client.find("s", "message_update")
        late = asyncio.ensure_future(client.collect("s"))
        await gate.reached.wait()
        gate.opened.set()
        seen, joined = await early, await late
        await run
    for events in (seen, joined):
        check_order(events)
        assert show(events).complete == [LONG, "Done. " * 9]
    assert keep_records(seen) == keep_records(joined)
    assert sum(event["type"] == "message_update" for _, event in seen) > 5
    assert agent.session is not None
    agent.session.close()


def make_pausing(gate: Gate) -> Agent:
    """An agent that pauses in the middle of its first answer."""
    script = ScriptedModel(answer(LONG, deltas=60), answer("Done. " * 9, deltas=9))

    async def play(*request: Any) -> AsyncGenerator[StreamEvent]:
        at = 0
        async for event in script(*request):
            at += 1
            if at == 30:
                gate.reached.set()
                await gate.opened.wait()
            yield event

    return Agent(script.model, stream_fn=play)


async def test_a_follower_that_was_not_there_gets_the_answer_so_far(store: Store) -> None:
    """U5: a server whose first watcher comes in mid-answer asks for what it has missed."""
    gate = Gate()
    async with run_both(lambda: make_pausing(gate), store) as (a, b), asyncio.timeout(20):
        id = await a.create()
        await a.act(id, "prompt", {"content": "Go."})
        await gate.reached.wait()
        events: list[tuple[str, Event]] = []
        async with b.watch(id) as watched:
            async for position, event in watched:
                events.append((position, event))
                if event["type"] == "snapshot":
                    gate.opened.set()
                elif event["type"] == "agent_end":
                    break
    check_order(events)
    assert show(events).complete == [LONG]
    kinds = [event["type"] for _, event in events]
    assert "message_update" in kinds[kinds.index("snapshot") :]


@pytest.mark.parametrize("ring_bytes", [4 << 20, 3_000])
async def test_a_watcher_goes_from_one_server_to_another(store: Store, ring_bytes: int) -> None:
    """S1, S2, S4: positions are the same everywhere, also for one that is ahead or has fallen out of the ring."""
    gate = Gate()
    gate.opened.set()
    async with run_both(make_slow(gate), store, ring_bytes=ring_bytes) as (a, b):
        id = await a.create()
        whole = asyncio.ensure_future(b.collect(id))
        await a.act(id, "prompt", {"content": "Go."})
        seen: list[tuple[str, Event]] = []
        turn = 0
        while not seen or seen[-1][1]["type"] != "agent_end":
            after = seen[-1][0] if seen else None
            async with (a, b)[turn % 2].watch(id, after) as events:
                async for position, event in events:
                    seen.append((position, event))
                    if event["type"] == "agent_end" or len(seen) % 12 == 0:
                        break
            turn += 1
        records = keep_records(await whole)
    check_order(seen)
    assert keep_records(seen) == records
    assert show(seen, whole=False, moved=True).complete == [LONG, "Done. " * 9]


async def test_a_watcher_that_fell_out_of_the_ring_gets_records_and_the_answer_so_far() -> None:
    """S2, S4: over HTTP, with a ring that holds a few events."""
    gate = Gate()
    gate.opened.set()
    async with run_server(make_slow(gate), ring_bytes=3_000) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Go."})
        first = await client.collect(id, "message_update")
        async with client.watch(id, first[-1][0]) as events:
            updates = 0
            async for _, event in events:
                updates += event["type"] == "message_update"
                if updates == 45:
                    break
        rest = await client.collect(id, after=first[-1][0])
        assert await client.collect(id) != []
    check_order([*first, *rest])
    assert show([*first, *rest], whole=False).complete == [LONG, "Done. " * 9]
    assert rest[0][1]["type"] == "snapshot"


async def test_questions_are_answered_at_another_server(store: Store) -> None:
    """S7, U2: the session waits at both; a second answer changes nothing, and a question never asked is not found."""
    async with run_both(make_deployer, store) as (a, b):
        id = await a.create()
        await a.act(id, "prompt", {"content": "Deploy."})
        question = (await b.find(id, "approval_requested"))["approval_id"]
        _, shown = await b.send("GET", f"/sessions/{id}")
        missing = await b.send("POST", f"/sessions/{id}/approve", {"id": "nothing"})
        receipt = await b.act(id, "approve", {"id": question}, Idempotency_Key="yes")
        events = await b.collect(id)
        again = await b.act(id, "approve", {"id": question}, Idempotency_Key="yes")
        late = await b.act(id, "deny", {"id": question})
        same = await a.act(id, "approve", {"id": question}, Idempotency_Key="yes")
    assert (shown["status"], [one["approval_id"] for one in shown["approvals"]]) == ("waiting", [question])
    assert missing[0] == 404
    assert receipt == again == same == {"id": question, "status": "accepted"}
    assert late == {"id": question, "status": "resolved"}
    results = [event["result"]["details"]["status"] for _, event in events if event["type"] == "tool_execution_end"]
    assert results == ["completed"]
    resolved = [event["by"] for _, event in events if event["type"] == "approval_resolved"]
    assert resolved == ["http"]


async def test_a_run_is_aborted_and_the_next_one_started_at_another_server(store: Store) -> None:
    """U2: a session that rests in one server starts a run for a prompt at the other, which also counts once."""
    gate = Gate()
    async with run_both(make_slow(gate), store) as (a, b):
        id = await a.create()
        await a.act(id, "prompt", {"content": "Go."})
        watching = asyncio.ensure_future(a.collect(id))
        await gate.reached.wait()
        aborts = [await b.act(id, "abort", Idempotency_Key="stop") for _ in range(2)]
        first = await watching
        async with a.watch(id, first[-1][0]):  # the session stays open there
            prompts = [await b.act(id, "prompt", {"content": "On."}, Idempotency_Key="on") for _ in range(2)]
            rest = await b.collect(id, after=first[-1][0])
        aborts.append(await a.act(id, "abort", Idempotency_Key="stop"))
        prompts.append(await a.act(id, "prompt", {"content": "On."}, Idempotency_Key="on"))
        _, shown = await b.send("GET", f"/sessions/{id}")
    assert first[-1][1]["end_reason"] == "aborted"
    assert rest[-1][1]["end_reason"] == "done"
    assert aborts[0] == aborts[1] == aborts[2]
    assert prompts[0] == prompts[1] == prompts[2]
    texts = [join_text(event["message"]["content"]) for _, event in rest if event["type"] == "message_end"]
    assert texts.count("On.") == 1
    assert shown["status"] == "idle"


async def test_what_needs_the_session_itself_is_refused_while_it_is_open_elsewhere(store: Store) -> None:
    """Section 6 of server.md: 409 with words, and nothing of it happens."""
    async with run_both(make_deployer, store) as (a, b):
        id = await a.create()
        for action, body in (("continue", {}), ("rerun", {}), ("branch", {"at": 0})):
            status, problem = await b.send("POST", f"/sessions/{id}/{action}", body)
            assert (status, "another program" in problem["detail"]) == (409, True), action
        for action in ("prompt", "steer", "follow_up"):
            status, _ = await b.send("POST", f"/sessions/{id}/{action}", {"content": "x", "approvals": "deny"})
            assert status == 409, action
        assert (await b.send("DELETE", f"/sessions/{id}"))[0] == 409


async def test_the_same_key_gives_the_same_session_at_every_server(store: Store) -> None:
    """S5: also at once, and while the session is open where it was made."""
    agents = {"first": make_deployer, "second": make_deployer}
    async with run_both(agents, store) as (a, b):
        body = {"agent": "second"}
        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(one.send("POST", "/sessions", body, Idempotency_Key="k")) for one in (a, b)]
        again = [await one.send("POST", "/sessions", body, Idempotency_Key="k") for one in (a, b)]
        _, listed = await a.send("GET", "/sessions")
    (id,) = [one["id"] for one in listed["sessions"]]
    assert [*(task.result() for task in sent), *again] == [(201, {"id": id, "agent": "second"})] * 4


async def test_settings_are_changed_through_any_server(store: Store) -> None:
    """durable.md U2: the one that has the session open changes them, and keeps them with the session."""
    async with run_both(make_deployer, store) as (a, b):
        id = await a.create()
        body = {"thinking_level": "high", "title": "Mine"}
        receipt = await b.act(id, "configure", body, Idempotency_Key="k")
        assert await b.act(id, "configure", body, Idempotency_Key="k") == receipt
        status, problem = await b.send("POST", f"/sessions/{id}/configure", {"model": "scripted:nope"})
        assert (status, problem["detail"]) == (
            422,
            "The model 'scripted:nope' is not offered. No other model may be chosen here.",
        )
        await a.act(id, "abort")  # it is heard after what was queued before
        wanted = {"thinking_level": "high", "title": "Mine"}  # one is changed after the other
        while {key: (await a.send("GET", f"/sessions/{id}"))[1][key] for key in wanted} != wanted:
            pass


async def test_without_watchers_nothing_is_sent(postgres: Database) -> None:
    """U5: a run is notified to no one, unless a process follows it."""
    store = postgres.store()
    agent = Agent(ScriptedModel(answer(LONG, deltas=40), repeat_last=True).model, session=Session.create(store, "s"))
    [(channel,)] = postgres.ask(
        "SELECT format('steersman_watch_%s_%s', 'steersman_records'::regclass::oid, number) FROM steersman_sessions"
    )
    async with await psycopg.AsyncConnection.connect(postgres.dsn, autocommit=True) as other:
        await other.execute(f"LISTEN {channel}".encode())
        await agent.run("Go.")
        heard = [notice.payload async for notice in other.notifies(timeout=0.2)]
        async with run_server(make_deployer, store=store) as client, client.watch("s"):
            told: list[str] = []
            while not [payload for payload in told if not re.fullmatch(r"\d+", payload)]:
                await agent.run("Go on.")  # until it is known here that the other process follows
                told += [notice.payload async for notice in other.notifies(timeout=0.1)]
    assert [payload for payload in heard if not re.fullmatch(r"\d+", payload)] == []
    assert agent.session is not None
    agent.session.close()


# Random plays

ACTIONS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["prompt", "steer", "follow_up", "abort", "queue", "watch", "leave", "pause", "pause"]),
)


def make_echo() -> Agent:
    """An agent that answers the last message of the user."""

    async def play(request: Any) -> Any:
        return answer(f"re {request.messages[-1].text}", deltas=6, pace=0.001)

    return Agent(ScriptedModel(play, repeat_last=True).model, steering_mode="all", limits=None)


class Play:
    """What people do with one session at two servers, and what watchers see of it."""

    def __init__(self, clients: tuple[Client, Client], id: str, store: Store) -> None:
        self.clients = clients
        self.id = id
        self.store = store
        self.said: list[str] = []
        self.last = "nothing yet"
        self.seen: list[list[tuple[str, Event]]] = []
        self.watching: list[asyncio.Task[None]] = []

    async def act(self, at: int, action: str) -> None:
        """Do one thing."""
        client = self.clients[at]
        match action:
            case "watch":
                self.watch(at, [])
            case "leave":
                if self.watching and await self.leave():
                    self.watch(at, self.seen[-1])
            case "pause":
                await asyncio.sleep(0.004)
            case "abort":
                await client.act(self.id, "abort")
            case "queue":
                with SessionQueue(self.store, self.id) as queue:
                    queue.steer(self.make_text(), key=self.said[-1])
            case _:
                text = self.make_text()
                body = {"content": text}
                status, receipt = await client.send("POST", f"/sessions/{self.id}/{action}", body, Idempotency_Key=text)
                assert status == 202 or (status == 409 and action == "prompt"), receipt
                if status == 409:
                    self.said.remove(text)
                else:
                    assert await self.clients[1 - at].act(self.id, action, body, Idempotency_Key=text) == receipt

    def make_text(self) -> str:
        self.said.append(f"text {len(self.said)}.")
        return self.said[-1]

    def watch(self, at: int, seen: list[tuple[str, Event]]) -> None:
        """Watch at a server, from the last position that was seen."""
        if not any(seen is other for other in self.seen):
            self.seen.append(seen)
        self.watching.append(asyncio.ensure_future(self._watch(self.clients[at], seen)))

    async def _watch(self, client: Client, seen: list[tuple[str, Event]]) -> None:
        while not self.is_over(seen):
            async with client.watch(self.id, seen[-1][0] if seen else None) as events:
                async for position, event in events:
                    seen.append((position, event))
                    if self.is_over(seen):
                        return

    async def leave(self) -> bool:
        """Let the last watcher leave; returns whether it was there."""
        task = self.watching.pop()
        was_there = task.cancel()
        await asyncio.wait([task])
        return was_there

    def is_over(self, seen: list[tuple[str, Event]]) -> bool:
        """Whether the run has ended that has answered the last message; an abort may come later than that one."""
        if not seen or seen[-1][1]["type"] != "agent_end":
            return False
        return any(e["type"] == "message_end" and f"re {self.last}" in str(e["message"]["content"]) for _, e in seen)

    async def finish(self) -> list[tuple[str, Event]]:
        """Say a last thing, and wait until all have seen its end; returns what is in the log."""
        log: list[tuple[str, Event]] = []
        after = None
        while not self.is_over(log):
            self.last = f"End {len(log)}."
            await self.clients[0].act(self.id, "steer", {"content": self.last}, Idempotency_Key=self.last)
            log += await self.clients[0].collect(self.id, after=after)
            after = log[-1][0]
        self.watch(1, [])
        await asyncio.wait(self.watching)
        for task in self.watching:
            task.result()
        return log


@pytest.mark.parametrize("kind", ["sqlite"])
@settings(
    max_examples=settings.default.max_examples if SOAK and settings.default is not None else 6,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.lists(ACTIONS, max_size=14))
async def test_whatever_is_done_at_two_servers_all_watchers_see_the_log(
    kind: str, tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[int, str]]
) -> None:
    """U2, U5, S2, S5: records without a gap and none twice, at both servers, and each message once."""
    store = SqliteStore(tmp_path_factory.mktemp(kind) / "sessions.db")
    async with run_both(make_echo, store) as (a, b), asyncio.timeout(20):
        id = await a.create()
        play = Play((a, b), id, store)
        for at, action in actions:
            await play.act(at, action)
        log = await play.finish()
    texts = [join_text(event["message"]["content"]) for _, event in log if event["type"] == "message_end"]
    assert sorted(text for text in texts if text.startswith("text")) == sorted(play.said)
    records = keep_records(log)
    for seen in play.seen:
        check_order(seen)
        assert keep_records(seen) == records
        show(seen, whole=False, moved=True)
