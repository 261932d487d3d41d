"""Sessions in PostgreSQL: what every store does, and what is special where a server and a network are between."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import IO

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.session.database import Database, Way

from steersman.session.records import Record
from steersman.session.stores.postgres.connection import ServerAddress
from steersman.session.stores.postgres.idle import MOST_IDLE
from steersman.session.stores.postgres.store import PostgresStore
from steersman.session.stores.postgres.tables import TABLES, hash_to_int64
from steersman.session.stores.store import (
    Problem,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    SessionTaken,
    Store,
    StoreFailed,
    is_followed,
    is_shared,
    read_records,
)
from steersman.testing.store_checks import StoreCheck, make_record, store_checks

_CANARY = "c4n4ry-of-a-password"
_WRITER = """
import sys
from steersman.session.stores.postgres.store import PostgresStore
from steersman.session.stores.store import SessionBusy, SessionExists
from steersman.testing.store_checks import make_record

_, dsn, name = sys.argv
store = PostgresStore(dsn)
print("ready", flush=True)
sys.stdin.readline()
"""
_IN_TURNS = """
own = store.create(name)
for seq in range(1, 26):
    own.append([make_record(seq, by=name)])
own.close()
try:
    store.create("shared").close()
except SessionExists:
    pass
for _ in range(2):
    while True:
        try:
            shared = store.open("shared")
        except SessionBusy:
            continue
        break
    shared.append([make_record(shared.last_seq + 1, by=name)])
    shared.close()
print("done", flush=True)
"""
_FOR_EVER = """
handle = store.create(name)
while True:
    handle.append([make_record(handle.last_seq + 1)])
    print(handle.last_seq, flush=True)
