"""What was measured, and what it says: ratios to the floor, and whether a goal is met."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

FLOOR, OURS = "floor", "ours"
Samples = dict[str, dict[str, list[float]]]
"""By peer and protocol, as `floor/chat`, and by figure: a number for each round."""

RATIOS = {
    "turn": 1.3,
    "delta": 1.3,
    "paced": 1.3,
    "argument": 1.3,
    "call": 1.5,
    "turn 10": 1.3,
    "200 agents": 1.3,
    "500 agents": 1.3,
    "heap KiB": 2.0,
}
"""The most a figure may be, as a ratio to the floor."""

UNITS = "Microseconds of CPU, unless a column says otherwise."

LAST_TURN = 1.05
"""The most that the last turn of a long run may cost, as a ratio to the 10th of the same run."""

AGENT = 50.0
"""The most microseconds that another agent with the same tools may take."""


@dataclass(frozen=True, slots=True)
class Results:
    """The samples of one call of `bench.peers`, and where they come from."""

    date: str
    python: str
    versions: dict[str, str]
    machine: str
    load: float
    rounds: int
    samples: Samples

    @property
    def peers(self) -> list[str]:
        """Those measured, in their order."""
        return list(dict.fromkeys(key.partition("/")[0] for key in self.samples))

    @property
    def protocols(self) -> list[str]:
        """Those measured, in their order."""
        return list(dict.fromkeys(key.partition("/")[2] for key in self.samples))

    @property
    def figures(self) -> list[str]:
        """Those measured, in their order."""
        return list(dict.fromkeys(name for found in self.samples.values() for name in found))

    def find_median(self, peer: str, protocol: str, figure: str) -> float | None:
        """The median over the rounds."""
        found = self.samples.get(f"{peer}/{protocol}", {}).get(figure)
        return statistics.median(found) if found else None

    def compute_ratio(self, peer: str, protocol: str, figure: str) -> float | None:
        """The median of the ratios to the floor in the same round; `None` if there is nothing to compare."""
        mine = self.samples.get(f"{peer}/{protocol}", {}).get(figure)
        floor = self.samples.get(f"{FLOOR}/{protocol}", {}).get(figure)
        if not mine or not floor or (protocol == "gemini" and figure == "argument"):
            return None  # Gemini sends arguments whole: there are no fragments
        return statistics.median(one / other for one, other in zip(mine, floor, strict=True) if other > 0)

    def describe(self) -> str:
        """The date, the versions and the machine."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        where = f"{self.machine}, load {self.load:.1f}"
        return f"{self.date}, Python {self.python}, {versions}; {where}; {self.rounds} rounds."


def describe_machine() -> str:
    """How many processors, and which system."""
    return f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()} {platform.release()}"


def make_results(samples: Samples, rounds: int, versions: dict[str, str]) -> Results:
    """The samples with the date, the versions and the machine."""
    known = {name: version(name) for name in ("aiohttp", "msgspec")}
    date, python = time.strftime("%Y-%m-%d"), platform.python_version()
    return Results(date, python, known | versions, describe_machine(), os.getloadavg()[0], rounds, samples)


def save(results: Results, file: Path) -> None:
    """Write the results as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(results)) + "\n")


def load(file: Path) -> Results:
    """Read what `save` wrote."""
    return Results(**json.loads(file.read_text()))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, what was measured, and how much is allowed."""

    protocol: str
    figure: str
    measured: float
    most: float
    unit: str = "x"

    @property
    def is_met(self) -> bool:
        """Whether it is not more than what is allowed."""
        return self.measured <= self.most


def judge(results: Results) -> Iterable[Verdict]:
    """Compare Steersman with every goal that was measured."""
    for protocol in results.protocols:
        for figure in results.figures:
            ratio = results.compute_ratio(OURS, protocol, figure)
            if ratio is not None and figure in RATIOS:
                yield Verdict(protocol, figure, ratio, RATIOS[figure])
        early, late = (results.find_median(OURS, protocol, figure) for figure in ("turn 10", "last turn"))
        if early is not None and late is not None:
            yield Verdict(protocol, "last turn to turn 10", late / early, LAST_TURN)
        made = results.find_median(OURS, protocol, "agent")
        if made is not None:
            yield Verdict(protocol, "agent", made, AGENT, " us")


def write_verdicts(verdicts: Iterable[Verdict]) -> str:
    """A line for each goal."""
    return "\n".join(
        f"{'met   ' if one.is_met else 'MISSED'} {one.protocol:10} {one.figure:22} "
        f"{one.measured:6.2f}{one.unit} of at most {one.most:g}{one.unit}"
        for one in verdicts
    )


def write_tables(results: Results) -> str:
    """The medians, and the ratios to the floor, as a table for each protocol."""
    lines: list[str] = []
    for protocol in results.protocols:
        peers = [peer for peer in results.peers if f"{peer}/{protocol}" in results.samples]
        lines += ["", f"| {protocol} | {' | '.join(results.figures)} |", "|---" * (len(results.figures) + 1) + "|"]
        for peer in peers:
            cells = (_write_cell(results, peer, protocol, figure) for figure in results.figures)
            lines.append(f"| {peer} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


def _write_cell(results: Results, peer: str, protocol: str, figure: str) -> str:
    middle = results.find_median(peer, protocol, figure)
    if middle is None:
        return ""
    text = f"{middle:,.0f}" if middle >= 100 else f"{middle:.1f}"
    ratio = None if peer == FLOOR else results.compute_ratio(peer, protocol, figure)
    return text if ratio is None else f"{text} (**{ratio:.2f}x**)"
