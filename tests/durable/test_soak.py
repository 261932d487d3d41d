"""Long campaigns: every journal point, a thousand sessions while workers die, and servers that are restarted."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from temporalio.service import RPCError
from tests.durable.kit import Program, find_faults, new_queue, running
from tests.durable.server import Server
from tests.durable.stage import Ledger
from tests.durable.takeovers import SWITCH, Takeover, choose_judgement, describe_takeovers
from tests.durable.test_killed import kill_at
from tests.session.database import Database
from tests.session.stores.postgres.server import some_server

from steersman.durable import Client, DurableError
from steersman.durable.connection import connect
from steersman.session import PostgresStore, SessionError

pytestmark = [pytest.mark.real_time, pytest.mark.soak, pytest.mark.timeout(3600)]

_BATCH = 6
_HEARTBEAT = 2.0
_AT_ONCE = 8


async def test_a_worker_killed_at_every_record_is_replaced(
    postgres: Database, temporal: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """durable.md 3: before and after each of 110 records, with another worker standing by.

    Every takeover is judged, unless others keep the machine busy: Temporal's timers, of which the shortest takes a
    second, are late then. So our part of each, from the moment a worker is given the run, is judged apart.
    """
    points = [f"{number}:{how}" for number in range(110) for how in ("before", "after")]
    judgement = choose_judgement(os.environ.get(SWITCH), os.getloadavg()[0], os.cpu_count() or 1)
    gaps: dict[str, Takeover] = {}
    for at in range(0, len(points), _BATCH):
        folder = tmp_path / str(at)
        folder.mkdir()
        gaps |= await kill_at(points[at : at + _BATCH], 15, postgres, temporal, folder, _HEARTBEAT)
    for line in describe_takeovers(len(points), gaps.values(), judgement, _HEARTBEAT + 1.5):
        measured(line)
    measured(f"load after it: {os.getloadavg()[0]:.1f}")
    assert len(points) >= 200
    assert judgement.find_worst([takeover.seconds for takeover in gaps.values()]) < _HEARTBEAT + 1.5
    assert statistics.median(takeover.until_record for takeover in gaps.values()) < 0.25


class Load:
    """Sessions that run on some workers."""

    def __init__(self, store: PostgresStore, durable: Client, ledger: Ledger, turns: int) -> None:
        self.store, self.durable, self.ledger, self.turns = store, durable, ledger, turns
        self.sessions: list[str] = []

    async def start(self, count: int) -> None:
        """Start so many sessions."""
        self.sessions += [f"{self.durable.task_queue}-{number}" for number in range(count)]
        await _do_all(self.sessions, self._start_one)

    async def wait(self) -> None:
        """Wait until all have ended."""
        await _do_all(self.sessions, self._wait_for_one)

    def find_faults(self) -> dict[str, list[str]]:
        """What is wrong, by session."""
        begun = self.ledger.lines()
        mine: dict[str, list[str]] = {}
        for line in begun:
            mine.setdefault(line.split(" ")[1], []).append(line)
        found = {id: find_faults(self.store, id, mine.get(id, []), self.turns) for id in self.sessions}
        return {id: faults for id, faults in found.items() if faults}

    async def _start_one(self, id: str) -> None:
        # What cannot be told while a server is away is told again, under the same key.
        while True:
            try:
                await self.durable.start(id, id, key="start")
                return
            except (DurableError, SessionError):
                await asyncio.sleep(0.5)

    async def _wait_for_one(self, id: str) -> None:
        while True:
            try:
                outcome = await self.durable.wait(id, timeout=600)
                assert outcome.end_reason == "done", outcome
                return
            except SessionError:
                await asyncio.sleep(0.5)


async def _do_all(ids: Sequence[str], work: Callable[[str], Awaitable[None]]) -> None:
    left = list(reversed(ids))

    async def take() -> None:
        while left:
            await work(left.pop())

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(take())


@asynccontextmanager
async def spawn_worker(load: Load, dsn: str, temporal: str, sessions: int) -> AsyncGenerator[Program]:
    """A worker that runs so many sessions at once."""
    place = (dsn, temporal, str(load.ledger.path), load.durable.task_queue, str(load.turns), str(sessions))
    async with running("tests.durable.load", *place) as program:
        await program.wait_for("ready")
        yield program


async def test_a_thousand_sessions_end_while_workers_are_killed(
    postgres: Database, temporal: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """durable.md 3: three workers, one of which is killed every ten seconds and replaced."""
    durable = Client(postgres.store(), await connect(temporal, "default"), task_queue=new_queue())
    load = Load(postgres.store(), durable, Ledger(tmp_path / "ledger"), 6)
    began, killed = time.monotonic(), 0
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(spawn_worker(load, postgres.dsn, temporal, 10)) for _ in range(3)]
        starting = asyncio.get_running_loop().create_task(load.start(1000))

        async def kill() -> None:
            nonlocal killed
            while True:
                await asyncio.sleep(10)
                victim = workers.pop(0)
                await victim.kill()
                killed += 1
                workers.append(await stack.enter_async_context(spawn_worker(load, postgres.dsn, temporal, 10)))

        killing = asyncio.get_running_loop().create_task(kill())
        await starting
        await load.wait()
        killing.cancel()
        with suppress(asyncio.CancelledError):
            await killing
    assert load.find_faults() == {}
    calls = len(load.ledger.lines())
    measured(f"1000 sessions in {time.monotonic() - began:.0f} s, {killed} workers killed, {calls} calls")


@pytest.mark.parametrize("restarted", ["postgres", "temporal"])
async def test_a_restart_under_load_loses_nothing(
    restarted: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """durable.md 3: the server is killed three times while sessions are started and run."""
    database, temporal = some_server(), Server(tmp_path / "temporal.db")
    try:
        store = PostgresStore(database.dsn)
        durable = Client(store, temporal.address, task_queue=new_queue())
        async with asyncio.timeout(60):
            await _wait_until_up(durable)
        load = Load(store, durable, Ledger(tmp_path / "ledger"), 30)
        async with (
            spawn_worker(load, database.dsn, temporal.address, 10),
            spawn_worker(load, database.dsn, temporal.address, 10),
        ):
            starting = asyncio.get_running_loop().create_task(load.start(150))
            for _ in range(3):
                await asyncio.sleep(4)
                if restarted == "postgres":
                    await asyncio.to_thread(database.crash)
                    await asyncio.sleep(2)
                    await asyncio.to_thread(database.start)
                else:
                    await asyncio.to_thread(temporal.stop)
                    await asyncio.sleep(2)
                    await asyncio.to_thread(temporal.start)
            await starting
            await load.wait()
        assert load.find_faults() == {}
        measured(f"{restarted} restarted three times, 150 sessions ended")
    finally:
        temporal.stop()
        database.remove()


async def test_a_run_outlives_the_server_that_started_it_and_the_end_of_everything(tmp_path: Path) -> None:
    """docs/scale.md: a server is killed while its run goes on; then PostgreSQL, Temporal and the worker are."""
    database, temporal = some_server(), Server(tmp_path / "temporal.db")
    ledger, queue = Ledger(tmp_path / "ledger"), new_queue()
    try:
        url = f"postgresql://postgres@/postgres?host={quote(database.dsn.partition('host=')[2].split()[0])}"
        where = ("--store", url, "--temporal", temporal.address, "--task-queue", queue)
        durable = Client(PostgresStore(database.dsn), temporal.address, task_queue=queue)
        place = (database.dsn, temporal.address, str(ledger.path), queue, "200", "10")
        async with asyncio.timeout(60):
            await _wait_until_up(durable)
        async with running("tests.durable.load", *place) as worker:
            await worker.wait_for("ready")
            async with running("steersman", "serve", "--port", "0", *where, home=tmp_path) as server:
                id = await _start_at(await server.wait_for("http://"))
                await _wait_for_calls(ledger, 1)
            begun = len(ledger.lines())  # the server is killed by now
            await _wait_for_calls(ledger, begun + 10)
            for kill in (database.crash, temporal.stop):
                await asyncio.to_thread(kill)
        for start in (database.start, temporal.start):
            await asyncio.to_thread(start)
        async with asyncio.timeout(60):
            await _wait_until_up(durable)
        assert len(ledger.lines()) < 400
        async with running("tests.durable.load", *place):
            assert (await durable.wait(id, timeout=120)).end_reason == "done"
        assert find_faults(durable.store, id, ledger.lines(), 200) == []
    finally:
        temporal.stop()
        database.remove()


async def _start_at(url: str) -> str:
    """Make a session at a server, and start its run with its id; the id."""
    place, _, token = url.partition("/?token=")
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}, raise_for_status=True) as client:
        async with client.post(f"{place}/sessions", json={}) as response:
            id: str = (await response.json())["id"]
        await client.post(f"{place}/sessions/{id}/prompt", json={"content": id})
    return id


async def _wait_for_calls(ledger: Ledger, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            if len(ledger.lines()) >= count:
                return
            await asyncio.sleep(0.05)


async def _wait_until_up(durable: Client) -> None:
    while True:
        with suppress(DurableError):
            async with durable:
                return
        await asyncio.sleep(0.2)


async def test_a_thousand_turns_are_no_events(
    postgres: Database, temporal: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """durable.md 3: and nothing more for each time it is steered while it runs."""
    client = await connect(temporal, "default")
    durable = Client(postgres.store(), client, task_queue=new_queue(), heartbeat=20.0)
    load = Load(postgres.store(), durable, Ledger(tmp_path / "ledger"), 1000)
    async with spawn_worker(load, postgres.dsn, temporal, 10):
        await load.start(1)
        (id,) = load.sessions
        for number in range(5):
            await asyncio.sleep(1)
            await durable.steer(id, f"Note {number}.", "wait")
        outcome = await durable.wait(id, timeout=900)
    found = await client.get_activity_handle(id).describe(include_input=True, include_outcome=True)
    size = found.raw_info.ByteSize()
    measured(f"{outcome.text} {size} bytes")
    assert (outcome.end_reason, found.attempt) == ("done", 1)
    assert size < 2_000
    with pytest.raises(RPCError, match="not found"):  # an activity of its own has no history
        await client.get_workflow_handle(id).fetch_history()
