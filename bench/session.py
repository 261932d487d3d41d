"""What a session costs, each figure against a floor measured in the same run: `make session`, or with --quick.

Times are wall times, for a sync is waiting. What a turn costs is the median of its turns in the best of several rounds,
and opening is the best of several times: a disk that others use as well says little about a session. Every sync is a
real one, in files of the folder for temporary files or of the one that `--folder` names. Exits with 1 when a goal is
missed.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from time import process_time

from bench.measure import Pair, Row, medians, say, show
from bench.session_child import Figures, spawn
from bench.session_work import (
    CountedStore,
    Turns,
    appended,
    converse,
    crowd,
    long_session,
    plain,
    plain_commits,
    plain_crowd,
)

from steersman.session.session import Session
from steersman.testing.replay.replay import replay

MILLI = 1e3
MICRO = 1e6
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done, and how often."""

    rounds: int
    turns: int
    commits: int
    group: int
    crowd: int
    crowd_turns: int
    megabytes: int
    openings: int


FULL = Sizes(rounds=9, turns=60, commits=100, group=1_000, crowd=16, crowd_turns=20, megabytes=100, openings=5)
QUICK = Sizes(rounds=3, turns=20, commits=30, group=200, crowd=16, crowd_turns=5, megabytes=100, openings=3)


def fresh(folder: Path) -> Iterator[Path]:
    """Files nobody has used yet."""
    return (folder / f"{number}.db" for number in count(1))


def turns(sizes: Sizes, files: Iterator[Path]) -> list[Row]:
    """What a session adds to a turn, against as many plain commits, and how many syncs that is."""
    rows: list[Row] = []
    for tools, name in ((0, "text turn"), (1, "turn with a tool call"), (4, "turn with four tool calls")):
        say(f"  {name}")
        kept: list[Turns] = []
        bare: list[Turns] = []
        commits: list[float] = []
        with closing(plain(next(files))) as connection:
            for _ in range(sizes.rounds):
                kept.append(asyncio.run(converse(sizes.turns, CountedStore(next(files)), tools=tools)))
                bare.append(asyncio.run(converse(sizes.turns, None, tools=tools)))
                commits.append(plain_commits(connection, sizes.commits, rows=3))
        added = min(median(one.seconds) for one in kept) - min(median(one.seconds) for one in bare)
        syncs = max(number for one in kept for number in one.commits)
        usual = median([number for one in kept for number in one.commits])
        floor = usual * min(commits)
        rows.append(Row(f"{name}, what its session adds", "ms", added * MILLI, floor * MILLI, 5, absolute=True))
        rows.append(Row(f"{name}, most syncs", "", syncs, None, 3, absolute=True))
    return rows


def appends(sizes: Sizes, files: Iterator[Path]) -> list[Row]:
    """Records that are added and kept: one by one, and many at once."""
    rows: list[Row] = []
    for many, name in ((1, "record, kept by itself"), (sizes.group, f"record, one of {sizes.group:,} in a group")):
        say(f"  {name}")
        times = sizes.commits if many == 1 else 5
        with closing(plain(next(files))) as connection:
            pair = Pair(
                lambda many=many, times=times: appended(next(files), times, many) / many,
                lambda many=many, times=times, on=connection: plain_commits(on, times, many) / many,
            )
            ours, least = medians(pair, sizes.rounds)
        rows.append(Row(name, "us", ours * MICRO, least * MICRO))
    return rows


def at_once(sizes: Sizes, files: Iterator[Path]) -> list[Row]:
    """Many sessions at once in one file, against as many threads with as many plain commits."""
    name = f"{sizes.crowd} sessions at once"
    say(f"  {name}")
    ours: list[float] = []
    least: list[float] = []
    lost = 0
    for _ in range(max(1, sizes.rounds // 3)):
        path = next(files)
        seconds, store = asyncio.run(crowd(path, sizes.crowd, sizes.crowd_turns))
        ours.append(seconds)
        least.append(plain_crowd(next(files), sizes.crowd, store.commits))
        for summary in store.list():
            with Session.open(path, summary.id, write=False) as session:
                # A prompt, an answer and a result for each turn, and the last answer.
                lost += 2 + 2 * sizes.crowd_turns - len(session.log.messages)
    turn = MILLI / sizes.crowd_turns
    return [
        Row(f"{name}, a turn of all", "ms", median(ours) * turn, median(least) * turn, 3),
        Row(f"{name}, lost messages", "", lost, None, 0, absolute=True),
    ]


def opening(sizes: Sizes, files: Iterator[Path]) -> list[Row]:
    """A long session, in one branch and in fifty: opened, and then read where it stands."""
    rows: list[Row] = []
    for branches in (1, 50):
        name = f"{sizes.megabytes} MB in {'one branch' if branches == 1 else f'{branches} branches'}"
        say(f"  {name}")
        path = next(files)
        long_session(path, sizes.megabytes * MIB, branches=branches)
        ours: list[Figures] = []
        least: list[Figures] = []
        for _ in range(sizes.openings):
            ours.append(spawn("steersman", str(path)))
            least.append(spawn("floor", str(path)))
        best = {key: min(one[key] for one in ours) for key in ours[0]}
        floor = min(one["open"] for one in least)
        rows += [
            Row(f"{name}, opened", "s", best["open"], floor, 2, absolute=True),
            Row(f"{name}, memory when open", "MiB", best["open_peak"], None, 40, absolute=True),
            Row(f"{name}, log of {best['messages']:,.0f} messages read", "s", best["log"], floor),
            Row(f"{name}, memory with that log", "MiB", best["log_mib"], None),
        ]
    return rows


def replaying(sizes: Sizes, files: Iterator[Path]) -> list[Row]:
    """A session again without a model and without tools: CPU of a turn, against the run that made it, kept nowhere."""
    say("  replay")
    path = next(files)
    asyncio.run(converse(sizes.turns, CountedStore(path), id="played"))

    def again() -> float:
        with Session.open(path, "played", write=False) as session:
            began = process_time()
            asyncio.run(replay(session))
            return (process_time() - began) / sizes.turns

    def first() -> float:
        began = process_time()
        asyncio.run(converse(sizes.turns, None))
        return (process_time() - began) / sizes.turns

    ours, least = medians(Pair(again, first), sizes.rounds)
    return [Row("replay of a turn with a tool call, CPU", "us", ours * MICRO, least * MICRO)]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="What a session costs, against plain commits.")
    parser.add_argument("--quick", action="store_true", help="less of everything, for a first look")
    parser.add_argument("--folder", help="where the files are written, on the disk to be measured")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    say("Measuring ...")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = fresh(Path(folder))
        rows = [
            *turns(sizes, files),
            *appends(sizes, files),
            *at_once(sizes, files),
            *replaying(sizes, files),
            *opening(sizes, files),
        ]
    print(f"Python {platform.python_version()}, {platform.machine()}, files in {Path(folder).parent}\n")
    show(rows)
    missed = [row.name for row in rows if row.missed]
    print(f"\nMissed: {'; '.join(missed)}." if missed else "\nEvery goal is reached.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
