"""A journal that an event loop writes keeps all that one with a thread does, whatever happens to its connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest
from tests.session.database import Database

from steersman.session.journal import JournalWriter
from steersman.session.stores.postgres.handle import PostgresHandle
from steersman.session.stores.store import read_records

pytestmark = pytest.mark.real_time

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s AND wait_event_type = 'Lock'"


@asynccontextmanager
async def opened(
    database: Database, *, lag: float = 60.0, timeout: float = 30.0
) -> AsyncGenerator[tuple[PostgresHandle, JournalWriter]]:
    """A new session whose journal this event loop writes."""
    handle = database.store(timeout=timeout).create("s")
    journal = JournalWriter(handle, lag=lag, retry=60)
    journal.write_in(asyncio.get_running_loop())
    try:
        yield handle, journal
    finally:
        await asyncio.to_thread(journal.close)


def read(database: Database) -> list[int]:
    """What the records of the session say."""
    reader = database.store().open("s", write=False)
    try:
        return [record.payload["number"] for record in read_records(reader)]
    finally:
        reader.close()


def find_journals() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("steersman-journal")]


@contextmanager
def hold(database: Database) -> Generator[psycopg.Connection]:
    """Have what is appended wait until this has ended."""
    with psycopg.connect(database.dsn) as connection:
        connection.execute("SELECT FROM steersman_sessions FOR UPDATE")
        yield connection


async def wait_for_append(database: Database) -> None:
    """Wait until the server has got the records."""
    async with asyncio.timeout(30):
        while True:
            if database.ask(WAITING, f"{database.name} %") == [(1,)]:
                return
            await asyncio.sleep(0.01)


async def test_an_event_loop_writes_without_a_thread(postgres: Database) -> None:
    """Also a group with all kinds of values, and records that wait for nothing."""
    async with opened(postgres, lag=0.01) as (_, journal):
        before = find_journals()
        for number in range(1, 31):
            journal.add("note", {"number": number})
            if number % 3:
                assert await journal.wait_until_saved()
        saved = asyncio.Event()
        journal.on_saved = lambda seq: saved.set() if seq == 31 else None
        journal.add("note", {"number": 31})
        await asyncio.wait_for(saved.wait(), 30)
        assert find_journals() == before
        assert (journal.degraded, journal.last_saved) == (None, 31)
    assert read(postgres) == [*range(1, 32)]


async def test_other_threads_use_the_connection_meanwhile(postgres: Database) -> None:
    """Each record is there once and in order, whoever has read the answer."""
    async with opened(postgres, lag=0.001) as (handle, journal):

        def look() -> None:
            for _ in range(50):
                assert handle.read_queue() == []
                assert journal.flush()

        async def write() -> None:
            for _ in range(50):
                journal.add("note", {"number": journal.seq + 1})
                assert await journal.wait_until_saved()

        async with asyncio.TaskGroup() as group:
            for work in (write(), write(), asyncio.to_thread(look), asyncio.to_thread(look)):
                group.create_task(work)
    assert read(postgres) == [*range(1, 101)]


async def test_the_event_loop_itself_may_block(postgres: Database) -> None:
    """It reads the answer where it waits for it."""
    async with opened(postgres) as (handle, journal):
        journal.add("note", {"number": 1})
        saving = asyncio.ensure_future(journal.wait_until_saved())
        await asyncio.sleep(0)
        assert handle.read_queue() == []
        journal.add("note", {"number": 2})
        assert journal.flush()
        assert await saving
    assert read(postgres) == [1, 2]


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_lost_connection_costs_nothing(postgres: Database, *, is_under_way: bool) -> None:
    """A thread connects again, and then the event loop goes on."""
    async with opened(postgres) as (_, journal):
        journal.add("note", {"number": 1})
        assert await journal.wait_until_saved()
        if is_under_way:
            with hold(postgres):
                journal.add("note", {"number": 2})
                saving = asyncio.ensure_future(journal.wait_until_saved())
                await wait_for_append(postgres)
                await asyncio.to_thread(postgres.cut)
        else:
            await asyncio.to_thread(postgres.cut)
            journal.add("note", {"number": 2})
            saving = asyncio.ensure_future(journal.wait_until_saved())
        assert await saving
        journal.add("note", {"number": 3})
        assert await journal.wait_until_saved()
    assert read(postgres) == [1, 2, 3]


async def test_nothing_is_written_after_a_takeover(postgres: Database) -> None:
    """durable.md U3: the save that finds out says so, after the run was told."""
    async with opened(postgres) as (_, journal):
        told: list[str] = []
        journal.on_taken = told.append
        journal.add("note", {"number": 1})
        assert await journal.wait_until_saved()
        other = await asyncio.to_thread(postgres.store().take_over, "s")
        journal.add("note", {"number": 2})
        assert not await journal.wait_until_saved()
        assert told == [journal.taken]
        assert journal.taken is not None
        assert journal.taken.startswith("The session 's' was taken over by another writer.")
        await asyncio.to_thread(other.close)
    assert read(postgres) == [1]


async def test_an_answer_that_does_not_come_in_time_is_a_refusal(postgres: Database) -> None:
    """The records are kept, and saved by the next save."""
    async with opened(postgres, timeout=0.5) as (_, journal):
        with hold(postgres):
            journal.add("note", {"number": 1})
            assert not await journal.wait_until_saved()
            assert journal.degraded is not None
        journal.add("note", {"number": 2})
        assert await journal.wait_until_saved()
        assert journal.degraded is None
    assert read(postgres) == [1, 2]


async def test_what_is_under_way_is_waited_for_when_the_session_is_closed(postgres: Database) -> None:
    """And what was added since is written, too."""
    async with opened(postgres) as (_, journal):
        with hold(postgres) as holding:
            journal.add("note", {"number": 1})
            saving = asyncio.ensure_future(journal.wait_until_saved())
            await wait_for_append(postgres)
            journal.add("note", {"number": 2})
            closing = asyncio.ensure_future(asyncio.to_thread(journal.close))
            holding.rollback()
        await closing
        assert await saving
    assert read(postgres) == [1, 2]


async def test_what_the_driver_has_forgotten_is_prepared_again(postgres: Database) -> None:
    """After a rollback it has the server forget all statements, ours as well."""
    store = postgres.store()
    for number in range(8):
        store.create(f"before-{number}").close()
    async with opened(postgres):
        with pytest.raises(Exception, match="is being written to"):
            store.open("s")
    for name in ("first", "second"):
        handle = store.create(name)
        journal = JournalWriter(handle)
        journal.write_in(asyncio.get_running_loop())
        for number in range(3):
            journal.add("note", {"number": number})
            assert await journal.wait_until_saved()
        await asyncio.to_thread(journal.close)
        assert len([*handle.problems]) == 0


def test_an_event_loop_that_has_ended_is_no_loss(postgres: Database) -> None:
    """What it had begun is finished by the thread that closes the session."""
    handle = postgres.store().create("s")
    journal = JournalWriter(handle, lag=60, retry=60)

    async def begin() -> None:
        journal.write_in(asyncio.get_running_loop())
        journal.add("note", {"number": 1})
        saving = asyncio.ensure_future(journal.wait_until_saved())
        await asyncio.sleep(0)
        saving.cancel()

    asyncio.run(begin())
    journal.add("note", {"number": 2})
    journal.close()
    assert read(postgres) == [1, 2]
