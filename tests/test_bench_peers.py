"""The comparison with other libraries is fair: each side does the same job, and the server checks every request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from bench.peers.__main__ import PROTOCOLS, write_report
from bench.peers.figures import ROOT, Process, validate
from bench.profile import profile_turns


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.peers.server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


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
    report = write_report({"floor/chat": {"turn": floor}, "ours/chat": {"turn": ours}})
    assert report.splitlines()[1:] == [
        "",
        "| chat | turn |",
        "|---|---|",
        "| floor | 20.0 |",
        "| ours | 30.0 (**1.50x**) |",
    ]


def test_a_profile_counts_the_calls_of_a_turn() -> None:
    rows = {row.name.partition(" ")[2]: row for row in profile_turns("steersman", 3)}
    assert rows["take_turn"].calls >= 1
    assert rows["emit_deltas"].total >= rows["emit_deltas"].own > 0
