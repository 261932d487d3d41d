"""The SQLite store among processes: what was acknowledged is kept, one writes, and other users cannot read the file."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionBusy, StoreFailed, read_records
from steersman.testing.store_checks import make_record

PRELUDE = """
import os, signal, sys, threading
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import SessionBusy, SessionError, StoreFailed, read_records
from steersman.testing.store_checks import make_record
store = SqliteStore(sys.argv[1])
"""
HOLDER = """
handle = store.create("s")
handle.append([make_record(1)])
print("ready", flush=True)
sys.stdin.read()
"""
ENDLESS = """
handle = store.open(sys.argv[2])
seq = handle.last_seq
while True:
    group = [make_record(seq + n, text="word " * (200 * n)) for n in range(1, 4)]
    handle.append(group)
    seq = group[-1].seq
    print(seq, flush=True)
"""
OWN = """
for number in range(8):
    if os.fork() == 0:
        handle = store.create(f"session-{number}")
        for start in range(1, 201, 8):
            handle.append([make_record(seq, by=str(number)) for seq in range(start, start + 8)])
        handle.close()
        print("done", flush=True)
        os._exit(0)
for _ in range(8):
    print(os.wait()[1], flush=True)
"""
AT_ONCE = """
for path in sys.argv[1:]:
    store = SqliteStore(path)
    heard, told = os.pipe()
    children = []
    for number in range(8):
        if (child := os.fork()) == 0:
            os.close(told)
            os.read(heard, 1)
            try:
                if number == 7:
                    for _ in range(5):
                        store.list()
                else:
                    handle = store.create(f"s{number}")
                    for seq in range(1, 6):
                        handle.append([make_record(seq)])
                    handle.close()
            except BaseException as error:
                print(number, error, flush=True)
            os._exit(0)
        children.append(child)
    os.close(told)
    os.close(heard)
    for child in children:
        os.waitpid(child, 0)
    # In one more process: one with an open connection would not be a first one in the next round.
    if (child := os.fork()) == 0:
        print(sorted((summary.id, summary.records) for summary in store.list()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
IN_TURNS = """
written = 0
while written < 40:
    try:
        handle = store.open("shared")
    except SessionBusy:
        print("busy", flush=True)
        sys.stdin.readline()
        continue
    seq = handle.last_seq
    handle.append([make_record(seq + n, by=sys.argv[2]) for n in (1, 2, 3, 4)])
    handle.close()
    written += 4
    print("wrote", flush=True)
print("done", flush=True)
"""
FORKED = """
handle = store.create("s")
handle.append([make_record(1)])
if os.fork() == 0:
    try:
        handle.append([make_record(2)])
    except SessionBusy as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
handle.append([make_record(2)])
print([record.seq for record in read_records(handle)], handle.writable)
handle.close()
"""
OPEN_TO_ALL = """
os.umask(0)
handle = store.create("s")
handle.append([make_record(1)])
reader = store.open("s", write=False)
for folder, _, names in os.walk(sys.argv[2]):
    print(oct(os.stat(folder).st_mode & 0o777), os.path.basename(folder))
    for name in sorted(names):
        print(oct(os.stat(os.path.join(folder, name)).st_mode & 0o777), name)
"""


def _started(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _done(program: str, *arguments: object) -> list[str]:
    with _started(program, *arguments) as process:
        said, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return said.splitlines()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    """failures.md H5, H6: a reader is not in its way; a kill frees the session at once, and loses nothing."""
    store = SqliteStore(tmp_path / "s.db")
    with _started(HOLDER, store.path) as holder:
        assert _line(holder) == "ready"
        with pytest.raises(SessionBusy, match="The session 's' is being written to by another program or object"):
            store.open("s")
        with pytest.raises(SessionBusy):
            store.delete("s")
        reader = store.open("s", write=False)
        assert list(read_records(reader)) == [make_record(1)]
        reader.close()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        handle = store.open("s")
        handle.append([make_record(2)])
        assert (list(read_records(handle)), list(handle.problems)) == ([make_record(1), make_record(2)], [])
        handle.close()


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """failures.md H1, H6, I8: again and again, at any moment; groups are there whole, and numbers have no gap."""
    store = SqliteStore(tmp_path / "s.db")
    store.create("s").close()
    acknowledged = 0
    for moment in range(6):
        with _started(ENDLESS, store.path, "s") as writer:
            for _ in range(1 + 3 * moment):
                acknowledged = int(_line(writer))
            writer.send_signal(signal.SIGKILL)
            assert writer.stdout is not None
            for line in writer.stdout:
                acknowledged = int(line)
        handle = store.open("s")
        found = list(read_records(handle))
        handle.close()
        assert len(found) in (acknowledged, acknowledged + 3)
        assert found == [
            make_record(seq, text="word " * (200 * ((seq - 1) % 3 + 1))) for seq in range(1, len(found) + 1)
        ]


def test_a_session_can_be_opened_to_be_read_while_another_process_writes(tmp_path: Path) -> None:
    """failures.md H5: at any moment, as it was at one moment, and without a word about damage."""
    store = SqliteStore(tmp_path / "s.db")
    store.create("s").close()
    with _started(ENDLESS, store.path, "s") as writer:
        _line(writer)
        for _ in range(60):
            reader = store.open("s", write=False)
            assert [record.seq for record in read_records(reader)][:3] == [1, 2, 3]
            assert list(reader.problems) == []
            assert store.list()[0].records > 0
            reader.close()
        writer.kill()


def test_eight_processes_write_to_one_file(tmp_path: Path) -> None:
    """failures.md H5: each to its own session, 200 records each; nothing is lost and nothing doubled."""
    store = SqliteStore(tmp_path / "s.db")
    assert Counter(_done(OWN, store.path)) == {"done": 8, "0": 8}
    assert {summary.id: summary.records for summary in store.list()} == {f"session-{n}": 200 for n in range(8)}
    for number in range(8):
        handle = store.open(f"session-{number}", write=False)
        assert list(read_records(handle)) == [make_record(seq, by=str(number)) for seq in range(1, 201)]
        assert list(handle.problems) == []
        handle.close()


def test_a_new_file_is_made_by_the_first_process(tmp_path: Path) -> None:
    """failures.md H5: all come at the same moment, and one only looks; none is refused or told of damage."""
    found = _done(AT_ONCE, *(tmp_path / f"{round}.db" for round in range(12)))
    assert found == [str([(f"s{number}", 5) for number in range(7)])] * 12


def test_eight_processes_take_turns_with_one_session(tmp_path: Path) -> None:
    """failures.md H5: the second process is refused and tries again; no record is lost, no number given twice."""
    store = SqliteStore(tmp_path / "s.db")
    store.create("shared").close()
    writers = [_started(IN_TURNS, store.path, number) for number in range(8)]
    heard: list[str] = []

    def listen(writer: subprocess.Popen[str]) -> None:
        assert writer.stdin is not None
        while (word := _line(writer)) != "done":
            heard.append(word)
            if word == "busy":
                print("again", file=writer.stdin, flush=True)

    listeners = [threading.Thread(target=listen, args=(writer,)) for writer in writers]
    for listener in listeners:
        listener.start()
    for listener, writer in zip(listeners, writers, strict=True):
        listener.join()
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    handle = store.open("shared")
    found = list(read_records(handle))
    handle.close()
    assert [record.seq for record in found] == list(range(1, 8 * 40 + 1))
    assert Counter(record.payload["by"] for record in found) == {str(number): 40 for number in range(8)}
    assert heard.count("wrote") == 80


def test_a_forked_child_does_not_write_for_its_parent(tmp_path: Path) -> None:
    """failures.md H5: two processes with one connection would spoil the file."""
    assert _done(FORKED, tmp_path / "s.db") == [
        "The session 's' is written to by the process this one was forked from.",
        "[1, 2] True",
    ]


def test_only_the_owner_can_read_a_session(tmp_path: Path) -> None:
    """failures.md H13: with a umask that allows everything; folders that were there stay as they are."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x").chmod(0o755)
    found = _done(OPEN_TO_ALL, tmp_path / "x" / "y" / "z" / "s.db", tmp_path / "x")
    names = ["s.db", "s.db-lock", "s.db-shm", "s.db-wal"]
    assert found == ["0o755 x", "0o700 y", "0o700 z", *(f"0o600 {name}" for name in names)]


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    """failures.md H13: as one that was made by hand."""
    path = tmp_path / "s.db"
    path.touch(mode=0o644)
    SqliteStore(path).create("s").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_making_a_session_leaves_the_locks_of_others_alone(tmp_path: Path) -> None:
    """failures.md H5: a file that is opened and closed beside SQLite would take away the locks of this process."""
    store = SqliteStore(tmp_path / "s.db")
    handle = store.create("s")
    for number in range(3):
        store.create(f"other-{number}").close()
        store.open("s", write=False).close()
        store.list()
    # With its locks gone, the log would be thrown away by the next process that closes the file.
    _done("store.open('other-0').close()", store.path)
    handle.append([make_record(1)])
    handle.close()
    handle = store.open("s")
    assert list(read_records(handle)) == [make_record(1)]
    handle.close()


def test_a_thread_that_reads_does_not_hold_up_the_one_that_writes(tmp_path: Path) -> None:
    """failures.md H5: also one that stops in the middle, and one that is read in another thread than it was begun."""
    handle = SqliteStore(tmp_path / "s.db").create("s")
    handle.append([make_record(seq) for seq in range(1, 1_001)])
    lines = handle.lines()
    assert next(lines)[0] == 1
    writer = threading.Thread(target=handle.append, args=([make_record(1_001)],))
    writer.start()
    writer.join()
    rest: list[int] = []
    reader = threading.Thread(target=lambda: rest.extend(seq for seq, _ in lines))
    reader.start()
    reader.join()
    assert rest == list(range(2, 1_002))
    handle.close()


def test_a_file_that_was_taken_away_is_not_written_to(tmp_path: Path) -> None:
    """failures.md H8: what is written to a file without a name is lost; where it is put back, all goes on."""
    store = SqliteStore(tmp_path / "s.db")
    handle = store.create("s")
    handle.append([make_record(1)])
    store.path.rename(tmp_path / "away.db")
    with pytest.raises(StoreFailed, match="'s' could not be written: No such file or directory"):
        handle.append([make_record(2)])
    store.path.touch()
    with pytest.raises(StoreFailed, match="'s' could not be written: its file was replaced"):
        handle.append([make_record(2)])
    os.replace(tmp_path / "away.db", store.path)
    handle.append([make_record(2)])
    handle.close()
    handle = store.open("s")
    assert list(read_records(handle)) == [make_record(1), make_record(2)]
    handle.close()


def test_a_relative_path_means_the_same_file_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    handle = SqliteStore("rel.db").create("one")
    monkeypatch.chdir(tmp_path / "there")
    handle.append([make_record(1), make_record(2)])
    handle.close()

    with closing(SqliteStore(tmp_path / "here" / "rel.db").open("one", write=False)) as kept:
        assert kept.last_seq == 2
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_can_be_none_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="give its path"):
        SqliteStore(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for use in (SqliteStore(tmp_path / "pipe").list, lambda: SqliteStore(tmp_path / "pipe").open("one")):
        with pytest.raises(StoreFailed, match="is not a regular file"):
            use()
