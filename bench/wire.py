"""What an answer over HTTP costs, against floors measured in the same run: `python -m bench.wire`, or with --quick.

A mock server runs in a process of its own. Times are CPU times of the client, medians of interleaved rounds. Per delta,
per turn and per tool call are slopes: a longer run less a shorter one. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median

from bench.measure import Pair, Row, medians, say, show
from bench.mock import ANSWER, Mock
from bench.wire_child import spawn
from bench.wire_work import Done, Job, Play, Watch, done, floor, sdk, steersman

MICRO = 1e6
MILLI = 1e3
MOST = 1.5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done, and how often."""

    rounds: int
    deltas: int
    turns: int
    calls: int
    crowd: int
    growth: int
    starts: int


FULL = Sizes(rounds=15, deltas=8000, turns=120, calls=60, crowd=500, growth=7, starts=9)
QUICK = Sizes(rounds=5, deltas=4000, turns=60, calls=30, crowd=100, growth=3, starts=3)

Jobs = Callable[[int], Job]


def slope(play: Play, job: Jobs, few: int, many: int, answer: Callable[[int], str]) -> float:
    """CPU seconds per unit of what a job has few or many of; a wrong answer is no measurement."""
    seconds: list[float] = []
    for count in (few, many):
        got = done(play, job(count))
        if got.answer != answer(count):
            raise RuntimeError(f"Expected {answer(count)[:40]!r}, got {got.answer[:200]!r}.")
        seconds.append(got.seconds)
    return (seconds[1] - seconds[0]) / (many - few)


def words(count: int) -> str:
    """What the mock says in so many deltas."""
    return "word " * count


def four(_: int) -> str:
    """What it says to each of many prompts."""
    return words(4)


def compare(
    name: str, job: Jobs, few: int, many: int, rounds: int, *, most: float | None, against: Play = floor,
    answer: Callable[[int], str] = lambda _: ANSWER,
) -> Row:  # fmt: skip
    """A row for a slope."""
    say(f"  {name}")
    pair = Pair(
        lambda: slope(steersman, job, few, many, answer),
        lambda: slope(against, job, few, many, answer),
    )
    ours, least = medians(pair, rounds)
    return Row(name, "us", ours * MICRO, least * MICRO, most)


def text_job(url: str, watch: Watch = "subscriber", kind: str = "text") -> Jobs:
    """One answer of so many deltas."""
    return lambda count: Job(url, f"{kind}:{count}", watch=watch)


def prompt_job(url: str) -> Jobs:
    """So many prompts, each answered by four deltas, in a conversation that grows."""
    return lambda count: Job(url, "text:4", prompts=count)


def work_job(url: str) -> Jobs:
    """So many turns of forty words and a tool call each, and an answer."""
    return lambda count: Job(url, f"work:{count}")


def tool_job(url: str, *, marked: bool = False) -> Jobs:
    """So many turns with a tool call each and not a word, and an answer."""
    return lambda count: Job(url, f"tools:{count}", marked=marked)


def calls_job(url: str) -> Jobs:
    """So many tool calls in one turn, and an answer."""
    return lambda count: Job(url, f"calls:{count}")


