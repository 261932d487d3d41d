"""The queue of a SQLite file: format 1 gets one, a rescue keeps it, and a writer is woken also without a socket."""

from __future__ import annotations

import array
import os
import select
import shutil
import socket
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.session.kit import done, reopened, said

from steersman import Session
from steersman.session import SessionQueue
from steersman.session.stores.sqlite.sockets import FOLLOW, IS_LINUX, make_address, wake_writer
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.sqlite.wake import WriterWatch, start_watch
from steersman.testing.store_checks import make_record

_OLD = Path(__file__).parents[2] / "golden" / "format-1.db"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file as it was written before there was a queue."""
    return Path(shutil.copy(_OLD, tmp_path / "sessions.db"))


def test_a_reader_reads_a_file_of_format_1_and_leaves_it_as_it_is(old: Path) -> None:
    """failures.md H15."""
    before = old.read_bytes()
    with Session.open(old, "old", write=False) as session:
        assert [message.text for message in session.messages][-1] == "It was."
        assert ([item.message.text for item in session.waiting], session.epoch) == (["And this was queued."], 0)
    assert [summary.id for summary in Session.list(old)] == ["old"]
    assert old.read_bytes() == before


async def test_a_file_of_format_1_is_gone_on_with_and_queued_into(old: Path) -> None:
    """durable.md U2: the first who writes gives it a queue, also if that one only queues."""
    with SessionQueue(old, "old") as queue:
        assert queue.steer("And this is new.") == (1, True)
    agent, _ = reopened(SqliteStore(old), "old", "Yes.", "Yes.")
    assert agent.session is not None
    assert list(agent.session.problems) == []
    await agent.continue_()
    assert [line for line in said(agent.messages) if line.startswith("user")][1:] == [
        "user: And this was queued.",
        "user: And this is new.",
    ]
    done(agent)
    with Session.open(old, "old", take_over=True) as session:
        assert session.epoch == 1
    Session.create(old, "another").close()
    assert sorted(summary.id for summary in Session.list(old)) == ["another", "old"]


def test_a_damaged_file_of_format_1_is_rescued(old: Path) -> None:
    """failures.md H1: the rescue writes the format of today."""
    data = bytearray(old.read_bytes())
    data[60:64] = b"\xff" * 4  # its version
    old.write_bytes(data)
    with Session.open(old, "old") as session:
        assert [message.text for message in session.messages][-1] == "It was."
    with SessionQueue(old, "old") as queue:
        assert queue.steer("Hi.") == (1, True)


def test_a_rescue_keeps_what_is_queued_and_the_keys_of_what_was_heard(tmp_path: Path) -> None:
    """failures.md H1, durable.md U2: and the epoch, so that a former owner stays refused."""
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    handle = store.create("s")
    with SessionQueue(store, "s") as queue:
        queue.steer("Heard.", key="a")
        queue.steer("Waiting.", key="b")
    handle.append([make_record(1, type="session"), make_record(2, type="order", number=1)])
    handle.close()
    store.take_over("s").close()
    data = bytearray(path.read_bytes())
    data[60:64] = b"\xff" * 4
    path.write_bytes(data)
    handle = store.open("s")
    assert (handle.epoch, [number for number, _ in handle.read_queue()]) == (1, [2])
    assert any("The file was damaged" in problem.text for problem in handle.problems)
    handle.close()
    with SessionQueue(store, "s") as queue:
        assert [queue.steer("Again.", key=key) for key in ("a", "b", "c")] == [(1, False), (2, False), (3, True)]


def test_a_damaged_row_of_the_queue_is_reported_and_not_heard(tmp_path: Path) -> None:
    """failures.md H3."""
    path = tmp_path / "sessions.db"
    Session.create(path, "s").close()
    with SessionQueue(path, "s") as queue:
        queue.steer("One.")
        queue.steer("Two.")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE queue SET data = replace(data, 'One.', 'Oops') WHERE number = 1")
    agent, _ = reopened(SqliteStore(path), "s")
    assert agent.session is not None
    assert [message.text for message in agent.queued.steering] == ["Two."]
    assert [problem.where for problem in agent.session.problems] == ["order 1"]
    done(agent)


def test_a_writer_is_woken_by_a_datagram_and_needs_no_look_at_the_file(tmp_path: Path) -> None:
    """durable.md U2: each sender sends one to the writer of its session and epoch, and to no other."""
    store = SqliteStore(tmp_path / "sessions.db")
    store.create("s").close()
    store.take_over("s").close()
    found = store.path.stat()
    place = (found.st_dev, found.st_ino)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own, SessionQueue(store, "s") as queue:
        own.bind(make_address(place, 1, 1))
        queue.steer("Hi.")
        assert own.recv(16, socket.MSG_DONTWAIT) == b"x"
    woken, others = threading.Semaphore(0), threading.Semaphore(0)
    stop = start_watch(WriterWatch(make_address(place, 7, 0), woken.release, lambda: False))
    stop_other = start_watch(WriterWatch(make_address(place, 8, 0), others.release, lambda: False))
    for wakes in (woken, others):
        assert wakes.acquire(timeout=30)  # once it is bound
    for _ in range(3):
        wake_writer(place, 7, 0)
        assert woken.acquire(timeout=30)
    assert not others.acquire(blocking=False)
    stop()
    stop_other()


def test_a_writer_without_a_socket_of_its_own_is_woken_all_the_same(tmp_path: Path) -> None:
    """durable.md U2: as between two network namespaces; it looks at the file once in a while."""
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    handle = store.create("s")
    found = path.stat()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, SessionQueue(store, "s") as queue:
        other.bind(make_address((found.st_dev, found.st_ino), 1, 0))
        woken = threading.Event()
        handle.watch_queue(lambda: woken.set() if handle.read_queue() else None)
        queue.steer("Hi.")
        assert woken.wait(30)
    handle.close()


@pytest.mark.skipif(not IS_LINUX, reason="needs the abstract namespace of Linux")
def test_a_file_that_is_no_socket_is_closed_by_the_writer_that_it_was_sent_to(tmp_path: Path) -> None:
    """Any user may send files to the name of a writer: kept open, they would soon be all that a process may have."""
    bound = threading.Event()
    address = make_address((1, 2), os.getpid(), 0)
    stop = start_watch(WriterWatch(address, bound.set, lambda: False))
    try:
        assert bound.wait(10)
        reading, writing = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            rights = array.array("i", [writing])
            sender.sendmsg([FOLLOW], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], 0, address)
        os.close(writing)
        ready, _, _ = select.select([reading], [], [], 10)
        assert ready, "the writer still has the file"
        assert os.read(reading, 1) == b""
        os.close(reading)
    finally:
        stop()


def test_a_session_that_is_closed_and_opened_again_is_woken_by_its_socket(tmp_path: Path) -> None:
    """durable.md U2: the first socket has the same name, and is gone before the second one comes."""
    store = SqliteStore(tmp_path / "sessions.db")
    store.create("s").close()
    with SessionQueue(store, "s") as queue:
        for number in range(20):
            handle = store.open("s")
            woken = threading.Event()
            handle.watch_queue(lambda handle=handle, woken=woken: woken.set() if handle.read_queue() else None)
            queue.steer(f"{number}")
            assert woken.wait(30)
            handle.close()


def test_a_forked_child_keeps_no_socket_of_its_parent(tmp_path: Path) -> None:
    """durable.md U2: or the next writer could have none while the child lives."""
    store = SqliteStore(tmp_path / "sessions.db")
    handle = store.create("s")
    ready = threading.Event()
    handle.watch_queue(ready.set)
    assert ready.wait(30)  # it is bound
    found = store.path.stat()
    name = f"@{make_address((found.st_dev, found.st_ino), 1, 0)[1:]}"
    (inode,) = [line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(name)]
    child = os.fork()
    if child == 0:
        links: list[str] = []
        for file in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                links.append(os.readlink(f"/proc/self/fd/{file}"))
        os._exit(1 if f"socket:[{inode}]" in links else 0)
    assert os.waitpid(child, 0)[1] == 0
    handle.close()
