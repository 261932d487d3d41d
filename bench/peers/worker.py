"""Runs in the virtualenv of a peer and measures jobs: `python -m bench.peers.worker PEER PROTOCOL URL`.

It reads a command a line as JSON on stdin, and answers with a line of JSON on stdout. A job that comes out wrong is an
error and no measurement.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.peers import jobs

Figures = dict[str, Any]
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_RUNS = 50


def read_rss() -> int:
    """The resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE


class Worker:
    """One peer and protocol."""

    def __init__(self, peer: str, protocol: str, url: str) -> None:
        began = time.process_time()
        self._peer = importlib.import_module(f"bench.peers.adapters.{peer}")
        self.import_seconds = time.process_time() - began
        self._runner = asyncio.Runner()
        self._shared = self._runner.run(self._connect(protocol, url))

    async def _connect(self, protocol: str, url: str) -> Any:
        return self._peer.connect(protocol, url)

    def run(self, model: str, agents: int = 1, at_least: float = 0.0) -> Figures:
        """Run a job, again until it has used so many seconds of CPU; the means of one job."""
        gc.collect()
        found: list[Figures] = []
        while not found or (sum(one["cpu"] for one in found) < at_least and len(found) < _MOST_RUNS):
            found.append(self._runner.run(self._play(model, agents)))
        return {**found[-1], "cpu": sum(one["cpu"] for one in found) / len(found)}

    def grow(self, model: str) -> Figures:
        """The CPU clock at each tool call of a long run: what lies between two is one turn."""
        jobs.State.marks = []
        try:
            return {**self.run(model), "marks": jobs.State.marks}
        finally:
            jobs.State.marks = None

    def measure_heap(self, model: str, agents: int) -> Figures:
        """The peak of the Python heap while agents run; too slow to be timed."""
        import tracemalloc

        gc.collect()
        tracemalloc.start()
        try:
            self._runner.run(self._play(model, agents))
            return {"peak": tracemalloc.get_traced_memory()[1]}
        finally:
            tracemalloc.stop()

    def make(self, model: str, count: int = 200) -> Figures:
        """The CPU seconds of making an agent, after the first one."""
        return self._runner.run(self._make(model, count))

    async def _make(self, model: str, count: int) -> Figures:
        self._peer.make_agent(self._shared, model)
        began = time.process_time()
        for _ in range(count):
            self._peer.make_agent(self._shared, model)
        return {"cpu": (time.process_time() - began) / count}

    async def _play(self, model: str, count: int) -> Figures:
        script = jobs.parse_script(model)
        texts: list[list[str]] = [[] for _ in range(count)]
        made = [self._peer.make_agent(self._shared, model)] if count == 1 else []

        async def play_one(number: int) -> object:
            agent = made[number] if made else self._peer.make_agent(self._shared, model)
            return await self._peer.run(agent, jobs.PROMPT, texts[number].append)

        jobs.reset(delay=script["s"] / 1000)
        began = time.process_time()
        results = [await play_one(0)] if made else await asyncio.gather(*map(play_one, range(count)))
        await asyncio.sleep(0.005)  # deferred work, such as logging, is a part of it
        cpu = time.process_time() - began
        _check_results(script, results, texts)
        return {"cpu": cpu, "at_once": jobs.State.most_running, "rss": read_rss()}


def _check_results(script: dict[str, int], results: list[object], texts: list[list[str]]) -> None:
    final, whole = jobs.build_final_text(script).strip(), jobs.build_whole_text(script)
    for result, text in zip(results, texts, strict=True):
        if final not in str(result):
            raise AssertionError(f"The last text is {str(result)[:200]!r}, expected {final[:40]!r}.")
        if "".join(text).replace("\n", "") != whole:
            raise AssertionError(f"The streamed text is not the server's: {''.join(text)[:200]!r}.")
    calls = script["t"] * script["k"] * len(results)
    if jobs.State.calls != calls:
        raise AssertionError(f"Tools were called {jobs.State.calls} times, expected {calls}.")


def main() -> None:
    """Answer commands until stdin is closed."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints goes to stderr
    worker = Worker(*sys.argv[1:])
    operations: dict[str, Callable[..., Figures]] = {
        "run": worker.run,
        "grow": worker.grow,
        "make": worker.make,
        "heap": worker.measure_heap,
    }
    print(json.dumps({"import_cpu": worker.import_seconds}), file=out, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer: Figures = {"ok": True, **operations[command.pop("operation")](**command)}
        except BaseException as error:  # noqa: BLE001  # a job that failed is reported, and never timed
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"[:600]}
        print(json.dumps(answer), file=out, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
