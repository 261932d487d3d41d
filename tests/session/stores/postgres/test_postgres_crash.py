"""A PostgreSQL server that crashes and comes back: what it acknowledged is there, and the session goes on by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from tests.session.database import Database
from tests.session.stores.postgres.server import NoServer, Server, some_server

from steersman.session.journal import JournalWriter
from steersman.session.records import Record
from steersman.session.stores.store import Problem, StoreFailed, read_records
from steersman.testing.store_checks import make_record

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One to crash."""
    try:
        server = some_server()
    except NoServer as reason:
        pytest.skip(str(reason))
    yield server
    server.remove()


def _samples(first: int, last: int) -> list[Record]:
    return [make_record(seq) for seq in range(first, last + 1)]


def test_a_server_that_crashes_has_all_it_acknowledged(server: Server) -> None:
    """In the middle of appending; the same handle goes on when the server is back."""
    writer = Database.made(server.dsn).store().create("s")
    writer.append(_samples(1, 1))
    some = threading.Event()
    refused: list[StoreFailed] = []

    def write() -> None:
        try:
            while True:
                writer.append(_samples(writer.last_seq + 1, writer.last_seq + 3))
                if writer.last_seq > 30:
                    some.set()
        except StoreFailed as error:
            refused.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert some.wait(30)
    finally:
        server.crash()
        thread.join()
    acknowledged = writer.last_seq
    with pytest.raises(StoreFailed, match=r"'s' could not be written: connection .* failed: No such file"):
        writer.append(_samples(acknowledged + 1, acknowledged + 3))
    with pytest.raises(StoreFailed, match=r"'s' could not be read: connection .* failed: No such file"):
        list(writer.lines())
    server.start()
    writer.append(_samples(acknowledged + 1, acknowledged + 4))
    assert len(refused) == 1
    assert (writer.last_seq, list(read_records(writer))) == (acknowledged + 4, _samples(1, acknowledged + 4))
    writer.close()


async def test_a_journal_goes_on_when_the_server_is_back(server: Server) -> None:
    """failures.md H7, H8: it says what is wrong meanwhile, and nothing is lost or doubled."""
    store = Database.made(server.dsn).store()
    journal = JournalWriter(store.create("s"), retry=0.01)
    journal.add("note", {"number": 1})
    assert (await journal.wait_until_saved(), journal.degraded) == (True, None)
    server.crash()
    journal.add("note", {"number": 2})
    assert not await journal.wait_until_saved()
    assert journal.degraded is not None
    assert journal.degraded.startswith("The session 's' could not be written: ")
    server.start()
    journal.add("note", {"number": 3})
    assert (await journal.wait_until_saved(), journal.degraded, journal.last_saved) == (True, None, 3)
    journal.close()
    reader = store.open("s", write=False)
    assert [(record.seq, record.payload) for record in read_records(reader)] == [
        (seq, {"number": seq}) for seq in (1, 2, 3)
    ]
    reader.close()


def test_damage_that_the_server_finds_is_told_and_what_follows_is_kept(server: Server) -> None:
    """failures.md H3: a page of its file is overwritten, and the records in the others are read."""
    database = Database.made(server.dsn)
    records = [make_record(seq, text="x" * 1_500) for seq in range(1, 41)]
    writer = database.store().create("s")
    writer.append(records)
    writer.close()
    ((file,),) = database.ask("SELECT pg_relation_filepath('steersman_records')")
    pages = dict(_pages(database))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    server.crash()
    with (server.data / file).open("r+b") as table:
        table.seek(2 * 8192 + 4096)
        table.write(b"\xff" * 512)
    server.start()
    lost = [seq for seq, page in pages.items() if page == 2]
    reader = database.store().open("s", write=False)
    assert list(read_records(reader)) == [record for record in records if record.seq not in lost]
    assert reader.problems == [Problem(f"record {seq}", "Damaged, and left out.") for seq in lost]
    reader.close()
    assert 0 < len(lost) < 10


def _pages(database: Database) -> list[tuple[int, int]]:
    found = database.ask("SELECT seq, (ctid::text::point)[0]::bigint FROM steersman_records ORDER BY seq")
    return [(seq, page) for seq, page in found]