def slopes(url: str, sizes: Sizes) -> list[Row]:
    """Per delta, per turn, per tool call."""
    rounds, deltas, turns = sizes.rounds, sizes.deltas, sizes.turns
    paced = max(200, deltas // 20)
    said = words
    some = deltas // 4  # the SDK takes its time
    return [
        compare("delta, to a subscriber", text_job(url), 10, deltas, rounds, most=MOST, answer=said),
        compare("delta, to a reader", text_job(url, "reader"), 10, deltas, rounds, most=None, answer=said),
        compare("delta, nobody listens", text_job(url, "nobody"), 10, deltas, rounds, most=None, answer=said),
        compare("delta, one per wake-up", text_job(url, kind="paced"), 10, paced, rounds, most=MOST, answer=said),
        compare("delta, the SDK's raw stream", text_job(url), 10, some, rounds, most=1, against=sdk, answer=said),
        compare("turn of words and a tool call", work_job(url), 5, turns, rounds, most=MOST),
        compare("turn of a tool call alone", tool_job(url), 5, turns, rounds, most=None),
        compare("run of a prompt and four deltas", prompt_job(url), 5, turns, rounds, most=None, answer=four),
        compare("the same, the SDK's raw stream", prompt_job(url), 5, turns, rounds, most=1, against=sdk, answer=four),
        compare("tool call, one of many", calls_job(url), 1, sizes.calls, rounds, most=None),
    ]  # fmt: skip


def growth(url: str, sizes: Sizes) -> list[Row]:
    """The cost of a turn far into a run."""
    say("  turn 10, 100, 400 of a run")
    job = tool_job(url, marked=True)(430)
    windows = {10: (6, 16), 100: (90, 110), 400: (370, 430)}
    runs: dict[str, list[Done]] = {"ours": [], "floor": []}
    for _ in range(sizes.growth):
        runs["ours"].append(done(steersman, job))
        runs["floor"].append(done(floor, job))
    ours, least = (
        {turn: median([_mean(run, *span) for run in runs[side]]) * MICRO for turn, span in windows.items()}
        for side in ("ours", "floor")
    )
    rows = [
        Row(f"turn {turn} of a run", "us", ours[turn], least[turn], 1.3 if turn == 400 else None) for turn in windows
    ]
    return [*rows, Row("turn 400 against turn 10", "us", ours[400], ours[10])]


def _mean(run: Done, first: int, last: int) -> float:
    marks = run.turns
    return fmean([marks[turn + 1] - marks[turn] for turn in range(first, last)])


def crowd(url: str, sizes: Sizes) -> list[Row]:
    """Many agents at once, each with a connection of its own."""
    name = f"{sizes.crowd:,} streaming agents"
    say(f"  {name}")
    right: dict[str, float] = {}

    def measured(side: str) -> float:
        figures = spawn("crowd", side, url, f"{sizes.crowd}")
        right[side] = figures["right"]
        return figures["seconds"]

    ours, least = medians(Pair(lambda: measured("steersman"), lambda: measured("floor")), max(3, sizes.rounds // 3))
    wrong, least_wrong = sizes.crowd - right["steersman"], sizes.crowd - right["floor"]
    return [
        Row(f"{name}, CPU", "ms", ours * MILLI, least * MILLI, MOST),
        Row(f"{name}, wrong answers", "", wrong, least_wrong, 0, absolute=True),
    ]


def starts(url: str, sizes: Sizes) -> list[Row]:
    """From a fresh interpreter to the first answer."""
    say("  cold start")
    with tempfile.TemporaryDirectory() as bytecode:

        def measured(side: str) -> float:
            return spawn("cold", side, url, bytecode=bytecode)["seconds"]

        ours, least = medians(Pair(lambda: measured("steersman"), lambda: measured("floor")), sizes.starts)
        _, theirs = medians(Pair(lambda: 0.0, lambda: measured("sdk")), max(1, sizes.starts // 3))
    return [
        Row("cold start to the first answer", "ms", ours * MILLI, least * MILLI),
        Row("the same, against the SDK", "ms", ours * MILLI, theirs * MILLI, 1),
        Row("import steersman imports aiohttp", "", spawn("light")["aiohttp"], None, 0, absolute=True),
    ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="What an answer over HTTP costs, against a hand-written floor.")
    parser.add_argument("--quick", action="store_true", help="less of everything, for a first look")
    sizes = QUICK if parser.parse_args().quick else FULL
    say("Measuring ...")
    with Mock() as mock:
        rows = [*slopes(mock.url, sizes), *growth(mock.url, sizes), *crowd(mock.url, sizes), *starts(mock.url, sizes)]
    print(f"Python {platform.python_version()}, {platform.machine()}, medians of {sizes.rounds} rounds of CPU time\n")
    show(rows)
    missed = [row.name for row in rows if row.missed]
    print(f"\nMissed: {'; '.join(missed)}." if missed else "\nEvery goal is reached.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
