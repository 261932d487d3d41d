"""What watchers cost the server, against bare aiohttp.web doing the same fan-out: `python -m bench.serve [--quick]`.

Each side is a process of its own, and CPU and memory are those of that process. The watchers are in this process, and
count what arrives. Exits with 1 when a goal is missed or an event is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from bench.measure import Row, say, show
from bench.serve_child import TOKEN

END = b'"type":"agent_end"'
DELTA = b'"type":"text_delta"'
MILLI = 1e3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many watch how much, how often."""

    watchers: int
    events: int
    pace: float
    rounds: int
    size: int = 5


FULL = Sizes(watchers=2_000, events=200, pace=0.005, rounds=3)
QUICK = Sizes(watchers=400, events=200, pace=0.005, rounds=1)


@dataclass(slots=True)
class Watcher(asyncio.Protocol):
    """Counts the deltas of one stream; `times` has when each arrived, for the first watcher only."""

    request: bytes
    done: asyncio.Future[int]
    times: list[float] | None = None
    reads: bool = True
    deltas: int = 0
    tail: bytes = b""
    transport: Any = field(default=None)

    def connection_made(self, transport: Any) -> None:
        """Ask for the events."""
        self.transport = transport
        transport.write(self.request)
        if not self.reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Count what came."""
        joined = self.tail + data
        found = joined.count(DELTA) - self.tail.count(DELTA)
        self.deltas += found
        if self.times is not None:
            self.times += [perf_counter()] * found
        if END in joined and not self.done.done():
            self.done.set_result(self.deltas)
        self.tail = joined[-24:]

    def connection_lost(self, exc: Exception | None) -> None:
        """The server went away."""
        if not self.done.done():
            self.done.set_result(self.deltas)


async def measure(kind: str, sizes: Sizes, *, sleepers: int = 0) -> dict[str, Any]:
    """One round: start the server, let all watch, and collect what it cost."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.serve_child", kind, str(sizes.events), str(sizes.pace), str(sizes.size)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    url = urlsplit((await child.stdout.readline()).decode().strip())
    head = f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    watchers = await connect(url.port or 0, head.encode(), sizes.watchers, sleepers)
    child.stdin.write(b"go\n")
    readers = [watcher for watcher in watchers if watcher.reads]
    deltas = [await watcher.done for watcher in readers]
    child.stdin.write(b"report\n")
    report = json.loads(await child.stdout.readline())
    for watcher in watchers:
        watcher.transport.abort()
    child.stdin.close()
    await child.wait()
    if set(deltas) != {sizes.events}:
        raise SystemExit(f"{kind}: events were lost: {min(deltas)} to {max(deltas)} of {sizes.events} arrived.")
    times = readers[0].times or []
    told = report.pop("told")[-sizes.events :]
    lag = median(came - was for came, was in zip(times, told, strict=False)) if told else 0.0
    return {**report, "lag": lag}


async def connect(port: int, request: bytes, count: int, sleepers: int) -> Sequence[Watcher]:
    """So many watchers; the last ones never read."""
    loop = asyncio.get_running_loop()
    found: list[Watcher] = []
    for number in range(count + sleepers):
        watcher = Watcher(request, loop.create_future(), [] if number == 0 else None, reads=number < count)
        await loop.create_connection(lambda watcher=watcher: watcher, "127.0.0.1", port)
        found.append(watcher)
    # The streams have begun once their heads are there; one more request would tell no more than a short wait.
    await asyncio.sleep(0.5)
    return found


def judge(sizes: Sizes) -> list[Row]:
    """The rows of the table."""
    ours: list[dict[str, Any]] = []
    floor: list[dict[str, Any]] = []
    for number in range(sizes.rounds):
        say(f"  {sizes.watchers:,} watchers x {sizes.events} events, round {number + 1}")
        ours.append(asyncio.run(measure("steersman", sizes)))
        floor.append(asyncio.run(measure("floor", sizes)))
    cpu = [median(one["cpu"] for one in side) for side in (ours, floor)]
    memory = [median(one["memory"] for one in side) for side in (ours, floor)]
    lag = [median(one["lag"] for one in side) * MILLI for side in (ours, floor)]
    return [
        Row(f"{sizes.watchers:,} watchers x {sizes.events} events", "s CPU", cpu[0], cpu[1], 1.3),
        Row("memory of the server", "MiB", memory[0], memory[1], 100, absolute=True),
        Row("an event later than in process", "ms", lag[0], lag[1]),
        *judge_few(sizes),
    ]


def judge_few(sizes: Sizes) -> list[Row]:
    """How late an event reaches one watcher, and what one costs that never reads."""
    few = Sizes(watchers=1, events=sizes.events, pace=sizes.pace, rounds=1)
    say("  one watcher; one that never reads")
    alone = asyncio.run(measure("steersman", few))
    much = Sizes(watchers=1, events=4_000, pace=0, rounds=1, size=10_000)
    awake, asleep = asyncio.run(measure("steersman", much)), asyncio.run(measure("steersman", much, sleepers=1))
    return [
        Row("an event later than in process, one watcher", "ms", alone["lag"] * MILLI, None, 5, absolute=True),
        Row(
            "a watcher that never reads 40 MB",
            "MiB",
            max(0.0, asleep["memory"] - awake["memory"]),
            None,
            16,
            absolute=True,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> bool:
    """Measure and print; returns whether a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer watchers, one round")
    found = parser.parse_args(arguments)
    rows = judge(QUICK if found.quick else FULL)
    show(rows)
    return any(row.missed for row in rows)


if __name__ == "__main__":
    sys.exit(main())
