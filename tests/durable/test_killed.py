"""A worker may be killed at any record: another one goes on, and nothing is lost, doubled or begun twice."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.durable.kit import Program, find_faults, new_queue, running
from tests.durable.stage import Ledger, make_worker_agent
from tests.session.database import Database
from tests.session.kit import records

from steersman.durable import Client, Worker
from steersman.durable.connection import connect
from steersman.session.records import Record
from steersman.session.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.real_time


async def kill_at(
    points: list[str], turns: int, postgres: Database, temporal: str, folder: Path, heartbeat: float = 5.0
) -> dict[str, float]:
    """Kill workers at these points, with another one standing by; seconds from each death to the next record.

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
    gaps = {point: _find_gap(store, where[point], deaths[point]) for point in points}
    return {point: gap for point, gap in gaps.items() if gap is not None}


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


def _find_gap(store: PostgresStore, session: str, death: float) -> float | None:
    after: list[Record] = [record for record in records(store, session) if record.time > death]
    return after[0].time - death if after else None


async def test_a_killed_worker_is_replaced_wherever_it_was(postgres: Database, temporal: str, tmp_path: Path) -> None:
    """durable.md U1, U4: twenty points of a run; `make soak` kills at every one."""
    numbers = [*range(12), *range(13, 28, 2)]
    points = [f"{number}:{'after' if number % 3 else 'before'}" for number in numbers]
    gaps = await kill_at(points, 3, postgres, temporal, tmp_path)
    print(f"takeover: median {statistics.median(gaps.values()):.2f} s, longest {max(gaps.values()):.2f} s")