"""


class Writer:
    """Another process that writes, once it is told to."""

    def __init__(self, program: str, *arguments: str) -> None:
        command = [sys.executable, "-c", _WRITER + program, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self) -> str:
        return _of(self.process.stdout).readline().strip()

    def go(self) -> None:
        stdin = _of(self.process.stdin)
        stdin.write("\n")
        stdin.flush()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _records(store: Store, session_id: str) -> list[Record]:
    handle = store.open(session_id, write=False)
    try:
        return list(read_records(handle))
    finally:
        handle.close()


def _samples(first: int, last: int) -> list[Record]:
    return [make_record(seq) for seq in range(first, last + 1)]


def _freed(store: Store, session_id: str) -> None:
    """Wait until a session can be written to; the timeout of the test is the limit."""
    while True:
        try:
            store.open(session_id).close()
        except SessionBusy:
            continue
        return


@pytest.fixture
def way(postgres: Database) -> Iterator[Way]:
    """A way to the server that can be cut."""
    with tempfile.TemporaryDirectory(prefix="way-") as folder:
        way = Way(Path(folder), Path(str(conninfo_to_dict(postgres.server)["host"])))
        yield way
        way.close()


def _by(way: Way, postgres: Database, **options: float) -> PostgresStore:
    return PostgresStore(f"{postgres.dsn} host={way.folder}", **options)


@pytest.mark.parametrize("check", store_checks(), ids=lambda check: check.__name__)
def test_the_store_conforms(check: StoreCheck, postgres_server: str) -> None:
    """failures.md H4, H5, H12, H15, L27: the public checks."""
    made: dict[str, Database] = {}
    check(lambda name: made.setdefault(name, Database.made(postgres_server)).store())


@pytest.mark.real_time
def test_eight_processes_that_begin_at_once_lose_nothing(postgres: Database) -> None:
    """failures.md H5: on an empty database, each with a session of its own and all with one in turns."""
    names = [f"own-{number}" for number in range(8)]
    writers = [Writer(_IN_TURNS, postgres.dsn, name) for name in names]
    try:
        assert [writer.hear() for writer in writers] == ["ready"] * 8
        for writer in writers:
            writer.go()
        assert [writer.hear() for writer in writers] == ["done"] * 8
    finally:
        for writer in writers:
            writer.end()

    store = postgres.store()
    for name in names:
        assert _records(store, name) == [make_record(seq, by=name) for seq in range(1, 26)]
    shared = _records(store, "shared")
    assert [record.seq for record in shared] == [*range(1, 17)]
    assert sorted(record.payload["by"] for record in shared) == sorted(names * 2)


@pytest.mark.real_time
def test_a_writer_that_is_killed_leaves_its_lock_and_all_it_was_told_is_kept(postgres: Database) -> None:
    """failures.md H6."""
    store = postgres.store()
    with Writer(_FOR_EVER, postgres.dsn, "s") as writer:
        assert writer.hear() == "ready"
        writer.go()
        told = [int(writer.hear()) for _ in range(20)]
        with pytest.raises(SessionBusy, match="is being written to by another program or object"):
            store.open("s")
        with pytest.raises(SessionBusy, match="is being written to by another program or object"):
            store.delete("s")
        writer.process.kill()
        told += [int(line) for line in _of(writer.process.stdout)]
    _freed(store, "s")
    kept = _records(store, "s")
    assert told == [*range(1, len(told) + 1)]
    assert kept == _samples(1, len(kept))
    assert len(told) <= len(kept) <= len(told) + 1


def test_a_connection_that_was_cut_comes_back(postgres: Database) -> None:
    """For a writer with the lock, and for a reader between two records."""
    writer = postgres.store().create("s")
    writer.append(_samples(1, 1500))
    reader = postgres.store().open("s", write=False)
    lines = read_records(reader)
    first = next(lines)
    postgres.cut()
    writer.append(_samples(1501, 1502))
    assert [first, *lines] == _samples(1, 1502)
    with pytest.raises(SessionBusy, match="is being written to by another program or object"):
        postgres.store().open("s")
    postgres.cut()
    assert list(read_records(writer, 1500)) == _samples(1501, 1502)
    assert reader.last_seq == 1502
    writer.set_title("Cut")
    writer.close()
    reader.close()
    assert [(found.title, found.records) for found in postgres.store().list()] == [("Cut", 1502)]


def test_a_writer_that_lost_its_place_overwrites_nothing(postgres: Database) -> None:
    """durable.md U3: it is refused for good once another has opened the session, whatever that one did."""
    first = postgres.store().create("s")
    first.append(_samples(1, 2))
    postgres.cut()
    first.append(_samples(3, 3))  # no other one came in between

    for records in ([], [make_record(4, by="second")]):
        postgres.cut()
        second = postgres.store().open("s")
        second.append(records)
        with pytest.raises(SessionTaken, match="was taken over by another writer"):
            first.append([make_record(4, by="first"), make_record(5, by="first")])
        with pytest.raises(SessionTaken, match="was taken over by another writer"):
            first.set_title("Mine")
        second.close()
        with pytest.raises(SessionTaken, match="was taken over by another writer"):
            first.append([make_record(4, by="first")])
    first.close()
    assert _records(postgres.store(), "s") == [*_samples(1, 3), make_record(4, by="second")]


def test_a_session_that_was_removed_meanwhile_is_not_written_to(postgres: Database) -> None:
    """Nor another of the same id that was made since."""
    writer = postgres.store().create("s")
    writer.append(_samples(1, 1500))
    reader = postgres.store().open("s", write=False)
    lines = read_records(reader)
    assert next(lines) == make_record(1)
    postgres.cut()
    postgres.store().delete("s")
    postgres.store().create("s").close()
    for act in (lambda: writer.append(_samples(1501, 1501)), lambda: writer.set_title("x"), lambda: list(lines)):
        with pytest.raises(SessionNotFound, match="'s' was removed"):
            act()
    with pytest.raises(SessionNotFound, match="'s' was removed"):
        print(reader.last_seq)
    writer.close()
    reader.close()
    assert _records(postgres.store(), "s") == []


@pytest.mark.real_time
@pytest.mark.parametrize("last", [3, 5], ids=["the same records", "and others"])
def test_what_was_kept_without_an_answer_is_kept_once(postgres: Database, way: Way, last: int) -> None:
    """The server commits and its answer is lost; it still believes in the old connection, and in its lock."""
    writer = _by(way, postgres, timeout=0.2).create("s")
    writer.append(_samples(1, 1))
    way.silence()
    with pytest.raises(StoreFailed, match=r"^The session 's' could not be written: .* no answer in time\.$"):
        writer.append(_samples(2, 3))
    assert _records(postgres.store(), "s") == _samples(1, 3)
    with pytest.raises(SessionBusy, match="is being written to by another program or object"):
        postgres.store().open("s")
    writer.append(_samples(2, last))
    assert (writer.last_seq, list(read_records(writer))) == (last, _samples(1, last))
    writer.append(_samples(last + 1, 6))
    assert (writer.last_seq, list(read_records(writer))) == (6, _samples(1, 6))
    writer.close()


@pytest.mark.real_time
def test_a_server_that_is_silent_is_given_up(postgres: Database, way: Way) -> None:
    """Reading, listing and closing wait no longer than they were told to."""
    store = _by(way, postgres, timeout=0.2)
    writer = store.create("s")
    reader = store.open("s", write=False)
    way.silence()
    with pytest.raises(StoreFailed, match=r"^The session 's' could not be read: the server gave no answer in time\.$"):
        list(reader.lines())
    assert list(reader.lines()) == []
    way.silence()
    writer.close()
    reader.close()


@pytest.mark.real_time
def test_a_statement_that_is_held_up_is_given_up(postgres: Database) -> None:
    """The connection stays, and the next try goes through."""
    writer = postgres.store(timeout=0.2).create("s")
    with psycopg.connect(postgres.dsn) as other:
        other.execute("LOCK TABLE steersman_records")
        with pytest.raises(StoreFailed, match="could not be written: canceling statement due to statement timeout"):
            writer.append(_samples(1, 1))
    connections = postgres.backends()
    writer.append(_samples(1, 1))
    assert (list(read_records(writer)), len(connections), postgres.backends()) == (_samples(1, 1), 1, connections)
    writer.close()
    with pytest.raises(ValueError, match="timeout is a number of seconds above 0, got 0"):
        postgres.store(timeout=0)


def test_whatever_is_in_a_text_is_kept(postgres: Database) -> None:
    """NUL is, which no text of the database could hold; half a surrogate pair is replaced, as everywhere."""
    store = postgres.store()
    writer = store.create("s")
    message = {"role": "user", "content": [{"type": "text", "text": "a\0b \ud83d"}]}
    writer.append([make_record(1, type="message", message=message)])
    told = {"role": "user", "content": [{"type": "text", "text": "a\0b \ufffd"}]}
    assert list(read_records(writer)) == [make_record(1, type="message", message=told)]
    titles = [store.list()[0].title]
    writer.set_title("\0 \udc00")
    titles.append(store.list()[0].title)
    writer.close()
    assert titles == ["a\0b \ufffd", "\0 \ufffd"]


def test_a_commit_is_waited_for_whatever_the_server_is_set_to(postgres: Database) -> None:
    """And no setting ends a connection because it is idle."""
    options = "-csynchronous_commit={} -cidle_session_timeout=1000"
    found: list[tuple[str, ...]] = []
    for level in ("off", "local", "remote_apply"):
        address = ServerAddress(f"{postgres.server} options='{options.format(level)}'", 5.0)
        with address.connect(write=True) as connection:
            settings = ("SHOW synchronous_commit", "SHOW idle_session_timeout", "SHOW statement_timeout")
            found.append(tuple(row[0] for setting in settings for row in connection.execute(setting)))
    assert found == [("on", "0", "5s"), ("on", "0", "5s"), ("remote_apply", "0", "5s")]


def test_a_long_session_is_read_without_holding_it_all(postgres: Database) -> None:
    """What is added at once and is too long for one statement is one transaction all the same."""
    text = "x" * 20_000
    records = [make_record(seq, text=text) for seq in range(1, 1001)]
    writer = postgres.store().create("s")
    writer.append([records[0]])
    postgres.ask("ALTER TABLE steersman_records ADD CONSTRAINT stop CHECK (seq <> 900)")
    with pytest.raises(StoreFailed, match=r'written: new row .* violates check constraint "stop"\.$'):
        writer.append(records[1:])
    assert (writer.last_seq, list(read_records(writer))) == (1, records[:1])
    postgres.ask("ALTER TABLE steersman_records DROP CONSTRAINT stop")
    writer.append(records[1:])
    del records
    tracemalloc.start()
    try:
        seqs = [record.seq for record in read_records(writer)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    writer.close()
    assert seqs == [*range(1, 1001)]
    assert peak < 6_000_000


def test_a_session_and_what_it_hears_first_are_made_in_one_step(postgres: Database) -> None:
    """durable.md U2: one that is there already stays as it is; a writer after it has a higher epoch."""
    store = postgres.store()
    store.create_and_queue("s", _samples(1, 2), "id:1", b"hear")
    for again in (store.create_and_queue, PostgresStore(postgres.dsn).create_and_queue):
        with pytest.raises(SessionExists, match="There is a session 's' in"):
            again("s", _samples(1, 1), "id:2", b"other")
    writer = store.open("s")
    assert (list(read_records(writer)), writer.problems, writer.epoch) == (_samples(1, 2), [], 2)
    assert writer.read_queue() == [(1, b"hear")]
    writer.append(_samples(3, 3))
    writer.close()
    queue = store.open_queue("s")
    assert (queue.add("id:1", b"hear"), queue.add("id:3", b"more")) == ((1, False), (2, True))
    queue.close()


def test_sessions_for_others_are_made_in_one_statement_each(postgres: Database) -> None:
    """It takes the number of the next one, which is only good for the tables that are there by then."""
    store = postgres.store()
    for id in ("a", "b"):
        store.create_and_queue(id, _samples(1, 1), "id:1", b"hear")
    assert postgres.ask("SELECT number FROM steersman_sessions ORDER BY number") == [(1,), (2,)]
    assert postgres.ask("SELECT last_value FROM steersman_sessions_number_seq") == [(3,)]
    postgres.ask("DROP TABLE steersman_queue, steersman_records, steersman_sessions")
    other = postgres.store()
    other.create("c").close()
    store.create_and_queue("d", _samples(1, 1), "id:1", b"hear")
    for id in ("e", "f"):
        other.create(id).close()
    assert _records(store, "d") == _samples(1, 1)
    handle = store.open("d")
    assert (list(read_records(handle)), handle.read_queue()) == (_samples(1, 1), [(1, b"hear")])
    handle.close()


def test_a_writer_reads_the_session_as_it_finds_it(postgres: Database) -> None:
    """It asks once for both, and no more for a session that it makes."""
    store = postgres.store()
    for open, count in ((store.create, 0), (store.open, 2)):
        handle = open("s")
        assert list(read_records(handle)) == _samples(1, count)
        ((last,),) = postgres.ask(
            "SELECT query FROM pg_stat_activity WHERE application_name = %s", *postgres.backends()
        )
        assert "steersman_records" not in last
        handle.append(_samples(count + 1, count + 2))
        handle.close()


def test_a_writer_reads_what_was_added_before_it_had_the_lock(postgres: Database) -> None:
    """A former writer may commit its last record between the look at the session and the lock."""
    store = postgres.store()
    handle = store.create("s")
    handle.append(_samples(1, 2))
    handle.close()
    with psycopg.connect(postgres.dsn) as former, ThreadPoolExecutor(1) as pool:
        taken = former.execute("DELETE FROM steersman_records WHERE seq = 2 RETURNING session, seq, checksum, data")
        row = taken.fetchone()
        former.execute("UPDATE steersman_sessions SET last = 1")
        former.commit()
        former.execute("UPDATE steersman_sessions SET last = 2")
        former.execute("INSERT INTO steersman_records (session, seq, checksum, data) VALUES (%s, %s, %s, %s)", row)
        opening = pool.submit(store.open, "s")
        while postgres.ask("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            assert not opening.done()
        former.commit()
        handle = opening.result(timeout=20)
    assert (list(read_records(handle)), handle.problems) == (_samples(1, 2), [])
    handle.append(_samples(3, 3))
    handle.close()
    assert _records(store, "s") == _samples(1, 3)


def test_one_connection_listens_for_sessions_that_come_one_after_another(postgres: Database) -> None:
    """durable.md U2: a worker that runs one session at a time does not connect anew for each."""
    store = postgres.store()
    stop, pids = store.keep_ready(1), list[object]()
    for id in ("a", "b"):
        handle, woken = store.create(id), threading.Event()
        end = handle.watch_queue(woken.set)
        queue = store.open_queue(id)
        queue.add("id:1", b"hear")
        assert woken.wait(20)
        pids.append(postgres.ask("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"))
        for each in (end, queue.close, handle.close):
            each()
    stop()
    assert pids[0] == pids[1] != []


def test_tables_that_another_program_has_just_made_are_left_alone(postgres: Database) -> None:
    """A change of tables waits for all who use them, and two that wait for each other end in a deadlock."""
    with psycopg.connect(postgres.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_lock(%s)", (hash_to_int64("steersman tables"),))
        other.commit()
        creating = pool.submit(postgres.store().create, "s")
        wanted = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while postgres.ask(wanted) == [(0,)]:
            assert not creating.done()
        for table in TABLES:
            other.execute(table)
        other.commit()
        other.execute("SELECT count(*) FROM steersman_sessions")  # which holds the table until the end
        other.execute("SELECT pg_advisory_unlock_all()")
        creating.result(timeout=20).close()


def test_damage_is_told_and_what_follows_is_kept(postgres: Database) -> None:
    """failures.md H3: records that were changed, and records that are missing, in the middle and at the end."""
    writer = postgres.store().create("s")
    writer.append(_samples(1, 10))
    writer.close()
    postgres.ask("UPDATE steersman_records SET data = set_byte(data, 9, 0) WHERE seq = 2")
    postgres.ask("UPDATE steersman_records SET seq = 100 - seq WHERE seq IN (4, 96)")
    postgres.ask("DELETE FROM steersman_records WHERE seq IN (5, 10, 96)")
    writer = postgres.store().open("s")
    missing = [Problem("records 4 to 5", "Damaged, and left out."), Problem("record 10", "Damaged, and left out.")]
    assert (writer.last_seq, writer.problems) == (10, missing)
    writer.append(_samples(11, 11))
    kept = [make_record(seq) for seq in (1, 3, 6, 7, 8, 9, 11)]
    assert (list(read_records(writer)), list(read_records(writer, 4))) == (kept, kept[2:])
    found = [*missing, Problem("record 2", "Damaged, and left out.")]
    assert writer.problems == found
    postgres.ask("DELETE FROM steersman_records WHERE seq IN (7, 11)")
    assert list(read_records(writer)) == [make_record(seq) for seq in (1, 3, 6, 8, 9)]
    found += [Problem("record 7", "Damaged, and left out."), Problem("records 10 to 11", "Damaged, and left out.")]
    assert writer.problems == found
    writer.close()


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://user:a@{_CANARY}@localhost/db",
        f"postgresql://user:{_CANARY}/b@localhost/db",
        f"postgresql://user:a?{_CANARY}@b@localhost/db",
        f"postgresql://user:{_CANARY}%zz@localhost/db",
        f"postgresql://user:a#{_CANARY}/@localhost",
        f"host=localhost {_CANARY}",
        f"host=localhost port={_CANARY}",
    ],
)
def test_a_connection_string_that_cannot_be_read_is_not_quoted(dsn: str) -> None:
    """failures.md L13: a password that is not encoded must not be told as the name of a host or a port."""
    with pytest.raises(ValueError, match="The connection string cannot be read") as caught:
        PostgresStore(dsn)
    assert _CANARY not in "".join(traceback.format_exception(caught.value))


def test_no_error_has_the_password_in_it(postgres: Database) -> None:
    """failures.md L13: neither when it is wrong, nor when no server is there to take it."""
    postgres.ask("DROP ROLE IF EXISTS locked")
    postgres.ask("CREATE ROLE locked LOGIN PASSWORD 'another'")
    dsn = f"{postgres.dsn} user=locked password={_CANARY}"
    nowhere = f"postgresql://{_CANARY}:{_CANARY}@localhost:1/{_CANARY}"
    for store, reason in (
        (PostgresStore(dsn), 'password authentication failed for user "locked"'),
        (PostgresStore(nowhere), "Connection refused"),
    ):
        for act in (lambda store=store: store.create("s"), lambda store=store: store.open("s"), store.list):
            with pytest.raises(StoreFailed, match=reason) as caught:
                act()
            assert _CANARY not in "".join(traceback.format_exception(caught.value))
            assert "\n" not in str(caught.value)
    assert _CANARY not in repr(PostgresStore(dsn))


@pytest.mark.real_time
def test_a_forked_child_neither_writes_nor_keeps_the_lock(postgres: Database) -> None:
    """It reads by a connection of its own, and the parent's is not disturbed."""
    program = """
import os
handle = store.create(name)
handle.append([make_record(1)])
print("made", flush=True)
sys.stdin.readline()
if os.fork():
    print(os.wait()[1], flush=True)
    handle.append([make_record(2)])
    if os.fork():
        sys.stdin.readline()
    else:
        print(os.getpid(), flush=True)
        os.read(0, 1)  # it lives on when its parent is dead
        os._exit(0)
else:
    assert [seq for seq, _ in handle.lines()] == [1]
    try:
        handle.append([make_record(2)])
    except SessionBusy as error:
        print(error, flush=True)
    handle.close()
    os._exit(0)
"""
    with Writer(program, postgres.dsn, "s") as writer:
        assert writer.hear() == "ready"
        writer.go()
        assert writer.hear() == "made"
        made = postgres.backends()
        writer.go()
        assert writer.hear() == "The session 's' is written to by the process this one was forked from."
        assert writer.hear() == "0"
        child = int(writer.hear())
        try:
            assert len(made) == 1
            assert made <= postgres.backends()
            writer.process.kill()
            writer.process.wait()
            _freed(postgres.store(), "s")
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)
    assert _records(postgres.store(), "s") == _samples(1, 2)


