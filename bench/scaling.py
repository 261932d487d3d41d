"""What workers cost and how they scale: `python -m bench.scaling [--sessions N] [--turns N] [--steers N]`.

Sessions of scripted tool turns on 1, 2 and 4 workers, against the same in as many processes without Temporal: each
session is made in the same PostgreSQL, with the same records and the same commits before each model call and tool call.
The ratio is of the CPU time of Steersman (workers, and the program that starts the runs and waits for them) and
PostgreSQL together; Temporal's development server is shown apart. `--sessions 0` measures only steering.

The goal is about one process as fast as it can, whatever the workers do. The same run costs more CPU time where few
run, and where more processes share the cores. How much of the ratio that is, two more ratios say, which have no goal:
the workers against processes that have as many runs a second, all together, as the workers had just before, and these
processes against one as fast as it can. Runs a second are of wall time.

All of them are measured in turn, in several rounds with a part of the sessions each, and a figure is the median of the
rounds: so what else the machine does hits all of them alike. Each begins with empty tables and after a checkpoint, so
that no one pays for what another one has left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import astuple, dataclass
from secrets import token_hex
from statistics import median, quantiles
from time import perf_counter, process_time

import psycopg
from aiohttp import ClientSession
from bench.cluster_parts import ROOT, CannotStart, Cluster, read_cpu, run_base, start_part
from bench.measure import Row, say, show

from steersman import Session
from steersman.durable import Client
from steersman.session import PostgresStore

AT_ONCE = 40
WORKERS = (1, 2, 4)
ROUNDS = 3
HOLDING = 6
_AT_PACE = "{} at the pace of {}"
MILLI = 1e3
_PATIENCE = 3600


@dataclass(frozen=True, slots=True)
class Measured:
    """What some sessions took: CPU milliseconds per run of each part, and how many a second."""

    runs: float
    records: float
    own: float
    database: float
    temporal: float = 0.0
    calling: float = 0.0

    @property
    def cpu(self) -> float:
        """What the goal is about: all of it but Temporal."""
        return self.own + self.calling + self.database


async def measure_processes(
    cluster: Cluster, processes: int, count: int, turns: int, a_second: float = 0.0
) -> Measured:
    """All sessions in so many processes, each with its part of them; so many a second, or as fast as they can.

    Without a pace they have as many sessions open at once as one process; with one, whatever it takes to keep it, as
    each worker has.
    """
    await _clear(cluster)
    before = read_cpu(cluster.database_part.pid)
    at_once = AT_ONCE if a_second else AT_ONCE // processes
    shares = [count // processes + (number < count % processes) for number in range(processes)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_run_process(cluster, share, at_once, turns, a_second / processes)) for share in shares
        ]
    seconds, cpu = max(task.result()[0] for task in tasks), sum(task.result()[1] for task in tasks)
    database = read_cpu(cluster.database_part.pid) - before
    records = await _count_records(cluster)
    return Measured(count / seconds, records / seconds, cpu / count * MILLI, database / count * MILLI)


async def _run_process(cluster: Cluster, count: int, at_once: int, turns: int, a_second: float) -> tuple[float, float]:
    """The seconds and the CPU seconds of one process."""
    words = (cluster.store, count, at_once, turns, round(a_second, 2))
    command = (sys.executable, "-m", "bench.scaling_child", *map(str, words))
    part = await start_part("one process", command, cwd=ROOT)
    try:
        seconds, cpu = json.loads((await part.wait_for("done ", seconds=_PATIENCE)).removeprefix("done "))
    finally:
        await part.end()
    return seconds, cpu


async def measure_workers(cluster: Cluster, workers: int, count: int, turns: int) -> Measured:
    """All sessions on some workers, started by this process."""
    await _clear(cluster)
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            options = ("--max-sessions", str(AT_ONCE))
            await stack.enter_async_context(cluster.run_worker("make_noter", None, *options))
        durable = await stack.enter_async_context(Client(PostgresStore(cluster.store), cluster.temporal))
        ids = [f"run-{workers}-{number}-{token_hex(4)}" for number in range(count)]
        pids = [part.pid for part in cluster.workers]
        before = _read_all(cluster, pids)
        began, cpu = perf_counter(), process_time()
        await _do_all(ids, lambda id: durable.start(id, f"Turns: {turns}"))
        outcomes: list[str] = []

        async def wait(id: str) -> None:
            outcomes.append((await durable.wait(id, timeout=_PATIENCE)).end_reason)

        await _do_all(ids, wait)
        seconds, calling = perf_counter() - began, process_time() - cpu
        own, database, temporal = (a - b for a, b in zip(_read_all(cluster, pids), before, strict=True))
    if Counter(outcomes) != {"done": count}:
        raise CannotStart(f"Runs ended like this: {Counter(outcomes)}")
    made = await _count_records(cluster)
    each = [value / count * MILLI for value in (own, database, temporal, calling)]
    return Measured(count / seconds, made / seconds, *each)


def _read_all(cluster: Cluster, workers: Sequence[int]) -> tuple[float, float, float]:
    return (
        sum(read_cpu(pid) for pid in workers),
        read_cpu(cluster.database_part.pid),
        read_cpu(cluster.temporal_part.pid),
    )


async def _do_all(ids: Sequence[str], work: Callable[[str], Awaitable[object]]) -> None:
    left = list(reversed(ids))

    async def take() -> None:
        while left:
            await work(left.pop())

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(take())


async def _count_records(cluster: Cluster) -> int:
    def ask() -> int:
        with psycopg.connect(cluster.store) as connection:
            found = connection.execute("SELECT count(*) FROM steersman_records").fetchone()
            return 0 if found is None else found[0]

    return await asyncio.to_thread(ask)


async def _clear(cluster: Cluster) -> None:
    """Empty the tables, if there are any, and write to disk what is not there yet."""

    def clear() -> None:
        with psycopg.connect(cluster.store, autocommit=True) as connection:
            if connection.execute("SELECT to_regclass('steersman_sessions')").fetchone() != (None,):
                connection.execute("TRUNCATE steersman_sessions CASCADE")
            connection.execute("CHECKPOINT")

    await asyncio.to_thread(clear)


class Ears:
    """What the runs have heard, and when: workers print it."""

    def __init__(self) -> None:
        self.heard: dict[str, list[float]] = {}
        self._changed = asyncio.Event()

    def tell(self, line: str) -> None:
        """A line of a worker."""
        kind, _, rest = line.partition(" ")
        if kind == "heard":
            time, _, text = rest.partition(" ")
            self.heard.setdefault(text, []).append(float(time))
            self._changed.set()

    async def wait_for(self, text: str) -> float:
        """When a message was heard."""
        async with asyncio.timeout(60):
            while text not in self.heard:
                self._changed.clear()
                await self._changed.wait()
        return self.heard[text][0]


async def measure_steering(cluster: Cluster, count: int) -> list[float]:
    """How long until a run on one of three workers has heard what was said to one of two servers, in milliseconds.

    Each message is sent while the run of its session is held by a tool, and must be heard exactly once.
    """
    ears, times = Ears(), list[float]()
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(cluster.run_server()) for _ in range(2)]
        for _ in range(3):
            await stack.enter_async_context(cluster.run_worker("make_listener", ears.tell))
        places = [url.partition("/?token=")[0] for url in urls]
        headers = {"Authorization": f"Bearer {urls[0].partition('=')[2]}"}
        http = await stack.enter_async_context(ClientSession(headers=headers, raise_for_status=True))
        ids: list[str] = []
        for number in range(HOLDING):
            async with http.post(f"{places[0]}/sessions", json={}) as response:
                ids.append((await response.json())["id"])
            await http.post(f"{places[0]}/sessions/{ids[-1]}/prompt", json={"content": f"begin {number}"})
            await ears.wait_for(f"begin {number}")
        for number in range(count):
            id, place, text = ids[number % HOLDING], places[number // HOLDING % 2], f"message {number}"
            began = perf_counter()
            await http.post(f"{place}/sessions/{id}/steer", json={"content": text})
            times.append((await ears.wait_for(text) - began) * MILLI)
        for id in ids:
            await http.post(f"{places[1]}/sessions/{id}/abort", json={})
            await Client(PostgresStore(cluster.store), cluster.temporal).wait(id, timeout=60)
        said = Counter(text for id in ids for text in _read_said(cluster, id))
    expected = Counter(f"begin {number}" for number in range(HOLDING))
    expected.update(f"message {number}" for number in range(count))
    if said != expected or Counter({text: len(at) for text, at in ears.heard.items()}) != expected:
        raise CannotStart(f"Not heard exactly once: {(said - expected) + (expected - said)}, {ears.heard}")
    return times


def _read_said(cluster: Cluster, id: str) -> list[str]:
    with Session.open(PostgresStore(cluster.store), id, write=False) as session:
        return [message.text for message in session.messages if message.role == "user"]


async def measure(sessions: int, turns: int, steers: int) -> list[Row]:
    """All of it; SIGTERM ends all that was started."""
    task, rows = asyncio.current_task(), list[Row]()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with run_base() as cluster:
        if sessions:
            rows += await measure_sessions(cluster, sessions, turns)
        if steers:
            say(f"Steering: {steers} messages ...")
            times = await measure_steering(cluster, steers)
            rows.append(Row("steer at any server, median", "ms", median(times), None, 100, absolute=True))
            rows.append(Row("steer at any server, 95 of 100", "ms", quantiles(times, n=20)[-1], None))
    return rows


async def measure_sessions(cluster: Cluster, sessions: int, turns: int) -> list[Row]:
    """Processes and workers; prints a table for docs/scale.md."""
    taken: defaultdict[str, list[Measured]] = defaultdict(list)
    count = -(-sessions // ROUNDS)
    for number in range(1, ROUNDS + 1):
        say(f"Round {number} of {ROUNDS}, {count} sessions of {turns} tool turns each:")
        await _measure_round(cluster, count, turns, taken)
    measured = {name: _take_median(found) for name, found in taken.items()}
    print("\n".join(_make_table(measured)), flush=True)
    rows: list[Row] = []
    one = measured[_name(1, "process")].cpu
    for count in WORKERS:
        workers, processes = _name(count, "worker"), _name(count, "process")
        paced = _AT_PACE.format(processes, workers)
        rows += [
            Row(f"{workers}: CPU a run, against 1 process as fast as it can", "ms", measured[workers].cpu, one, 1.5),
            Row(f"{workers}, against {paced}", "ms", measured[workers].cpu, measured[paced].cpu),
            Row(f"{paced}, against 1 process as fast as it can", "ms", measured[paced].cpu, one),
        ]
    return rows


async def _measure_round(cluster: Cluster, count: int, turns: int, taken: dict[str, list[Measured]]) -> None:
    def note(name: str, measured: Measured) -> None:
        taken[name].append(measured)
        say(f"  {name}: {measured.cpu:.1f} ms a run, {measured.runs:.1f} runs a second")

    for number in WORKERS:
        workers, processes = _name(number, "worker"), _name(number, "process")
        note(processes, await measure_processes(cluster, number, count, turns))
        measured = await measure_workers(cluster, number, count, turns)
        note(workers, measured)
        paced = await measure_processes(cluster, number, count, turns, measured.runs)
        note(_AT_PACE.format(processes, workers), paced)


def _name(number: int, what: str) -> str:
    plural = "es" if what.endswith("s") else "s"
    return f"{number} {what}{plural if number > 1 else ''}"


def _take_median(found: Sequence[Measured]) -> Measured:
    """The median of each figure."""
    return Measured(*(median(values) for values in zip(*map(astuple, found), strict=True)))


def _make_table(found: dict[str, Measured]) -> list[str]:
    """The lines of a Markdown table."""
    head = (
        "CPU a run, ms", "Steersman", "the program that starts the runs", "PostgreSQL", "together",
        "Temporal, development server", "runs a second", "records a second",
    )  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for name, each in found.items():
        times = (each.own, each.calling, each.database, each.cpu, each.temporal)
        rows.append([name, *(f"{time:.1f}" for time in times), f"{each.runs:.1f}", f"{each.records:.0f}"])
    return [f"| {' | '.join(cells)} |" for cells in rows]


def main() -> None:
    """Measure and show; ends with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description="What workers cost and how they scale.")
    parser.add_argument(
        "--sessions", type=int, default=1000, metavar="N", help="so many for each number of workers, in all rounds"
    )
    parser.add_argument("--turns", type=int, default=10, metavar="N", help="so many tool turns each")
    parser.add_argument("--steers", type=int, default=120, metavar="N", help="so many messages")
    given = parser.parse_args()
    try:
        rows = asyncio.run(measure(given.sessions, given.turns, given.steers))
    except* CannotStart as group:
        sys.exit("; ".join(str(error) for error in group.exceptions))
    except* (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
    show(rows)
    sys.exit(any(row.missed for row in rows))


if __name__ == "__main__":
    main()
