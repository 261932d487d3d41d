"""How fast two servers on one store are: `python -m bench.watch [--quick] [--postgres DSN]`.

A run at one server is steered and watched at the other. Steering is timed from the request to the moment the run hears
the message, in the middle of a tool; events from that moment until the other server's watcher has the record. Both are
compared with a bare floor of the same run: LISTEN/NOTIFY between two connections, or a commit and a datagram.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sqlite3
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from statistics import median
from time import perf_counter
from urllib.parse import urlsplit

from aiohttp import ClientResponse, ClientSession
from bench.measure import Row, say, show
from bench.watch_child import TOKEN

MILLI = 1e3
FULL, QUICK = 200, 30


class Child:
    """One server."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def read_heard(self) -> tuple[str, float]:
        """The next message that its run has heard, and when."""
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "heard":
                time, _, text = rest.partition(" ")
                return text, float(time)
        raise AssertionError("The server has ended.")


@asynccontextmanager
async def start(store: str) -> AsyncGenerator[Child]:
    """A server in a process of its own."""
    command = (sys.executable, "-m", "bench.watch_child", store)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = urlsplit((await process.stdout.readline()).decode().strip())
        yield Child(process, f"{address.scheme}://{address.netloc}")
    finally:
        process.kill()
        await process.wait()


async def read_messages(response: ClientResponse, seen: dict[str, asyncio.Future[float]]) -> None:
    """Note when the record of each message of the user arrives."""
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        now, event = perf_counter(), json.loads(line[6:])
        if event["type"] == "message_end" and event["message"]["role"] == "user":
            text = event["message"]["content"][0]["text"]
            if text in seen and not seen[text].done():
                seen[text].set_result(now)


async def measure(store: str, count: int) -> tuple[float, float]:
    """The medians of steering at one server and of events at it, of a run at the other, in milliseconds."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    steering: list[float] = []
    events: list[float] = []
    async with start(store) as a, start(store) as b, ClientSession(headers=headers) as http:
        async with http.post(f"{a.url}/sessions", json={}) as response:
            id = (await response.json())["id"]
        async with http.post(f"{a.url}/sessions/{id}/prompt", json={"content": "begin"}) as response:
            assert response.status == 202
        await a.read_heard()
        seen: dict[str, asyncio.Future[float]] = {}
        async with http.get(f"{b.url}/sessions/{id}/events") as stream:
            reading = asyncio.ensure_future(read_messages(stream, seen))
            for number in range(count + 3):
                text = f"message {number}"
                seen[text] = asyncio.get_running_loop().create_future()
                began = perf_counter()
                async with http.post(f"{b.url}/sessions/{id}/steer", json={"content": text}) as response:
                    assert response.status == 202, await response.text()
                heard, at = await a.read_heard()
                assert heard == text, f"Expected {text!r}, got {heard!r}."
                arrived = await seen[text]
                if number >= 3:  # the first ones open connections
                    steering.append((at - began) * MILLI)
                    events.append((arrived - at) * MILLI)
            reading.cancel()
    return median(steering), median(events)


def time_notify(dsn: str, count: int) -> float:
    """The median of a bare LISTEN/NOTIFY from one connection to another, in milliseconds."""
    import psycopg

    times: list[float] = []
    with psycopg.connect(dsn, autocommit=True) as sender, psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("LISTEN bench_watch")
        for number in range(count):
            began = perf_counter()
            sender.execute("SELECT pg_notify('bench_watch', %s)", (str(number),))
            for _ in listener.notifies(timeout=10, stop_after=1):
                pass
            times.append((perf_counter() - began) * MILLI)
    return median(times)


def time_commit(folder: Path, count: int) -> float:
    """The median of a commit with a sync, and of a datagram to a socket, in milliseconds."""
    times: list[float] = []
    with (
        closing(sqlite3.connect(folder / "floor.db", isolation_level=None)) as connection,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        listener.bind(str(folder / "floor.socket"))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE queue (data BLOB)")
        for _ in range(count):
            began = perf_counter()
            connection.execute("INSERT INTO queue VALUES (?)", (b"x" * 200,))
            sender.sendto(b"x", str(folder / "floor.socket"))
            listener.recv(16)
            times.append((perf_counter() - began) * MILLI)
    return median(times)


def compare(name: str, store: str, time_floor: Callable[[], float], count: int) -> list[Row]:
    """The lines of one store."""
    say(f"{name}: {count} messages ...")
    before = time_floor()
    steering, events = asyncio.run(measure(store, count))
    floor = median([before, time_floor()])
    return [
        Row(f"{name}: steer at another server", "ms", steering, floor),
        Row(f"{name}: event to another server", "ms", events, floor),
    ]


def main() -> None:
    """Measure, and show; nothing here has a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer messages")
    parser.add_argument("--postgres", metavar="DSN", help="measure on this database as well")
    given = parser.parse_args()
    count = QUICK if given.quick else FULL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = compare("SQLite", str(folder / "sessions.db"), lambda: time_commit(_make(folder), count), count)
    if given.postgres:
        rows += compare("PostgreSQL", given.postgres, lambda: time_notify(given.postgres, count), count)
    show(rows)


def _make(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


if __name__ == "__main__":
    main()
