"""What the loop costs, each figure against a floor measured in the same run: `make bench`, or with --quick.

Times are CPU times, medians of interleaved rounds, with the garbage collector on. Per delta, per turn and per tool call
are slopes: a longer run less a shorter one. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, median

from bench.child import spawn
from bench.measure import Pair, Row, medians, say, show
from bench.script import long_call_turn, text_turn, tool_turn, turns_of
from bench.work import Done, Job, Play, Watch, done, floor, steersman

MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done, and how often."""

    rounds: int
    deltas: int
    turns: int
    calls: int
    crowd: int
    idle: int
    growth_rounds: int


FULL = Sizes(rounds=21, deltas=4000, turns=100, calls=50, crowd=10_000, idle=10_000, growth_rounds=9)
QUICK = Sizes(rounds=5, deltas=2000, turns=40, calls=20, crowd=1_000, idle=200, growth_rounds=3)


def slope(play: Play, job: Callable[[int], Job], few: int, many: int) -> float:
    """CPU seconds per unit of what a job has few or many of."""
    return (done(play, job(many)).seconds - done(play, job(few)).seconds) / (many - few)


def compare(name: str, job: Callable[[int], Job], few: int, many: int, rounds: int, most: float | None) -> Row:
    """A row for a slope."""
    say(f"  {name}")
    # Made once: neither side pays for the turns it is given.
    jobs = {few: job(few), many: job(many)}
    pair = Pair(
        lambda: slope(steersman, jobs.__getitem__, few, many), lambda: slope(floor, jobs.__getitem__, few, many)
    )
    ours, least = medians(pair, rounds)
    return Row(name, "us", ours * MICRO, least * MICRO, most)


def delta_job(watch: Watch, *, paced: bool = False) -> Callable[[int], Job]:
    """One answer of so many deltas."""
    return lambda count: Job(turns_of(text_turn("word " * count, count)), watch, paced=paced)


def write_job(watch: Watch) -> Callable[[int], Job]:
    """One answer that calls a tool with a long text, in so many deltas."""
    return lambda count: Job(turns_of(long_call_turn(count), text_turn("It is 42.")), watch)


def text_job(watch: Watch) -> Callable[[int], Job]:
    """So many answers of four deltas, each to a follow-up."""
    return lambda count: Job(turns_of(*[text_turn("It is 42.")] * count), watch, follow_ups=count - 1)


def tool_job(watch: Watch) -> Callable[[int], Job]:
    """So many answers that ask for a tool each, and one that ends it."""
    return lambda count: Job(turns_of(*map(tool_turn, range(count)), text_turn("It is 42.")), watch)


def calls_job(watch: Watch) -> Callable[[int], Job]:
    """One answer that asks for so many tools at once, and one that ends it."""
    return lambda count: Job(turns_of(tool_turn(0, count), text_turn("It is 42.")), watch)


def run_job(watch: Watch) -> Callable[[int], Job]:
    """So many prompts, each answered by a run of one turn."""
    return lambda count: Job(turns_of(*[text_turn("It is 42.")] * count), watch, prompts=count)


def slopes(sizes: Sizes) -> list[Row]:
    """Per delta, per turn, per tool call."""
    rounds, deltas, turns = sizes.rounds, sizes.deltas, sizes.turns
    return [
        compare("delta, to a subscriber", delta_job("subscriber"), 10, deltas, rounds, 2),
        compare("delta, to a reader", delta_job("reader"), 10, deltas, rounds, 2),
        compare("delta, nobody listens", delta_job("nobody"), 10, deltas, rounds, None),
        compare("delta, one per wake-up, to a reader", delta_job("reader", paced=True), 10, deltas, rounds, 2),
        compare("turn, to a subscriber", text_job("subscriber"), 5, turns, rounds, 2),
        compare("turn, to a reader", text_job("reader"), 5, turns, rounds, 2),
        compare("turn with a tool call, to a subscriber", tool_job("subscriber"), 5, turns, rounds, 2),
        compare("tool call, one of many, to a subscriber", calls_job("subscriber"), 1, sizes.calls, rounds, None),
        compare("run of one turn, to a subscriber", run_job("subscriber"), 5, turns, rounds, None),
        compare("run of one turn, to a reader", run_job("reader"), 5, turns, rounds, None),
    ]


