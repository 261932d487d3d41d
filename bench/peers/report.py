"""Writes the kept results into docs/performance.md, with their plots: python -m bench.peers.report [--results FOLDER]

It takes every result below `.bench/results`, which `python -m bench.peers` keeps, and replaces what is between the two
marks of the page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.peers.__main__ import RESULTS
from bench.peers.figures import ROOT
from bench.peers.plots import draw_bars
from bench.peers.results import FLOOR, OURS, RATIOS, UNITS, Results, judge, load, write_tables

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by python -m bench.peers.report -->", "<!-- end of figures -->"
_GOAL = 1.3


def write_figures(results: Results, image: str) -> str:
    """The tables of one call of `bench.peers`, its plot, and which goals are missed."""
    goals = list(judge(results))
    missed = [f"{one.protocol} {one.figure} {one.measured:.2f}{one.unit}" for one in goals if not one.is_met]
    verdict = f"{len(goals) - len(missed)} of {len(goals)} goals met" + (
        f"; missed: {', '.join(missed)}." if missed else "."
    )
    title = "Other libraries" if is_comparison(results) else "Against the hand-written loop"
    lines = [f"### {title}, Python {results.python}", "", f"{results.describe()} {UNITS}", ""]
    if not is_comparison(results):
        lines += [verdict, ""]
    lines += [
        f"![Ratios to the hand-written loop, Python {results.python}](images/{image})",
        "",
        write_tables(results),
        "",
    ]
    return "\n".join(lines)


def is_comparison(results: Results) -> bool:
    """Whether other libraries were measured too."""
    return set(results.peers) != {FLOOR, OURS}


def draw(results: Results) -> str:
    """The plot: ratios by figure and protocol, or by figure and library where there are several."""
    figures = [figure for figure in results.figures if figure in RATIOS]
    if is_comparison(results):
        protocol = results.protocols[0]
        peers = [peer for peer in results.peers if peer != FLOOR]
        bars = {figure: {peer: results.compute_ratio(peer, protocol, figure) for peer in peers} for figure in figures}
        return draw_bars(f"Ratio to the hand-written loop, {protocol}, logarithmic", bars, _GOAL, logarithmic=True)
    bars = {
        figure: {protocol: results.compute_ratio(OURS, protocol, figure) for protocol in results.protocols}
        for figure in figures
    }
    return draw_bars(f"Steersman, ratio to the hand-written loop, Python {results.python}", bars, _GOAL)


def replace_figures(page: str, figures: str) -> str:
    """The page with other figures between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{figures.strip()}\n\n{END}{after}"


def main() -> None:
    """Write the page and the plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parts: list[str] = []
    for file in sorted(parser.parse_args().results.glob("*.json")):
        results, image = load(file), f"performance-{file.stem}.svg"
        (PAGE.parent / "images" / image).write_text(draw(results))
        parts.append(write_figures(results, image))
    if not parts:
        parser.error("there are no results; python -m bench.peers keeps some")
    PAGE.write_text(replace_figures(PAGE.read_text(), "\n".join(parts)))


if __name__ == "__main__":
    main()
