"""Compares Steersman with a hand-written loop and with other libraries: python -m bench.peers [--floor] [--peers ...]

All take turns, round by round, so that noise meets all alike. Read the ratios: they are medians over the rounds.
Virtualenvs of the other libraries are made under `.bench/` when first needed. With `--floor` only Steersman and the
hand-written loop are measured, in all protocols and figures, which takes some four minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.peers.figures import FIGURES, QUICK, ROOT, Process, Sizes, start_server, validate
from bench.peers.results import FLOOR, OURS, UNITS, Samples, judge, make_results, save, write_tables, write_verdicts

PROTOCOLS = ("chat", "messages", "responses", "gemini")
PACKAGES = {
    "pydantic_ai": ["pydantic-ai-slim[openai,anthropic]"],
    "openai_agents": ["openai-agents"],
    "tinyagent": ["tiny-agent-os"],
}
"""What other libraries need; the floor and Steersman run in this virtualenv."""

SPOKEN = {"pydantic_ai": ("chat", "messages"), "openai_agents": ("chat",), "tinyagent": ("chat",)}
RESULTS = ROOT / ".bench" / "results"
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def find_python(peer: str) -> str:
    """The interpreter of a peer; its virtualenv is made if need be."""
    if peer not in PACKAGES:
        return sys.executable
    folder = ROOT / ".bench" / f"{peer}-{_VERSION}"
    python = str(folder / "bin" / "python")
    if not (folder / ".ready").exists():
        print(f"Setting up {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "msgspec", *PACKAGES[peer]], check=True)
        (folder / ".ready").touch()
    return python


def find_version(peer: str) -> str:
    """The version of the package of a peer, asked in its virtualenv."""
    name = PACKAGES[peer][0].partition("[")[0]
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return subprocess.run([find_python(peer), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def measure(peers: Sequence[str], protocols: Sequence[str], figures: Sequence[str], sizes: Sizes) -> Samples:
    """Measure every figure of every peer and protocol, round by round."""
    samples: Samples = {}
    with ExitStack() as stack:
        url = stack.enter_context(start_server())
        workers = [
            stack.enter_context(Process(find_python(peer), peer, protocol, url))
            for protocol in protocols
            for peer in peers
            if protocol in SPOKEN.get(peer, PROTOCOLS)
        ]
        for worker in workers:
            validate(worker)
        for name in figures:
            for number in range(1 if name == "heap" else sizes.rounds):  # the heap is the same in every round
                # Another one begins in each round.
                for worker in workers[number % len(workers) :] + workers[: number % len(workers)]:
                    for figure, value in FIGURES[name](worker, sizes).items():
                        samples.setdefault(worker.key, {}).setdefault(figure, []).append(value)
            print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr)
    return samples


def parse_names(known: Any) -> Any:
    """A parser of comma-separated names."""

    def parse(text: str) -> list[str]:
        for name in (chosen := text.split(",")):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(known)}")
        return chosen

    return parse


def parse_arguments() -> argparse.Namespace:
    """The options of the command."""
    peers = (FLOOR, OURS, *PACKAGES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=parse_names(peers), default=list(peers))
    parser.add_argument("--figures", type=parse_names(FIGURES), default=list(FIGURES))
    parser.add_argument("--protocols", type=parse_names(PROTOCOLS), default=list(PROTOCOLS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="shorter jobs, for a first look")
    parser.add_argument("--floor", action="store_true", help="only Steersman and the hand-written loop")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="where to keep the results; below .bench/results if left out"
    )
    return parser.parse_args()


def main() -> int:
    """Measure, print the tables and the verdicts, keep the results; 1 if a goal is missed."""
    options = parse_arguments()
    peers = [FLOOR, OURS] if options.floor else options.peers
    sizes = QUICK if options.quick else Sizes()
    if options.rounds:
        sizes = replace(sizes, rounds=options.rounds)
    samples = measure(peers, options.protocols, options.figures, sizes)
    results = make_results(samples, sizes.rounds, {peer: find_version(peer) for peer in peers if peer in PACKAGES})
    name = f"{'floor' if peers == [FLOOR, OURS] else 'peers'}-{_VERSION}.json"
    save(results, options.save or RESULTS / name)
    verdicts = list(judge(results))
    print(results.describe(), UNITS, "", write_tables(results), sep="\n")
    print("", write_verdicts(verdicts), sep="\n")
    return 0 if all(verdict.is_met for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
