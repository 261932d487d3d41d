"""Real disks that are full, read-only or broken: the store says so, keeps what it has, and goes on when it can."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionError, StoreFailed, read_records
from steersman.testing.store_checks import make_record

PRELUDE = """
import os, resource, sys
from pathlib import Path
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionError, StoreFailed, read_records
from steersman.testing.store_checks import make_record

path = Path(sys.argv[1])
store = SqliteStore(path)

def attempt(handle, *seqs):
    try:
        handle.append([make_record(seq, text="word " * 400) for seq in seqs])
        return "kept"
    except StoreFailed as error:
        return str(error)

def kept(id="s"):
    handle = store.open(id, write=False)
    found = list(read_records(handle))
    assert found == [make_record(seq, text="word " * 400) for seq in range(1, len(found) + 1)]
    assert not handle.problems
    handle.close()
    return len(found)
"""
# What a file may be long at most is the nearest to a quota that needs no rights: writing beyond fails with EFBIG.
LIMITED = """
handle = store.create("s")
seq = 0
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for limit in range(int(sys.argv[2]), 400_000, 41_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    while attempt(handle, seq + 1, seq + 2) == "kept":
        seq += 2
    said = attempt(handle, seq + 1, seq + 2)
    assert said.startswith("The session 's' could not be written: "), said
    assert handle.last_seq == seq
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert kept() == seq
    assert attempt(handle, seq + 1, seq + 2, seq + 3) == "kept"
    seq += 3
    assert kept() == seq
handle.close()
print(kept() == seq, seq > 20)
"""
FULL = """
handle = store.create("s")
seq = 0
while (said := attempt(handle, seq + 1)) == "kept":
    seq += 1
print(said)
filler = Path(path.parent, "filler")
print(kept() == seq, attempt(handle, seq + 1) != "kept")
filler.unlink()
print(attempt(handle, seq + 1, seq + 2))
handle.close()
print(kept() == seq + 2)
"""
NO_FILES = """
handle = store.create("s")
print(attempt(handle, 1))
spare = len(os.listdir("/proc/self/fd"))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for more in range(8):
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare - 1 + more, hard))
    try:
        other = store.open("s", write=False)
        other.close()
        opened = True
    except StoreFailed:
        opened = False
    assert attempt(handle, 2 + more) == "kept"
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(opened, kept())
handle.close()
print(len(os.listdir("/proc/self/fd")) < spare)
"""
AS_ANOTHER_USER = """
import urllib.parse  # what is imported late may be where this user may not read
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
READ_ONLY = """
def told(act):
    try:
        act()
    except SessionError as error:
        return f"{type(error).__name__}: {error}".replace(str(path), "s.db")

print(told(lambda: store.open("s")))
print(told(lambda: store.create("t")))
print(told(lambda: store.delete("s")))
print([(summary.id, summary.records) for summary in store.list()])
print(kept())
"""


def run_child(program: str, *arguments: object, before: str = "") -> list[str]:
    python = [sys.executable, "-c", PRELUDE + program, *map(str, arguments)]
    command = ["unshare", "-rm", "sh", "-ec", f'{before}; exec "$@"', "sh", *python] if before else python
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def _mounted(options: str, folder: Path) -> str:
    """The command that mounts something for one process and its children alone; skips where that is not allowed."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    command = f"mount {options} {folder}"
    done = subprocess.run(["unshare", "-rm", "sh", "-ec", command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    return command


@pytest.mark.parametrize("start", [70_000, 83_000, 97_001])
def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path, start: int) -> None:
    """failures.md H7, H8: a write that fails at any place leaves nothing of its group, and the next one is whole."""
    assert run_child(LIMITED, tmp_path / "s.db", start) == ["True True"]


@pytest.mark.parametrize("size", [200, 260, 500])
def test_a_full_disk_keeps_what_it_has_and_goes_on_when_there_is_room(tmp_path: Path, size: int) -> None:
    """failures.md H7: a real disk of a few hundred kilobytes."""
    before = _mounted(f"-t tmpfs -o size={size}k none", tmp_path)
    found = run_child(FULL, tmp_path / "s.db", before=f"{before}; head -c 60000 /dev/zero > {tmp_path}/filler")
    assert found[0] == "The session 's' could not be written: database or disk is full."
    assert found[1:] == ["True True", "kept", "True"]


def test_too_many_open_files_are_told_and_nothing_is_lost(tmp_path: Path) -> None:
    """failures.md H8: EMFILE at each file that is needed to open; open sessions go on, and nothing is left open."""
    assert run_child(NO_FILES, tmp_path / "s.db") == ["kept", "True 9", "True"]


def test_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    """failures.md H8: also what a killed program left in the log; a writer is told."""
    _leave(tmp_path)
    before = _mounted(f"--bind {tmp_path}", tmp_path)
    found = run_child(READ_ONLY, tmp_path / "s.db", before=f"{before}; mount -o remount,bind,ro {tmp_path}")
    assert found == [
        "StoreFailed: The file 's.db' cannot be used: Read-only file system.",
        "StoreFailed: The file 's.db' cannot be used: Read-only file system.",
        "StoreFailed: The file 's.db' cannot be used: Read-only file system.",
        "[('s', 3)]",
        "3",
    ]


def test_a_folder_without_the_right_to_write_can_be_read() -> None:
    """failures.md H8: root may write anywhere, so this is tried as another user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _leave(folder)
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)
        try:
            found = run_child(AS_ANOTHER_USER + READ_ONLY, folder / "s.db")
        finally:
            folder.chmod(0o700)
    assert found == [
        "StoreFailed: The file 's.db' cannot be used: Permission denied.",
        "StoreFailed: The file 's.db' cannot be used: Permission denied.",
        "StoreFailed: The file 's.db' cannot be used: Permission denied.",
        "[('s', 3)]",
        "3",
    ]


