"""Compares Steersman with a hand-written loop and with other libraries: python -m bench.peers [--quick] [--peers ...]

All take turns, round by round, so that noise meets all alike. Read the ratios: they are medians over the rounds.
Virtualenvs of the other libraries are made under `.bench/` when first needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

from bench.peers.figures import FIGURES, QUICK, ROOT, Process, Sizes, start_server, validate

FLOOR = "floor"
PROTOCOLS = ("chat", "messages", "responses", "gemini")
PACKAGES = {
    "pydantic_ai": ["pydantic-ai-slim[openai,anthropic]"],
    "openai_agents": ["openai-agents"],
    "tinyagent": ["tiny-agent-os"],
}
"""What other libraries need; the floor and Steersman run in this virtualenv."""

SPOKEN = {"pydantic_ai": ("chat", "messages"), "openai_agents": ("chat",), "tinyagent": ("chat",)}
Samples = dict[str, dict[str, list[float]]]


def find_python(peer: str) -> str:
    """The interpreter of a peer; its virtualenv is made if need be."""
    if peer not in PACKAGES:
        return sys.executable
    folder = ROOT / ".bench" / f"{peer}-{sys.version_info.major}.{sys.version_info.minor}"
    python = str(folder / "bin" / "python")
    if not (folder / ".ready").exists():
        print(f"Setting up {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "msgspec", *PACKAGES[peer]], check=True)
        (folder / ".ready").touch()
    return python


def measure(options: argparse.Namespace) -> Samples:
    """Measure every figure of every peer and protocol, round by round."""
    sizes = QUICK if options.quick else Sizes()
    samples: Samples = {}
    with ExitStack() as stack:
        url = stack.enter_context(start_server())
        workers = [
            stack.enter_context(Process(find_python(peer), peer, protocol, url))
            for protocol in options.protocols
            for peer in options.peers
            if protocol in SPOKEN.get(peer, PROTOCOLS)
        ]
        for worker in workers:
            validate(worker)
        for name in options.figures:
            for number in range(options.rounds):
                # Another one begins in each round.
                for worker in workers[number % len(workers) :] + workers[: number % len(workers)]:
                    for figure, value in FIGURES[name](worker, sizes).items():
                        samples.setdefault(worker.key, {}).setdefault(figure, []).append(value)
            print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr)
    return samples


def write_report(samples: Samples) -> str:
    """The medians, and the ratios to the floor of the same protocol, as tables."""
    lines = [describe_machine()]
    for protocol in dict.fromkeys(key.partition("/")[2] for key in samples):
        rows = {key.partition("/")[0]: found for key, found in samples.items() if key.endswith(f"/{protocol}")}
        figures = list(next(iter(rows.values())))
        lines += ["", f"| {protocol} | {' | '.join(figures)} |", "|---" * (len(figures) + 1) + "|"]
        for peer, found in rows.items():
            lines.append(f"| {peer} | {' | '.join(_write_cell(rows, peer, figure) for figure in found)} |")
    return "\n".join(lines)


def _write_cell(rows: dict[str, dict[str, list[float]]], peer: str, figure: str) -> str:
    middle = statistics.median(rows[peer][figure])
    text = f"{middle:,.0f}" if middle >= 100 else f"{middle:.1f}"
    if peer == FLOOR or FLOOR not in rows:
        return text
    pairs = zip(rows[peer][figure], rows[FLOOR][figure], strict=True)
    return f"{text} (**{statistics.median(mine / floor for mine, floor in pairs):.2f}x**)"


def describe_machine() -> str:
    """The date, the versions and the machine."""
    names = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "msgspec"))
    return (
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {names}; {os.cpu_count()} CPUs, "
        f"{platform.machine()}, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}. "
        "Microseconds of CPU, unless a column says otherwise."
    )


def parse_names(known: Any) -> Any:
    """A parser of comma-separated names."""

    def parse(text: str) -> list[str]:
        for name in (chosen := text.split(",")):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(known)}")
        return chosen

    return parse


def main() -> None:
    """Measure and print the tables."""
    peers = (FLOOR, "ours", *PACKAGES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=parse_names(peers), default=list(peers))
    parser.add_argument("--figures", type=parse_names(FIGURES), default=list(FIGURES))
    parser.add_argument("--protocols", type=parse_names(PROTOCOLS), default=list(PROTOCOLS))
    parser.add_argument("--rounds", type=int, help="5, or 3 if quick")
    parser.add_argument("--quick", action="store_true", help="shorter jobs, and only Steersman and the floor")
    parser.add_argument("--json", help="write all samples to this file")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 5)
    if options.quick and options.peers == list(peers):
        options.peers = [FLOOR, "ours"]
    samples = measure(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(samples, file)
    print(write_report(samples))


if __name__ == "__main__":
    main()
