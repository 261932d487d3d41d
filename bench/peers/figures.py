"""The figures of the comparison: each is measured by a few jobs of one worker."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
_ENOUGH = 0.1
"""A short job is repeated until it has used so many seconds of CPU."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long the jobs are."""

    turns: int = 50
    deltas: int = 1000
    paced: int = 300
    fragments: int = 2000
    agents: int = 200
    crowd: int = 500
    growth: int = 400
    rounds: int = 3


QUICK = Sizes(turns=30, deltas=300, paced=150, fragments=500, agents=50, crowd=100, growth=100)


def pin(core: int) -> list[str]:
    """The start of a command that stays on a core, if there are two and the program for it."""
    return ["taskset", "-c", str(core)] if (os.cpu_count() or 1) > 1 and shutil.which("taskset") else []


@contextmanager
def start_server() -> Generator[str]:
    """The mock server in a process of its own, on the last core; gives its address."""
    command = [*pin((os.cpu_count() or 1) - 1), sys.executable, "-m", "bench.peers.server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


class Process:
    """A child that answers lines of JSON on the first core."""

    def __init__(self, python: str, peer: str, protocol: str, url: str) -> None:
        self.key = f"{peer}/{protocol}"
        self._again = (python, peer, protocol, url)
        command = [*pin(0), python, "-m", "bench.peers.worker", peer, protocol, url]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/src", "DO_NOT_TRACK": "1", "OPENAI_API_KEY": "none"}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        self.started = self._read()

    def copy(self) -> Process:
        """A fresh process of the same kind."""
        return Process(*self._again)

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Do one operation; `RuntimeError` for a job that came out wrong."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"operation": operation, **arguments}) + "\n")
        self._child.stdin.flush()
        answer = self._read()
        if not answer.pop("ok"):
            raise RuntimeError(f"{self.key}: {answer['error']}")
        return answer

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.key}: the worker has ended.")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()


Figure = Callable[[Process, Sizes], dict[str, float]]


def validate(worker: Process) -> None:
    """Run small jobs whose every request the server checks."""
    worker.call("run", model="bench-t3-d3-k2-c1")
    worker.call("run", model="bench-t1-d2-k1-a20-c1")


def measure_turn(worker: Process, sizes: Sizes) -> dict[str, float]:
    """A turn with one delta and one tool call."""
    cpu = worker.call("run", model=f"bench-t{sizes.turns}-d1-k1", at_least=_ENOUGH)["cpu"]
    return {"turn": 1e6 * cpu / (sizes.turns + 1)}


def measure_delta(worker: Process, sizes: Sizes) -> dict[str, float]:
    """A text delta, in an answer that comes in one write."""
    cpu = _subtract_short(worker, f"bench-t1-d{sizes.deltas}-k1", at_least=_ENOUGH)
    return {"delta": 1e6 * cpu / (2 * sizes.deltas - 2)}


def measure_paced(worker: Process, sizes: Sizes) -> dict[str, float]:
    """A text delta that comes alone, 1 ms after the one before."""
    return {"paced": 1e6 * _subtract_short(worker, f"bench-t1-d{sizes.paced}-k1-p1") / (2 * sizes.paced - 2)}


def measure_arguments(worker: Process, sizes: Sizes) -> dict[str, float]:
    """A fragment of the argument of a tool call."""
    cpu = _subtract_short(worker, f"bench-t1-d1-k1-a{sizes.fragments}", at_least=_ENOUGH)
    return {"argument": 1e6 * cpu / sizes.fragments}


def _subtract_short(worker: Process, model: str, **arguments: Any) -> float:
    short = worker.call("run", model="bench-t1-d1-k1", at_least=_ENOUGH / 4)["cpu"]
    return worker.call("run", model=model, **arguments)["cpu"] - short


def measure_call(worker: Process, sizes: Sizes) -> dict[str, float]:
    """One more tool call in a turn that has some."""
    one = worker.call("run", model="bench-t10-d1-k1", at_least=_ENOUGH)["cpu"]
    ten = worker.call("run", model="bench-t10-d1-k10", at_least=_ENOUGH)["cpu"]
    return {"call": 1e6 * (ten - one) / 90}


def measure_growth(worker: Process, sizes: Sizes) -> dict[str, float]:
    """The turns around the 10th and the last one of a long run."""
    worker.call("run", model="bench-t20-d1-k1")
    runs = [worker.call("grow", model=f"bench-t{sizes.growth}-d1-k1")["marks"] for _ in range(3)]
    found: dict[str, float] = {}
    for name, first, last in (("turn 10", 1, 20), ("last turn", sizes.growth - 20, sizes.growth - 1)):
        found[name] = statistics.median(1e6 * (marks[last] - marks[first]) / (last - first) for marks in runs)
    return found


def measure_agent(worker: Process, sizes: Sizes) -> dict[str, float]:
    """Making an agent with two tools, after the first one."""
    return {"agent": 1e6 * worker.call("make", model="bench-t1-d1-k1")["cpu"]}


def measure_crowd(worker: Process, sizes: Sizes) -> dict[str, float]:
    """Many agents at once, 4 requests each, 100 deltas a second; the CPU of each, in processes of their own."""
    found: dict[str, float] = {}
    for count in (sizes.agents, sizes.crowd):
        with worker.copy() as fresh:
            fresh.call("run", model="bench-t1-d2-k1")
            found[f"{count} agents"] = 1e6 * fresh.call("run", model="bench-t3-d20-k1-p10", agents=count)["cpu"] / count
    return found


def measure_heap(worker: Process, sizes: Sizes) -> dict[str, float]:
    """The peak of the Python heap for each of 25 agents that stream at once."""
    with worker.copy() as fresh:
        fresh.call("run", model="bench-t1-d2-k1")
        return {"heap KiB": fresh.call("heap", model="bench-t3-d20-k1-p10", agents=25)["peak"] / 25 / 1024}


FIGURES: dict[str, Figure] = {
    "turn": measure_turn,
    "delta": measure_delta,
    "paced": measure_paced,
    "argument": measure_arguments,
    "call": measure_call,
    "growth": measure_growth,
    "agent": measure_agent,
    "crowd": measure_crowd,
    "heap": measure_heap,
}
