"""Where the time of a turn goes: python -m bench.profile [--peer floor] [--protocol gemini] [--flame FILE.svg]

Prints the functions of a run against the mock server, per turn; the profiler makes every call dearer, so compare with
another profile, not with the clock. `--flame` draws the calls instead: the wider, the longer.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
from contextlib import AbstractContextManager
from cProfile import Profile
from pathlib import Path
from pstats import Stats
from typing import Any, NamedTuple

from bench.flame import Sampler, draw_flame
from bench.peers import jobs
from bench.peers.figures import start_server

from steersman.provider.http.client import aclose_http

ROUNDS = 5
_ROOT = Path(__file__).parent.parent


class Row(NamedTuple):
    """A function: how often it is called in a turn, and the microseconds in it, alone and with what it calls."""

    calls: float
    own: float
    total: float
    name: str


async def play(
    peer: str, protocol: str, url: str, turns: int, rounds: int, around: AbstractContextManager[object]
) -> None:
    """Run jobs of so many turns inside `around`, after one that is not counted."""
    adapter = importlib.import_module(f"bench.peers.adapters.{peer}")
    shared = adapter.connect(protocol, url)
    model = f"bench-t{turns}-d1-k1"
    await adapter.run(adapter.make_agent(shared, model), jobs.PROMPT, len)
    with around:
        for _ in range(rounds):
            await adapter.run(adapter.make_agent(shared, model), jobs.PROMPT, len)
    await aclose_http()


def profile_turns(peer: str, turns: int, protocol: str = "chat") -> list[Row]:
    """The functions of runs of so many turns."""
    profiler = Profile()
    with start_server() as url:
        asyncio.run(play(peer, protocol, url, turns, ROUNDS, profiler))
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


def sample_turns(peer: str, turns: int, rounds: int, protocol: str) -> str:
    """A flame graph of runs of so many turns."""
    sampler = Sampler(shorten)
    with start_server() as url:
        asyncio.run(play(peer, protocol, url, turns, rounds, sampler))
    return draw_flame(sampler.stacks, f"A turn with a tool call, {peer}, {protocol}: {sampler.count:,} samples of CPU")


def main() -> None:
    """Print the profile, or draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=("ours", "floor"), default="ours")
    parser.add_argument("--protocol", choices=("chat", "messages", "responses", "gemini"), default="chat")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--sort", choices=("own", "total", "calls"), default="own")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--flame", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.flame is not None:
        options.flame.write_text(sample_turns(options.peer, options.turns, 20 * ROUNDS, options.protocol))
        return
    rows = profile_turns(options.peer, options.turns, options.protocol)
    print(f"{sum(row.calls for row in rows):,.0f} calls and {sum(row.own for row in rows):,.0f} us a turn, profiled\n")
    print("  calls   own us  total us  function")
    for row in sorted(rows, key=lambda row: getattr(row, options.sort), reverse=True)[: options.rows]:
        print(f"{row.calls:7.2f} {row.own:8.2f} {row.total:9.2f}  {row.name}")


if __name__ == "__main__":
    main()
