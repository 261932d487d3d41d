"""Counts instructions where clocks cannot be trusted: python -m bench.instructions [--protocols chat] [--figures delta]

A busy machine changes times, but not how many instructions a job takes. Each job runs once in a fresh interpreter under
`valgrind --tool=cachegrind`, and a figure is the difference of a long job and a short one. What the kernel does is not
counted.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

from bench.peers import jobs
from bench.peers.figures import ROOT, start_server

_SHORT = "bench-t1-d1-k1"
FIGURES = {
    "turn": ("bench-t10-d1-k1", "bench-t110-d1-k1", 100),
    "delta": (_SHORT, "bench-t1-d2001-k1", 4000),
    "argument": (_SHORT, "bench-t1-d1-k1-a4000", 4000),
    "call": ("bench-t10-d1-k1", "bench-t10-d1-k10", 90),
}
"""The short job, the long one, and how many units it has more."""

PEERS = ("floor", "ours")
PROTOCOLS = ("chat", "messages", "responses", "gemini")
_COUNT = re.compile(r"I\s+refs:\s+([\d,]+)")


_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def run(*arguments: str, bytecode: str, under: Sequence[str] = ()) -> str:
    """Do a job in a fresh interpreter; returns what it wrote to stderr."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT}:{ROOT}/src"}
    environment |= {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    command = [*under, sys.executable, "-m", "bench.instructions", "--play", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {ran.stderr[-2000:]}")
    return ran.stderr


def count(*arguments: str, bytecode: str) -> int:
    """The instructions of a fresh interpreter that does a job."""
    found = _COUNT.search(run(*arguments, bytecode=bytecode, under=_VALGRIND))
    assert found is not None
    return int(found[1].replace(",", ""))


async def play(peer: str, protocol: str, url: str, model: str) -> None:
    """Do a job once; raises if its answer is wrong."""
    adapter = importlib.import_module(f"bench.peers.adapters.{peer}")
    agent = adapter.make_agent(adapter.connect(protocol, url), model)
    said: list[str] = []
    text = await adapter.run(agent, jobs.PROMPT, said.append)
    script = jobs.parse_script(model)
    # What is counted should be the agent's, so the text is not built for a comparison.
    assert text.startswith("FINAL"), text
    assert len(said) == script["d"] * (script["t"] + 1), len(said)


def compare(protocols: list[str], figures: list[str], processes: int) -> None:
    """Print each figure of the floor and of Steersman."""
    models = {model for figure in figures for model in FIGURES[figure][:2]}
    with start_server() as url, TemporaryDirectory() as bytecode, ThreadPoolExecutor(processes) as pool:
        for protocol in protocols:
            for peer in PEERS:
                run(peer, protocol, url, _SHORT, bytecode=bytecode)  # compiles what a job imports
        running = {
            (peer, protocol, model): pool.submit(count, peer, protocol, url, model, bytecode=bytecode)
            for protocol in protocols
            for peer in PEERS
            for model in sorted(models)
        }
        print(f"{'':20} {'floor':>10} {'ours':>10}   ratio")
        for protocol in protocols:
            for figure in figures:
                short, long, units = FIGURES[figure]
                floor, ours = (
                    (running[peer, protocol, long].result() - running[peer, protocol, short].result()) / units
                    for peer in PEERS
                )
                print(f"{protocol + ' ' + figure:20} {floor:10,.0f} {ours:10,.0f} {ours / floor:7.2f}", flush=True)


def main() -> None:
    """Compare, or do one job under valgrind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocols", type=lambda text: text.split(","), default=list(PROTOCOLS))
    parser.add_argument("--figures", type=lambda text: text.split(","), default=list(FIGURES))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--play", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        asyncio.run(play(*options.play))
    else:
        compare(options.protocols, options.figures, options.processes)


if __name__ == "__main__":
    main()
