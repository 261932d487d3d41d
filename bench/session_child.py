"""What opening a long session takes, in an interpreter of its own: seconds, and memory that was not there before.

python -m bench.session_child steersman sessions.db
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

from steersman.session.session import Session
from steersman.session.stores.sqlite.store import SqliteStore

ROOT = Path(__file__).parent.parent
Figures: TypeAlias = dict[str, float]


def spawn(*arguments: str) -> Figures:
    """The figures a fresh interpreter comes to."""
    command = [sys.executable, "-m", "bench.session_child", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def memory() -> dict[str, float]:
    """MiB of this process, now and at the most."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: float(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


def steersman(path: str) -> Figures:
    """Open it, then read what was said."""
    SqliteStore(path)
    before = memory()["VmRSS"]
    began = perf_counter()
    session = Session.open(path, "long")
    opened, at_open = perf_counter(), memory()
    messages = len(session.log.messages)
    read, at_read = perf_counter(), memory()
    session.close()
    return {
        "open": opened - began,
        "open_mib": at_open["VmRSS"] - before,
        "open_peak": at_open["VmHWM"] - before,
        "log": read - opened,
        "log_mib": at_read["VmRSS"] - before,
        "messages": messages,
    }


def floor(path: str) -> Figures:
    """Read every row, and keep none."""
    with closing(sqlite3.connect(path)) as connection:
        before = memory()["VmRSS"]
        began = perf_counter()
        size = sum(len(data) for (data,) in connection.execute("SELECT data FROM records"))
        seconds = perf_counter() - began
        return {"open": seconds, "open_mib": memory()["VmRSS"] - before, "bytes": size}


if __name__ == "__main__":
    side, where = sys.argv[1:]
    print(json.dumps(steersman(where) if side == "steersman" else floor(where)))