def test_without_the_driver_the_error_names_the_extra() -> None:
    """Importing costs nothing until a store is made."""
    program = """
import sys
sys.modules["psycopg"] = None
from steersman.session.stores.postgres.store import PostgresStore
from steersman.types.errors import MissingExtra
try:
    PostgresStore("host=localhost")
except MissingExtra as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "PostgresStore needs psycopg 3: pip install 'steersman[postgres]'.\n"


def test_every_statement_that_writes_says_the_epoch(postgres: Database) -> None:
    """durable.md U3: the database refuses the former owner, also on a connection that was never lost."""
    handle = postgres.store().create("s")
    handle.append(_samples(1, 1))
    postgres.ask("UPDATE steersman_sessions SET epoch = epoch + 1")
    for act in (lambda: handle.append(_samples(2, 2)), lambda: handle.set_title("Mine"), handle.erase):
        with pytest.raises(SessionTaken, match="was taken over by another writer"):
            act()
    handle.close()
    assert _records(postgres.store(), "s") == _samples(1, 1)
    assert [summary.title for summary in postgres.store().list()] == [""]


def test_the_tables_of_an_older_version_get_what_they_lack(postgres: Database) -> None:
    """durable.md U2, U3: by the first writer; a reader needs none of it."""
    handle = postgres.store().create("s")
    handle.append(_samples(1, 2))
    handle.close()
    postgres.ask("DROP TABLE steersman_queue")
    postgres.ask("ALTER TABLE steersman_sessions DROP COLUMN epoch, DROP COLUMN queued")
    assert _records(postgres.store(), "s") == _samples(1, 2)
    assert [summary.id for summary in postgres.store().list()] == ["s"]
    queue = postgres.store().open_queue("s")
    assert queue.add("a", b"1") == (1, True)
    handle = postgres.store().open("s")
    handle.append(_samples(3, 3))
    assert (handle.epoch, list(handle.read_queue())) == (1, [(1, b"1")])
    handle.close()
    queue.close()


def test_a_listener_hears_again_after_its_connection_was_cut(postgres: Database) -> None:
    """durable.md U2: what was queued meanwhile is not forgotten."""
    handle = postgres.store().create("s")
    woken = threading.Event()
    handle.watch_queue(lambda: woken.set() if handle.read_queue() else None)
    queue = postgres.store().open_queue("s")
    for number in range(2):
        postgres.cut()
        queue.add(f"{number}", b"1")
        assert woken.wait(30)
        woken.clear()
    queue.close()
    handle.close()


def test_the_next_session_uses_the_connection_of_the_last_one(postgres: Database) -> None:
    """It is free of its lock; and one that was cut while it was not in use is replaced."""
    store = postgres.store()
    store.create("s").close()
    kept = postgres.backends()
    assert len(kept) == 1
    other = postgres.store().open("s")  # the lock is free
    other.append(_samples(1, 1))
    other.close()
    for _ in range(3):
        handle = store.open("s")
        assert list(read_records(handle)) == _samples(1, 1)
        assert kept <= postgres.backends()
        handle.close()
    postgres.cut()
    handle = store.open("s")
    handle.append(_samples(2, 2))
    with pytest.raises(SessionBusy):
        postgres.store().open("s")
    assert not kept & postgres.backends()
    handle.close()


def test_a_store_keeps_few_connections_and_closes_them_with_itself(postgres: Database) -> None:
    store = postgres.store()
    handles = [store.create(f"s{number}") for number in range(MOST_IDLE + 3)]
    assert len(postgres.backends()) == MOST_IDLE + 3
    while handles:
        handles.pop().close()
    assert postgres.count_backends(MOST_IDLE) == MOST_IDLE
    del store
    gc.collect()
    assert postgres.count_backends(0) == 0


def test_a_program_that_has_many_sessions_open_at_once_keeps_as_many_connections(postgres: Database) -> None:
    store = postgres.store()
    stop = store.keep_ready(MOST_IDLE + 2)
    handles = [store.create(f"s{number}") for number in range(MOST_IDLE + 3)]
    while handles:
        handles.pop().close()
    assert postgres.count_backends(MOST_IDLE + 3) == MOST_IDLE + 3  # with the one that listens
    stop()
    assert postgres.count_backends(MOST_IDLE) == MOST_IDLE


def test_a_writer_looks_at_the_queue_when_it_has_let_go_of_the_session(postgres: Database) -> None:
    """In this order, so that whoever queues something and sees a writer can rely on its last look."""
    store = postgres.store()
    handle = store.create("s")
    (writer,) = postgres.backends()
    with closing(store.open_queue("s")) as queue:
        queue.add("first", b"1")
    assert handle.close_and_look() == [(1, b"1")]
    ((last,),) = postgres.ask("SELECT query FROM pg_stat_activity WHERE application_name = %s", writer)
    assert "steersman_queue" in last
    assert not store.has_writer("s")
    assert store.open("s").close_and_look() == [(1, b"1")], "It is in the queue until a writer has recorded it."


def test_a_writer_that_has_lost_its_connection_does_not_say_that_nothing_is_queued(postgres: Database) -> None:
    handle = postgres.store().create("s")
    postgres.cut()
    assert handle.close_and_look() is None


def test_what_a_handle_can_do_is_found_without_asking_the_server(postgres: Database) -> None:
    """Some of its properties ask, such as `problems`."""
    store = postgres.store()
    handle = store.create("s")
    handle.append(_samples(1, 2))
    handle.close()
    handle = store.open("s")
    assert (is_shared(handle), is_followed(handle)) == (True, True)
    ((last,),) = postgres.ask("SELECT query FROM pg_stat_activity WHERE application_name = %s", *postgres.backends())
    assert "pg_try_advisory_lock" in last
    handle.close()


def test_all_stores_of_a_program_keep_few_connections_together(postgres: Database) -> None:
    stores = [postgres.store() for _ in range(MOST_IDLE + 3)]
    for number, store in enumerate(stores):
        store.create(f"s{number}").close()
    assert postgres.count_backends(MOST_IDLE) == MOST_IDLE


def test_tables_that_are_made_later_are_found(postgres: Database) -> None:
    """Also by a store that has looked before there were any, and after they were made anew."""
    store = postgres.store()
    assert store.list() == []
    for _ in range(2):
        postgres.store().create("s").close()
        handle = store.open("s")
        with pytest.raises(SessionBusy):
            postgres.store().open("s")
        handle.close()
        postgres.ask("DROP TABLE steersman_queue, steersman_records, steersman_sessions")


def test_a_session_that_could_not_be_opened_is_not_locked(postgres: Database) -> None:
    """The lock was taken, and then the session was not as expected."""
    store = postgres.store()
    store.create("s").close()
    postgres.ask("ALTER TABLE steersman_sessions RENAME COLUMN epoch TO hidden")
    with pytest.raises(StoreFailed):
        store.open("s")
    postgres.ask("ALTER TABLE steersman_sessions RENAME COLUMN hidden TO epoch")
    postgres.store().open("s").close()
