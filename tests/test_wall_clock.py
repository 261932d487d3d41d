"""The wall clock is set while a program waits, in a process of its own, and nothing changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.provider.wires.protocols import SERVERS
from tests.stepped import WALL

DAY = 86_400
COMPILER = shutil.which("cc")
EXPECTED = {
    "waited": [True, "done", "Fine.", 2, True],
    "heard_out": [True, "done", "Take your time.", 1],
    "cut_off": [True, "error", "stalled"],
    "limited": ["done", "limit"],
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None or sys.platform != "linux":
        pytest.skip("a C compiler on Linux makes the clock that can be set")
    folder = tmp_path_factory.mktemp("wall")
    (folder / "wall.c").write_text(WALL)
    made = folder / "wall.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(made), str(folder / "wall.c")], check=True)
    return made


@pytest.mark.parametrize("seconds", [DAY, -DAY])
def test_a_step_of_the_wall_clock_changes_nothing(seconds: int, library: Path, tmp_path: Path) -> None:
    """failures.md E14: backoff, timeouts, limits and the lock of a session, on all four protocols."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.stepped", str(tmp_path), str(seconds)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = {f"{name} {scenario}": outcome for name in SERVERS for scenario, outcome in EXPECTED.items()}
    assert json.loads(done.stdout) == {"locked": [True], **wanted}
