"""An evaluation that is killed anywhere goes on where it was and comes to the same report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parent.parent.parent


def run_program(folder: Path, cases: int, rounds: int, seed: int) -> int:
    """The number of kills."""
    words = [sys.executable, "-m", "tests.evals.killed", str(folder), str(cases), str(rounds), str(seed)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


def count(folder: Path) -> dict[str, int]:
    """How many runs of the calm evaluation came to which end."""
    [agent] = msgspec.json.decode((folder / "calm" / "report.json").read_bytes())["agents"]
    return {
        "runs": len(agent["runs"]),
        "crashed": agent["crashed"],
        "judged": sum(run["judge_cost"] is not None for run in agent["runs"]),
    }


def test_a_killed_evaluation_comes_to_the_same_report(tmp_path: Path) -> None:
    """O6: the report of processes that were killed at random writes equals that of one that was not, byte by byte."""
    assert run_program(tmp_path, 10, 2, seed=1) >= 2
    assert count(tmp_path) == {"runs": 10, "crashed": 1, "judged": 9}


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_thousand_cases_killed_at_random_places_come_to_the_same_report(tmp_path: Path) -> None:
    assert run_program(tmp_path, 1000, 3, seed=2) >= 6
    assert count(tmp_path) == {"runs": 1000, "crashed": 100, "judged": 900}
