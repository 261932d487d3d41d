"""A cluster on this machine: `python -m bench.cluster [--demo]`, or `make cluster`.

PostgreSQL, Temporal, two servers and three workers, without a key. With `--demo` a run is started at one server and
watched at the other, its worker is killed, and another one goes on with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from aiohttp import ClientSession, ClientTimeout
from bench.cluster_agents import STEPS
from bench.cluster_parts import CannotStart, Cluster, run_cluster

from steersman import Session
from steersman.session import PostgresStore

_KILL_AT = 4


class Demo:
    """A run that is started at the first server and watched at the second, and whose worker is killed."""

    def __init__(self, cluster: Cluster, http: ClientSession) -> None:
        self._cluster, self._http = cluster, http
        self._first, self._second = (url.partition("/?token=")[0] for url in cluster.servers[:2])
        self._token = cluster.servers[0].partition("=")[2]
        self._job = f"job-{secrets.token_hex(3)}"
        self._began = perf_counter()
        self.seen: list[tuple[str, str]] = []
        self.killed: int | None = None
        self.gap: float | None = None
        self._killed_at = 0.0
        self._position = "0"

    async def run(self, *, ask: bool) -> list[str]:
        """Run it; what went wrong."""
        id = (await self._post(self._first, "/sessions", {}))["id"]
        print(f"\nThe session {id}, at the second server:\n  {self._second}/?token={self._token}#/{id}")
        if ask:
            await asyncio.to_thread(input, "Open it, and press Enter: ")
        self._began = perf_counter()
        await self._post(self._first, f"/sessions/{id}/prompt", {"content": f"Take the steps of {self._job}"})
        self._say("started at the first server, watched at the second")
        # A server cuts its watchers when the process of a run is gone: they come back, as the page does.
        while not await self._watch(id):
            self._say("the second server has ended the connection; connecting again")
        return self._judge(id)

    async def _watch(self, id: str) -> bool:
        """Watch from where it was; whether the run has ended."""
        headers = {"Authorization": f"Bearer {self._token}", "Last-Event-ID": self._position}
        async with self._http.get(f"{self._second}/sessions/{id}/events", headers=headers) as stream:
            stream.raise_for_status()
            async for line in stream.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    self._position = value
                elif name == "data" and self._follow(json.loads(value)):
                    return True
        return False

    def _follow(self, event: dict[str, Any]) -> bool:
        """Note an event of the second server, kill the worker when it is time; whether the run has ended."""
        if event["type"] == "message_end":
            message = event["message"]
            text = "".join(block.get("text", "") for block in message["content"])
            self.seen.append((message["role"], text))
            self._say(f"{message['role']}: {text}")
        elif event["type"] == "tool_execution_start":
            self._look_at_worker()
        elif event["type"] == "agent_end":
            self._say(f"the run has ended: {event['end_reason']} {event.get('detail', '')}".rstrip())
            return True
        return False

    def _look_at_worker(self) -> None:
        steps = self._read_steps()
        if not steps:
            return  # it is told before it begins
        worker = steps[-1][1]
        if self.killed is None and steps[-1][0] >= _KILL_AT:
            self.killed, self._killed_at = worker, perf_counter()
            os.killpg(worker, signal.SIGKILL)
            self._say(f"killed the worker with process {worker}, in step {steps[-1][0]}")
        elif self.killed is not None and self.gap is None:
            self.gap = perf_counter() - self._killed_at
            self._say(f"the run goes on at another worker, {self.gap:.1f} s after the kill")

    def _judge(self, id: str) -> list[str]:
        faults: list[str] = []
        begun = Counter(number for number, _ in self._read_steps())
        with Session.open(PostgresStore(self._cluster.store), id, write=False) as session:
            kept = [(message.role, message.text) for message in session.messages]
        if set(begun) != set(range(1, STEPS + 1)) or set(begun.values()) != {1}:
            faults.append(f"steps were begun so many times: {dict(begun)}")
        results = [text for role, text in kept if role == "tool_result"]
        unknown = sum(not text.startswith("Step ") for text in results)
        if len(results) != STEPS or unknown > 1 or kept[-1][1] != f"All {STEPS} steps are done.":
            faults.append(f"the session has {kept}")
        if self.seen != kept:
            faults.append(f"the second server has shown {self.seen}, and the session has {kept}")
        if self.gap is None or len({worker for _, worker in self._read_steps()}) != 2:
            faults.append("no other worker went on with the run")
        if not faults:
            print(
                f"\nThe second server has shown all {len(kept)} messages once. {STEPS} steps were begun once each; of "
                f"{unknown} that ran during the kill the model was told that the outcome is unknown."
            )
        return faults

    def _read_steps(self) -> list[tuple[int, int]]:
        """The steps that were begun, each with its process."""
        ledger: Path = self._cluster.ledger
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        words = [line.split() for line in lines]
        return [(int(number), int(pid)) for job, number, pid in words if job == self._job]

    async def _post(self, server: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self._http.post(f"{server}{path}", json=body, headers=headers) as response:
            answer = await response.json(content_type=None)
            if response.status >= 300:
                raise CannotStart(f"{path} was answered with {response.status}: {answer}")
            return answer

    def _say(self, text: str) -> None:
        print(f"{perf_counter() - self._began:6.2f} s  {text}", flush=True)


async def show_demo(cluster: Cluster, *, ask: bool) -> list[str]:
    """Run the demo against a cluster; what went wrong."""
    async with asyncio.timeout(None if ask else 120), ClientSession(timeout=ClientTimeout(total=None)) as http:
        return await Demo(cluster, http).run(ask=ask)


async def _main(given: argparse.Namespace) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    print("Starting PostgreSQL, Temporal, two servers and three workers ...", flush=True)
    async with run_cluster(2, 3, "make_stepper") as cluster:
        for number, url in enumerate(cluster.servers, 1):
            print(f"server {number}:  {url}")
        for worker in cluster.workers:
            print(f"{worker.name}:  process {worker.pid}")
        print(f"PostgreSQL: {cluster.store}\nTemporal:   {cluster.temporal}", flush=True)
        if given.demo:
            faults = await show_demo(cluster, ask=sys.stdin.isatty())
            for fault in faults:
                print(f"WRONG: {fault}", file=sys.stderr)
            return 1 if faults else 0
        print("Say something on either page, and kill -9 the worker that answers. Ctrl+C ends all of it.", flush=True)
        await asyncio.Event().wait()
    return 0


def main() -> None:
    """Start all, and end all."""
    parser = argparse.ArgumentParser(description="A cluster on this machine.")
    parser.add_argument("--demo", action="store_true", help="kill a worker and show that its run goes on")
    try:
        sys.exit(asyncio.run(_main(parser.parse_args())))
    except* CannotStart as group:
        sys.exit("; ".join(str(error) for error in group.exceptions))
    except* (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


if __name__ == "__main__":
    main()
