"""A worker may be killed at any record: another one goes on, and nothing is lost, doubled or begun twice."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient
from tests.durable.kit import Program, find_faults, new_queue, running
from tests.durable.stage import Ledger, make_worker_agent
from tests.durable.takeovers import Takeover
from tests.session.database import Database
from tests.session.kit import records

from steersman.durable import Client, Worker
from steersman.durable.connection import connect

pytestmark = pytest.mark.real_time


async def kill_at(
    points: list[str], turns: int, postgres: Database, temporal: str, folder: Path, heartbeat: float = 5.0
) -> dict[str, Takeover]:
    """Kill workers at these points, with another one standing by; how long each takeover took.

    The sessions are judged.
    """
    queue, store, ledger = new_queue(), postgres.store(), Ledger(folder / "ledger")
    client = await connect(temporal, "default")
    durable = Client(store, client, task_queue=queue, heartbeat=heartbeat)
    sessions = [f"{queue}-{number}" for number in range(len(points))]
    for session in sessions:
        await durable.start(session, session)
    where: dict[str, str] = {}
    deaths: dict[str, float] = {}
    go = folder / "go"
    arguments = (postgres.dsn, temporal, str(ledger.path), queue, str(turns), str(go), *points)
    async with running("tests.durable.dying", *arguments) as program, asyncio.timeout(100):
        await _read(program, where, deaths, lambda: len(where) == len(points))
        async with Worker(lambda: make_worker_agent(ledger, turns), store, client, task_queue=queue):
            go.touch()
            await _read(program, where, deaths, lambda: len(deaths) == len(points))
            for session in sessions:
                outcome = await durable.wait(session)
                assert (outcome.end_reason, outcome.text) == ("done", f"All {turns} done."), session
    begun = ledger.lines()
    found = {session: find_faults(store, session, begun, turns) for session in sessions}
    assert {session: faults for session, faults in found.items() if faults} == {}
    found_gaps: dict[str, Takeover] = {}
    for point in points:
        given = await _find_start(client, where[point])
        after = [record.time for record in records(store, where[point]) if record.time > deaths[point]]
        if after and given > deaths[point]:
            found_gaps[point] = Takeover(given - deaths[point], after[0] - given)
    return found_gaps


async def _read(
    program: Program, where: dict[str, str], deaths: dict[str, float], is_enough: Callable[[], bool]
) -> None:
    """Follow what the workers tell, until it is enough."""
    while not is_enough():
        what, point, *session = (await program.read_line()).split(" ")
        assert what in ("opened", "dead"), program.lines
        if what == "dead":
            deaths[point] = time.time()
        else:
            where[point] = session[0]


async def _find_start(client: TemporalClient, session: str) -> float:
    """When Temporal has given the run to the worker that ended it."""
    found = await client.get_activity_handle(session).describe()
    assert found.last_started_time is not None
    return found.last_started_time.timestamp()


async def test_a_killed_worker_is_replaced_wherever_it_was(postgres: Database, temporal: str, tmp_path: Path) -> None:
    """durable.md U1, U4: twenty points of a run; `make soak` kills at every one."""
    numbers = [*range(12), *range(13, 28, 2)]
    points = [f"{number}:{'after' if number % 3 else 'before'}" for number in numbers]
    gaps = [takeover.seconds for takeover in (await kill_at(points, 3, postgres, temporal, tmp_path)).values()]
    print(f"takeover: median {statistics.median(gaps):.2f} s, longest {max(gaps):.2f} s")
