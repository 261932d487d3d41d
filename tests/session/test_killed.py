"""A program may be killed at any moment: its session opens, nothing it was sure of is lost, and it goes on there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.session.stage import SCENARIOS

from steersman.session.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.real_time

NAMES = [*SCENARIOS]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """Files in memory where there are any: what a killed process wrote is safe there too, and no disk is waited for."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory, prefix="steersman-") as folder:
        yield Path(folder)


def run(folder: Path, *names: str) -> list[str]:
    """The scenarios that held, of a program that kills itself."""
    command = [sys.executable, "-m", "tests.session.killed", str(folder), *names]
    program = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert program.returncode == 0, f"{program.stdout}\n{program.stderr}"
    return [line.split(maxsplit=1)[1] for line in program.stdout.splitlines()]


def test_there_are_enough_scenarios() -> None:
    """At least twenty kinds of conversations are killed."""
    assert len(SCENARIOS) >= 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [NAMES[at : at + 4] for at in range(0, len(NAMES), 4)], ids=", ".join)
def test_a_program_killed_at_any_journal_operation_goes_on_where_it_was(names: list[str], quick_folder: Path) -> None:
    """failures.md I3 to I6, I8, I18: around a tenth of the records and inside some; `make soak` kills everywhere."""
    assert run(quick_folder, *names) == names


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_a_program_killed_everywhere_on_a_disk_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    """The same at every point in every way, each gone on with and spoken to, and killed again."""
    assert run(tmp_path, "--all", name) == [name]


def test_a_killed_writer_leaves_no_lock_behind(tmp_path: Path) -> None:
    """failures.md H6."""
    path = tmp_path / "sessions.db"
    program = """
import os, signal, sys
from steersman.session.stores.sqlite.store import SqliteStore
handle = SqliteStore(sys.argv[1]).create("one")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == -9
    SqliteStore(path).open("one").close()
