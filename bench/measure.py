"""How things are measured: in rounds that take both sides in turn, and the medians of those."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

Sample: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Pair:
    """What is compared: each gives one figure per round."""

    ours: Sample
    floor: Sample


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `most` bounds the ratio, or the value where it is an `absolute` goal."""

    name: str
    unit: str
    value: float
    floor: float | None
    most: float | None = None
    absolute: bool = False

    @property
    def ratio(self) -> float | None:
        """How many floors it costs."""
        return None if self.floor is None or self.floor <= 0 else self.value / self.floor

    @property
    def missed(self) -> bool:
        """Whether there is a goal and it is not reached."""
        judged = self.value if self.absolute else self.ratio
        return self.most is not None and (judged is None or judged > self.most)

    def cells(self) -> tuple[str, ...]:
        """The line as text."""
        floor = "" if self.floor is None else f"{self.floor:,.2f}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}x"
        goal = "" if self.most is None else f"<= {self.most:g} {self.unit if self.absolute else 'x'}"
        verdict = "" if self.most is None else "MISSED" if self.missed else "ok"
        return self.name, self.unit, f"{self.value:,.2f}", floor, ratio, goal, verdict


def medians(pair: Pair, rounds: int) -> tuple[float, float]:
    """The medians of both sides over interleaved rounds, after one that only warms up; the order alternates."""
    pair.ours()
    pair.floor()
    ours: list[float] = []
    floor: list[float] = []
    for number in range(rounds):
        if number % 2:
            floor.append(pair.floor())
            ours.append(pair.ours())
        else:
            ours.append(pair.ours())
            floor.append(pair.floor())
    return median(ours), median(floor)


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    head = ("", "unit", "Steersman", "floor", "ratio", "goal", "")
    lines = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    for line in lines:
        cells = [
            cell.ljust(width) if at in (0, 1, 6) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)