def partials(sizes: Sizes) -> list[Row]:
    """Reading the answer so far at every delta of a long one, against not reading it."""
    many = 10_000
    name, call = f"delta, the answer so far read at each of {many:,}", "the same, the arguments of a call"
    return [
        _compare_watches(name, lambda watch: delta_job(watch)(many), many, sizes.rounds, 3),
        _compare_watches(call, lambda watch: write_job(watch)(many), many, sizes.rounds, 4),
    ]


def _compare_watches(name: str, job: Callable[[Watch], Job], deltas: int, rounds: int, most: float | None) -> Row:
    """A row for a job with a watcher that reads the answer so far, against one that does not."""
    say(f"  {name}")
    reading, plain = job("partial"), job("subscriber")
    pair = Pair(lambda: done(steersman, reading).seconds / deltas, lambda: done(steersman, plain).seconds / deltas)
    ours, least = medians(pair, rounds)
    return Row(name, "us", ours * MICRO, least * MICRO, most)


def growth(sizes: Sizes) -> list[Row]:
    """The cost of a turn far into a run, and of a prompt far into a conversation, against early ones of the same."""
    return [
        *_growth("turn {} of a run, with a tool call", tool_job("subscriber")(1040), sizes.growth_rounds),
        *_growth("prompt {} of a conversation", run_job("subscriber")(1041), sizes.growth_rounds),
    ]


def _growth(name: str, job: Job, rounds: int) -> list[Row]:
    say(f"  {name.format('10, 100, 1,000')}")
    job = replace(job, marked=True)
    windows = {10: (6, 16), 100: (90, 110), 1000: (960, 1040)}
    ours: list[Done] = []
    least: list[Done] = []
    for _ in range(rounds):
        ours.append(done(steersman, job))
        least.append(done(floor, job))
    value, bottom = (
        {at: median([_mean(run, *span) for run in runs]) * MICRO for at, span in windows.items()}
        for runs in (ours, least)
    )
    return [
        *(Row(name.format(f"{at:,}"), "us", value[at], bottom[at]) for at in windows),
        *(Row(f"{name.format(f'{at:,}')}, against 10", "us", value[at], value[10], 1.3) for at in (100, 1000)),
    ]


def _mean(run: Done, first: int, last: int) -> float:
    """The mean of some turns, so that a collection of garbage among them counts."""
    marks = run.requests
    return fmean([marks[turn + 1] - marks[turn] for turn in range(first, last)])


def memory(sizes: Sizes) -> list[Row]:
    """What agents take that do nothing, and what many take that are all under way."""
    rows: list[Row] = []
    for turns, name, most in ((0, "idle agent, new", 2), (1, "idle agent, after one answer", 8)):
        say(f"  {name}")
        ours, least = (spawn("idle", side, f"{sizes.idle}", f"{turns}") for side in ("steersman", "floor"))
        rows.append(Row(name, "KiB", ours["bytes"] / 1024, least["bytes"] / 1024, most, absolute=True))
    say(f"  {sizes.crowd:,} agents at once")
    ours, least = (spawn("crowd", side, f"{sizes.crowd}") for side in ("steersman", "floor"))
    name = f"{sizes.crowd:,} agents at once"
    each, least_each = (side["seconds"] / sizes.crowd * MICRO for side in (ours, least))
    wrong, least_wrong = (sizes.crowd - side["right"] for side in (ours, least))
    return [
        *rows,
        Row(f"{name}, memory", "MiB", ours["mib"], least["mib"], 512, absolute=True),
        Row(f"{name}, CPU of each", "us", each, least_each),
        Row(f"{name}, wrong answers", "", wrong, least_wrong, 0, absolute=True),
    ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="What the loop costs, against a hand-written floor.")
    parser.add_argument("--quick", action="store_true", help="less of everything, for a first look")
    sizes = QUICK if parser.parse_args().quick else FULL
    say("Measuring ...")
    rows = [*slopes(sizes), *partials(sizes), *growth(sizes), *memory(sizes)]
    print(f"Python {platform.python_version()}, {platform.machine()}, medians of {sizes.rounds} rounds of CPU time\n")
    show(rows)
    missed = [row.name for row in rows if row.missed]
    print(f"\nMissed: {'; '.join(missed)}." if missed else "\nEvery goal is reached.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