def _leave(folder: Path) -> None:
    """A file as a killed program leaves it."""
    made = folder / "made"
    made.mkdir()
    store = SqliteStore(made / "s.db")
    handle = store.create("s")
    handle.append([make_record(seq, text="word " * 400) for seq in (1, 2, 3)])
    for name in ("s.db", "s.db-wal"):
        (folder / name).write_bytes((made / name).read_bytes())
    handle.close()
    shutil.rmtree(made)


def test_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    """failures.md H8: a file in the way of the folder, and a folder in the way of the file."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match="cannot be created: Not a directory"):
        SqliteStore(tmp_path / "file" / "s.db").create("s")
    with pytest.raises(StoreFailed):
        SqliteStore(tmp_path).create("s")
    with pytest.raises(StoreFailed):
        SqliteStore(tmp_path).list()


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no /proc/self/mem, which cannot be read")
def test_an_error_of_the_disk_is_told(tmp_path: Path) -> None:
    """failures.md H8: a file whose first byte cannot be read."""
    del tmp_path
    with pytest.raises(StoreFailed, match="'/proc/self/mem' cannot be"):
        SqliteStore("/proc/self/mem").list()


def test_a_commit_that_was_kept_though_it_failed_is_not_written_twice(tmp_path: Path) -> None:
    """failures.md H8, I18: records that are given again, with more behind them, are there once."""
    for twin, text in (("same", "a"), ("other", "b")):
        store = SqliteStore(tmp_path / f"{twin}.db")
        handle = store.create("s")
        handle.append([make_record(1)])
        _commit_unseen(store.path, tmp_path / f"{twin}-twin.db", text)
        group = [make_record(2, text="a"), make_record(3, text="a"), make_record(4, text="a")]
        if twin == "other":
            with pytest.raises(StoreFailed, match="'s' could not be written: another program wrote to it"):
                handle.append(group)
            handle.set_title("still at work")
            assert store.list()[0].title == "still at work"
        else:
            handle.append(group)
            assert list(read_records(handle)) == [make_record(1), *group]
            handle.append([make_record(5)])
        handle.close()
    handle = SqliteStore(tmp_path / "same.db").open("s")
    assert ([record.seq for record in read_records(handle)], list(handle.problems)) == ([1, 2, 3, 4, 5], [])
    handle.close()


def _commit_unseen(path: Path, twin: Path, text: str) -> None:
    """Write two records to a session as its writer would have, who knows nothing of it."""
    handle = SqliteStore(twin).create("s")
    handle.append([make_record(1)])
    handle.append([make_record(2, text=text), make_record(3, text=text)])
    handle.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("ATTACH ? AS twin", (str(twin),))
    connection.execute("INSERT OR IGNORE INTO main.records SELECT * FROM twin.records")
    connection.close()


@pytest.mark.parametrize("kind", ["a folder", "a device", "a pipe", "a user's text", "another program's database"])
def test_what_is_no_file_of_sessions_is_left_as_it_is(kind: str, tmp_path: Path) -> None:
    """At a wrong path, neither the content nor the mode of the file is changed."""
    path = tmp_path / "wrong"
    match kind:
        case "a folder":
            path.mkdir(mode=0o755)
        case "a device":
            _, slave = os.openpty()  # one of our own
            path = Path(os.ttyname(slave))
        case "a pipe":
            os.mkfifo(path, 0o644)
        case "a user's text":
            path.write_text("Dear diary")
            path.chmod(0o644)
        case _:
            with closing(sqlite3.connect(path)) as other:
                other.executescript("CREATE TABLE t (x); PRAGMA user_version = 7;")
            path.chmod(0o644)
    before = (path.stat().st_mode, path.stat().st_size)

    with pytest.raises(SessionError):
        SqliteStore(path).create("one")

    assert (path.stat().st_mode, path.stat().st_size) == before
