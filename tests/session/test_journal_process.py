"""A journal and its process: it is written when the program ends, and a forked child leaves it to its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.session.shaky import ShakyHandle

from steersman.session.journal import JournalWriter
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import read_records

pytestmark = pytest.mark.real_time

BEGIN = """
import asyncio, atexit, os, sys, threading
from steersman.session.journal import JournalWriter
from steersman.session.stores.sqlite.store import SqliteStore

journal = JournalWriter(SqliteStore(sys.argv[1]).create("one"), lag=60)
for number in range(5):
    journal.add("label", {"number": number})
"""
ENDINGS = {
    "at its end": "",
    "by sys.exit": "sys.exit(3)",
    "with an exception": "raise ValueError",
    "from a thread": "threading.Thread(target=lambda: journal.add('label', {'number': 5})).start()",
    "after the last thread": "atexit.register(lambda: journal.add('label', {'number': 5}))",
    "waiting as it ends": "atexit.register(lambda: asyncio.run(journal.wait_until_saved()) or os._exit(9))",
}


def numbers(path: Path) -> list[int]:
    handle = SqliteStore(path).open("one")
    try:
        return [record.payload["number"] for record in read_records(handle)]
    finally:
        handle.close()


@pytest.mark.parametrize("name", ENDINGS)
def test_what_is_left_is_written_when_the_program_ends(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    program = subprocess.run(
        [sys.executable, "-c", BEGIN + ENDINGS[name], str(path)],
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in program.stderr or name == "with an exception", program.stderr
    assert program.returncode in (0, 1, 3)
    assert numbers(path) == [*range(6 if "journal.add" in ENDINGS[name] else 5)]


def in_child(work: Callable[[], None]) -> None:
    """Do this in a forked child, which then ends as programs do."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_writes_nothing_and_hangs_on_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    journal = JournalWriter(SqliteStore(path).create("one"), lag=60)
    journal.add("label", {"number": 0})
    assert journal.flush()
    journal.add("label", {"number": 1})

    def work() -> None:
        journal.add("label", {"number": 2})
        assert not journal.flush()
        assert journal.degraded == (
            "The session 'one' belongs to the process that this one was forked from; open it again in this process."
        )
        assert journal.last_saved == 1
        journal.close()

    in_child(work)
    journal.add("label", {"number": 3})
    assert journal.flush()
    in_child(journal.close)
    assert journal.degraded is None
    journal.close()
    assert numbers(path) == [0, 1, 3]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_waits_until_the_store_is_not_at_work() -> None:
    handle = ShakyHandle()
    journal = JournalWriter(handle, lag=0.0)
    handle.free.clear()
    journal.add("label", {})
    assert handle.began.wait(30)
    order: list[str] = []
    handle.during = lambda: order.append("kept")
    forked = threading.Thread(target=lambda: (in_child(lambda: None), order.append("forked")))
    forked.start()
    handle.free.set()
    forked.join(30)
    assert order == ["kept", "forked"]
    journal.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_may_open_the_session_anew_when_its_parent_is_done(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    journal = JournalWriter(SqliteStore(path).create("one"))
    journal.add("label", {"number": 0})
    journal.close()

    def work() -> None:
        own = JournalWriter(SqliteStore(path).open("one"))
        own.add("label", {"number": 1})
        own.close()

    in_child(work)
    assert numbers(path) == [0, 1]
