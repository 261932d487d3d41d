"""The comparison with other libraries is fair: each side does the same job, and the server checks every request."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.flame import draw_flame
from bench.peers.__main__ import PROTOCOLS
from bench.peers.figures import Process, start_server, validate
from bench.peers.report import BEGIN, END, draw, replace_figures, write_figures
from bench.peers.results import Results, Samples, judge, load, make_results, save, write_tables
from bench.profile import profile_turns


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as url:
        yield url


def make(samples: Samples) -> Results:
    return make_results(samples, 3, {})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("peer", ["ours", "floor"])
def test_each_side_does_the_job_in_each_protocol(peer: str, protocol: str, url: str) -> None:
    with Process(sys.executable, peer, protocol, url) as worker:
        validate(worker)
        assert worker.call("run", model="bench-t1-d1-k3-c1-s10")["at_once"] == 3


def test_a_job_that_comes_out_wrong_is_no_measurement(url: str) -> None:
    with (
        Process(sys.executable, "floor", "chat", url) as worker,
        pytest.raises(RuntimeError, match="not the server's"),
    ):
        worker.call("run", model="bench-t2-d1-k1-k2")


def test_ratios_are_medians_of_the_rounds() -> None:
    floor, ours = [10.0, 20.0, 40.0], [30.0, 20.0, 60.0]
    tables = write_tables(make({"floor/chat": {"turn": floor}, "ours/chat": {"turn": ours}}))
    assert tables.splitlines() == ["| chat | turn |", "|---|---|", "| floor | 20.0 |", "| ours | 30.0 (**1.50x**) |"]


def test_each_figure_is_judged_by_its_goal(tmp_path: Path) -> None:
    floor = {"turn": [100.0], "call": [10.0], "turn 10": [100.0], "last turn": [100.0], "agent": [2.0]}
    ours = {"turn": [131.0], "call": [14.0], "turn 10": [100.0], "last turn": [106.0], "agent": [49.0]}
    save(make({"floor/chat": floor, "ours/chat": ours}), file := tmp_path / "results" / "floor-3.11.json")
    verdicts = {verdict.figure: verdict.is_met for verdict in judge(load(file))}
    assert verdicts == {"turn": False, "call": True, "turn 10": True, "last turn to turn 10": False, "agent": True}


def test_gemini_has_no_fragments_of_arguments_to_compare() -> None:
    results = make({"floor/gemini": {"argument": [0.1]}, "ours/gemini": {"argument": [0.3]}})
    assert list(judge(results)) == []


@pytest.mark.parametrize("peers", [("floor", "ours"), ("floor", "ours", "pydantic_ai")])
def test_the_page_gets_the_tables_and_the_plots(peers: tuple[str, ...]) -> None:
    results = make({f"{peer}/chat": {"turn": [1.0 + number]} for number, peer in enumerate(peers)})
    page = replace_figures(f"before\n{BEGIN}\nold\n{END}\nafter\n", write_figures(results, "plot.svg"))
    assert page.startswith(f"before\n{BEGIN}\n\n### ")
    assert page.endswith(f"\n\n{END}\nafter\n")
    assert "(images/plot.svg)" in page
    assert "old" not in page
    texts = [text.text for text in ElementTree.fromstring(draw(results)).iter("{http://www.w3.org/2000/svg}text")]
    assert "2.00x" in texts
    assert "ours" in texts or "chat" in texts


def test_a_flame_graph_shows_what_every_stack_does_not_share() -> None:
    picture = draw_flame(Counter({("main", "run", "a <b>"): 3, ("main", "run", "c"): 1}), "A turn")
    titles = [title.text for title in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["a <b>: 75.0%", "c: 25.0%"]


def test_a_profile_counts_the_calls_of_a_turn() -> None:
    rows = {row.name.partition(" ")[2]: row for row in profile_turns("ours", 3)}
    assert rows["take_turn"].calls >= 1
    assert rows["emit_deltas"].total >= rows["emit_deltas"].own > 0
