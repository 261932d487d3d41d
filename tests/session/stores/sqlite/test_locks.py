"""Locks end with the process that has them, keep out all others, and are never stale."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steersman.session.stores.sqlite.access import LockFile, WholeFileLocks

HOLDER = """
import sys
from pathlib import Path
from steersman.session.stores.sqlite import access
kind = getattr(access, sys.argv[1])(Path(sys.argv[2]))
print(kind.try_lock(7), flush=True)
sys.stdin.read()
"""
PARENT = """
import os, sys
from pathlib import Path
from steersman.session.stores.sqlite import access
kind = getattr(access, sys.argv[1])
mine = kind(Path(sys.argv[2]))
mine.try_lock(7)
heard, told = os.pipe()
child = os.fork()
if child == 0:
    print(mine.closed, kind(Path(sys.argv[2])).try_lock(7), flush=True)
    os.read(heard, 1)
    os._exit(0)
sys.stdin.readline()
mine.close()
print(kind(Path(sys.argv[2])).try_lock(7), flush=True)
os.write(told, b"x")
os.waitpid(child, 0)
"""

both = pytest.mark.parametrize("kind", [LockFile, WholeFileLocks])


def _started(program: str, kind: type[LockFile], path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, kind.__name__, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@both
def test_a_lock_is_had_by_one_or_shared_by_many(tmp_path: Path, kind: type[LockFile]) -> None:
    """failures.md H5: two objects of one process keep each other out, and numbers do not touch each other."""
    first, second, third = (kind(tmp_path / "lock") for _ in range(3))
    assert (first.try_lock(1), second.try_lock(1), second.try_lock(2)) == (True, False, True)
    first.share(1)
    second.share(1)
    assert third.try_lock(1) is False
    first.close()
    second.close()
    assert (third.try_lock(1), third.try_lock(2)) == (True, True)
    third.close()


@both
def test_a_lock_ends_with_a_process_that_is_killed(tmp_path: Path, kind: type[LockFile]) -> None:
    """failures.md H6: the next one has it at once."""
    mine = kind(tmp_path / "lock")
    with _started(HOLDER, kind, tmp_path / "lock") as holder:
        assert _said(holder) == "True"
        assert mine.try_lock(7) is False
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert mine.try_lock(7) is True
    mine.close()


@both
def test_a_forked_child_does_not_keep_the_locks_of_its_parent(tmp_path: Path, kind: type[LockFile]) -> None:
    """failures.md H6: nor can it take them."""
    with _started(PARENT, kind, tmp_path / "lock") as parent:
        assert _said(parent) == "True False"
        print("go on", file=parent.stdin, flush=True)
        assert _said(parent) == "True"
    assert parent.returncode == 0


@both
def test_who_may_only_read_the_file_shares_but_does_not_take(tmp_path: Path, kind: type[LockFile]) -> None:
    """failures.md H8: as with a store on a disk that is read-only."""
    writer = kind(tmp_path / "lock")
    reader = kind(tmp_path / "lock", write=False)
    reader.share(0)
    assert (reader.try_lock(0), writer.try_lock(0)) == (False, False)
    reader.close()
    assert (writer.try_lock(0), reader.closed, writer.closed) == (True, True, False)
    writer.close()


@both
def test_locks_without_an_owner_are_let_go(tmp_path: Path, kind: type[LockFile]) -> None:
    first = kind(tmp_path / "lock")
    assert first.try_lock(7)
    del first
    gc.collect()
    second = kind(tmp_path / "lock")
    assert second.try_lock(7)
    second.close()
