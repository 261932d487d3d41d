"""Sessions that are opened, deleted, listed and watched at the same time, here and by other programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import Gate, check_order, deploy, make_agent, make_deployer, run_server

from steersman.server.hub import Hub
from steersman.server.sessions import Sessions
from steersman.server.watch import Watch
from steersman.session.session import Session
from steersman.session.stores.sqlite.handle import SqliteHandle
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionNotFound
from steersman.testing import answer, call
from steersman.types.messages import user_message

pytestmark = pytest.mark.real_time


class SlowHandle(SqliteHandle):
    """A handle that takes its time to read, until it is told to go on."""

    wait: Callable[[], object] = staticmethod(lambda: None)

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The records, after a while."""
        self.wait()
        return super().lines(after)


class SlowStore(SqliteStore):
    """A store that takes its time to open a session, or to read it, until it is told to go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.loop = asyncio.get_running_loop()
        self.is_slow = False
        self.reads_slowly = False
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    def open(self, session_id: str, *, write: bool = True) -> SqliteHandle:
        """Open a session, after a while."""
        handle = super().open(session_id, write=write)
        if self.reads_slowly and write:
            handle.__class__ = SlowHandle
            assert isinstance(handle, SlowHandle)
            handle.wait = self.wait
        elif self.is_slow and write:
            self.wait()
        return handle

    def wait(self) -> None:
        """Wait in a thread."""
        if self.opened.is_set():
            return
        self.loop.call_soon_threadsafe(self.reached.set)
        asyncio.run_coroutine_threadsafe(self.opened.wait(), self.loop).result()


class CountingStore(SqliteStore):
    """A store that counts how often a session is opened to read it."""

    reads = 0

    def open(self, session_id: str, *, write: bool = True) -> SqliteHandle:
        """Open a session."""
        self.reads += not write
        return super().open(session_id, write=write)


async def test_a_client_that_leaves_while_a_session_opens_does_not_lock_it(tmp_path: Path) -> None:
    """S3: one who leaves changes nothing."""
    store = SlowStore(tmp_path / "s.db")
    sessions = Sessions(make_deployer, store)
    id = (await sessions.create(None)).session.id
    await sessions.close_idle()
    store.is_slow = True
    leaving = asyncio.ensure_future(sessions.open(None, id))
    await store.reached.wait()
    leaving.cancel()
    await asyncio.wait([leaving])
    store.opened.set()
    assert (await sessions.open(None, id)).session.id == id
    await sessions.close()


async def test_a_watcher_that_comes_while_a_session_opens_sees_where_it_ends(tmp_path: Path) -> None:
    """S2: the hub is there for watchers only once it knows the records."""
    store = SlowStore(tmp_path / "s.db")
    sessions = Sessions(make_deployer, store)
    id = (await sessions.create(None)).session.id
    await sessions.close_idle()
    store.reads_slowly = True
    opening = asyncio.ensure_future(sessions.open(None, id))
    await store.reached.wait()
    assert sessions.hubs == {}
    watching = asyncio.ensure_future(sessions.find_hub(None, id))
    store.opened.set()
    live, hub = await opening, await watching
    assert hub is live.hub
    assert (hub.last_record, hub.ring) == (2, [])
    await sessions.close()


async def test_a_session_that_is_deleted_while_it_is_listed_is_left_out(tmp_path: Path) -> None:
    """Section 3: the list of the others is not a 404."""
    sessions = Sessions(make_deployer, SqliteStore(tmp_path / "s.db"))
    ids = [(await sessions.create(None)).session.id for _ in range(2)]
    await sessions.close_idle()
    found = await sessions.list_summaries(None)
    await sessions.delete(None, ids[0])
    shown = [await sessions.describe(summary) for summary in found]
    assert [None if one is None else one.summary.id for one in shown] == [
        None if summary.id == ids[0] else summary.id for summary in found
    ]


async def test_of_many_sessions_those_that_were_listed_last_are_not_read_again(tmp_path: Path) -> None:
    """Section 3: a server with any number of sessions keeps a bounded number of outlines."""
    store = CountingStore(tmp_path / "s.db")
    sessions = Sessions(make_deployer, store, max_outlines=2)
    for _ in range(3):
        await sessions.create(None)
    await sessions.close_idle()
    first, second, third = await sessions.list_summaries(None)
    store.reads = 0
    for summary, reads in ((first, 1), (second, 2), (first, 2), (third, 3), (first, 3), (second, 4)):
        assert await sessions.describe(summary) is not None
        assert store.reads == reads


async def test_a_session_that_was_deleted_is_free(tmp_path: Path) -> None:
    """DELETE and a prompt at once: one comes first, and nothing stays open behind the other."""
    sessions = Sessions(make_deployer, SqliteStore(tmp_path / "s.db"))
    for _ in range(10):
        id = (await sessions.create(None, key="k")).session.id
        await sessions.close_idle()
        opening = asyncio.ensure_future(sessions.open(None, id))
        deleting = asyncio.ensure_future(sessions.delete(None, id))
        await asyncio.wait([opening, deleting])
        assert opening.exception() is None or isinstance(opening.exception(), SessionNotFound)
        assert (deleting.exception(), sessions.live, sessions.hubs) == (None, {}, {})


async def test_a_watcher_sees_what_another_program_writes(tmp_path: Path) -> None:
    """S2: the log is the only truth, also where another process writes it."""
    path = tmp_path / "s.db"
    async with run_server(make_agent("Yes."), store=path) as writer:
        id = await writer.create()
        async with run_server(make_agent("No."), store=path) as reader:
            watching = asyncio.ensure_future(reader.collect(id))
            await reader.find(id, "served")
            await writer.act(id, "prompt", {"content": "Well?"})
            events = await watching
    check_order(events)
    assert events[-1][1]["end_reason"] == "done"


async def test_a_watcher_holds_little_of_a_log_with_large_records(tmp_path: Path) -> None:
    """S4: memory per watcher is bounded, also by the bytes of the records that it reads from the store."""
    store = SqliteStore(tmp_path / "s.db")
    with Session.create(store, "large") as session:
        for number in range(24):
            session.recorder.add("note", {"text": str(number % 10) * (1 << 19)})
    hub = Hub("large", store)
    handle = store.open("large", write=False)
    hub.scan(handle)
    handle.close()
    seqs: list[int] = []
    with Watch(hub) as watch:
        while watch.position.record < hub.last_record:
            items = await watch.read()
            assert sum(len(item.frame) for item in items) < 4 << 20
            seqs += [item.position.record for item in items]
    assert seqs == list(range(1, 26))


async def test_what_was_configured_is_kept_with_the_session(tmp_path: Path) -> None:
    """Section 6: a receipt says that it is saved; sessions are closed when they are not used, and opened again."""
    from steersman import Approval

    made = make_agent("Yes.", approval=Approval())
    sets: list[Any] = [
        {"mode": "plan", "thinking_level": "low"},
        {"limits": {"max_turns": 7}},
        {"limits": {"max_cost": 0.5}, "title": "Mine"},
    ]
    async with run_server(made, store=tmp_path / "s.db") as client:
        id = await client.create()
        for body in sets:
            await client.act(id, "configure", body)
    async with run_server(made, store=tmp_path / "s.db") as client:
        await client.act(id, "abort")
        _, shown = await client.send("GET", f"/sessions/{id}")
    assert (shown["mode"], shown["thinking_level"], shown["title"]) == ("plan", "low", "Mine")
    sessions = Sessions(made, SqliteStore(tmp_path / "s.db"))
    limits = (await sessions.open(None, id)).agent.config.execution_limits
    await sessions.close()
    assert limits is not None
    assert (limits.max_turns, limits.max_cost) == (7, 0.5)


async def test_an_imported_session_brings_no_settings(tmp_path: Path) -> None:
    """docs/sessions.md: an imported session brings no approvals; a mode or higher limits would be some."""
    from steersman import Approval

    made = make_agent("Yes.", approval=Approval())
    async with run_server(made, store=tmp_path / "theirs.db") as client:
        id = await client.create()
        await client.act(id, "configure", {"mode": "bypass", "limits": {"max_turns": 10_000}})
    with Session.open(tmp_path / "theirs.db", id) as theirs:
        theirs.export(tmp_path / "theirs.jsonl")
    Session.import_(tmp_path / "theirs.jsonl", tmp_path / "ours.db").close()
    sessions = Sessions(made, SqliteStore(tmp_path / "ours.db"))
    config = (await sessions.open(None, id)).agent.config
    await sessions.close()
    assert config.approval is not None
    assert config.approval.mode == "ask"
    assert config.execution_limits is not None
    assert config.execution_limits.max_turns != 10_000


async def test_an_imported_session_chooses_no_agent(tmp_path: Path) -> None:
    """docs/sessions.md: each agent has its own tools and rules."""
    agents = {"reader": make_agent("Read."), "owner": make_agent("Owned.")}
    async with run_server(agents, store=tmp_path / "theirs.db") as client:
        _, made = await client.send("POST", "/sessions", {"agent": "owner"})
    with Session.open(tmp_path / "theirs.db", made["id"]) as theirs:
        theirs.export(tmp_path / "theirs.jsonl")
    Session.import_(tmp_path / "theirs.jsonl", tmp_path / "ours.db").close()
    async with run_server(agents, store=tmp_path / "ours.db") as client:
        await client.act(made["id"], "prompt", {"content": "Hi."})
        events = await client.collect(made["id"])
        _, listed = await client.send("GET", "/sessions")
    said = [event["message"]["content"][0]["text"] for _, event in events if event["type"] == "message_end"]
    assert said == ["Hi.", "Read."]
    assert [one["agent"] for one in listed["sessions"]] == [""]


async def test_a_run_that_goes_on_with_an_answer_keeps_no_events_for_a_reader(tmp_path: Path) -> None:
    """S4: watchers read the hub, so the events of a run are not kept a second time until it ends."""
    gate, store = Gate(), SqliteStore(tmp_path / "s.db")
    sessions = Sessions(make_deployer, store)
    live = await sessions.create(None)
    await live.prompt(user_message("Deploy."))
    with Watch(live.hub) as watch:
        while not live.agent.open_approvals:
            await watch.read()
    [question] = live.agent.open_approvals
    await sessions.close()
    sessions = Sessions(
        make_agent(answer("Word. " * 40, call("wait"), deltas=40), tools=[deploy, gate.make_tool()]), store
    )
    live = await sessions.open(None, live.session.id)
    await live.approve(question.approval_id, by="test")
    await gate.reached.wait()
    run = live.agent.current_run
    kept = None if run is None else len(run.channel.buffer)
    await sessions.close()
    assert kept == 0
