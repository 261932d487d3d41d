"""Where the time of a turn goes: python -m bench.profile [--side floor] [--turns 50] [--sort calls] [--rows 40]

Prints the functions of a run against the mock server, per turn. The profiler makes every call dearer, so compare with
another profile, not with the clock.
"""

from __future__ import annotations

import argparse
import asyncio
from cProfile import Profile
from pathlib import Path
from pstats import Stats
from typing import Any, NamedTuple

from bench.mock import Mock
from bench.wire_work import Job, floor, steersman

ROUNDS = 5
SIDES = {"steersman": steersman, "floor": floor}
_ROOT = Path(__file__).parent.parent


class Row(NamedTuple):
    """A function: how often it is called in a turn, and the microseconds in it, alone and with what it calls."""

    calls: float
    own: float
    total: float
    name: str


def profile_turns(side: str, turns: int) -> list[Row]:
    """Profile runs of so many turns, after one that is not counted."""
    profiler = Profile()
    with Mock() as mock:
        job = Job(mock.url, f"tools:{turns}", watch="reader")
        asyncio.run(SIDES[side](job))
        for _ in range(ROUNDS):
            profiler.runcall(asyncio.run, SIDES[side](job))
    return read_rows(profiler, ROUNDS * (turns + 1))


def read_rows(profiler: Profile, turns: int) -> list[Row]:
    """What the profiler saw, for each of so many turns."""
    stats: dict[tuple[str, int, str], tuple[Any, ...]] = vars(Stats(profiler))["stats"]
    return [
        Row(count / turns, own * 1e6 / turns, total * 1e6 / turns, f"{shorten(file)}:{line} {name}")
        for (file, line, name), (_, count, own, total, _) in stats.items()
    ]


def shorten(file: str) -> str:
    """The path of a source file without what is the same for many."""
    for root in (f"{_ROOT}/src/steersman/", f"{_ROOT}/", "site-packages/", "lib/python3."):
        if root in file:
            return file.partition(root)[2]
    return "built in" if file == "~" else file


def main() -> None:
    """Print the profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=SIDES, default="steersman")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--sort", choices=("own", "total", "calls"), default="own")
    parser.add_argument("--rows", type=int, default=40)
    options = parser.parse_args()
    rows = profile_turns(options.side, options.turns)
    print(f"{sum(row.calls for row in rows):,.0f} calls and {sum(row.own for row in rows):,.0f} us a turn, profiled\n")
    print("  calls   own us  total us  function")
    for row in sorted(rows, key=lambda row: getattr(row, options.sort), reverse=True)[: options.rows]:
        print(f"{row.calls:7.2f} {row.own:8.2f} {row.total:9.2f}  {row.name}")


if __name__ == "__main__":
    main()
