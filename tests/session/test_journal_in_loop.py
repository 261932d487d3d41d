"""A journal that an event loop writes does each thing once, whoever hears the answer of the store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.session.shaky import ShakyHandle

from steersman.session.journal import JournalWriter
from steersman.session.records import Record
from steersman.session.stores.store import Finishing, check_sequence

pytestmark = pytest.mark.real_time

SESSIONS = 200
SAVES = 30


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(former)


class _Begun:
    def __init__(self, answer: Future[None]) -> None:
        self._answer = answer

    def finish(self) -> None:
        self._answer.result()


class StrictHandle(ShakyHandle):
    """One session in memory that begins to append in the event loop, and takes no record twice."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self._pool = pool

    def append(self, records: Sequence[Record], /) -> None:
        check_sequence(self.session_id, self.last_seq, records)
        super().append(records)

    def begin_append(self, records: Sequence[Record], tell: Callable[[bool], None], /) -> Finishing | None:
        def answer() -> None:
            self.append(records)
            tell(True)

        return _Begun(self._pool.submit(answer))


async def test_a_saved_group_is_not_given_to_the_store_once_more() -> None:
    """Neither by the thread of the journal nor by one that closes it: the store would refuse it, and so the save."""
    with ThreadPoolExecutor(4) as pool:
        for _ in range(SESSIONS):
            handle = StrictHandle(pool)
            journal = JournalWriter(handle, lag=0.0005, retry=60)
            journal.write_in(asyncio.get_running_loop())

            async def write(journal: JournalWriter = journal) -> None:
                for _ in range(SAVES):
                    journal.add("note", {})
                    assert await journal.wait_until_saved(), journal.degraded

            def flush(journal: JournalWriter = journal) -> None:
                for _ in range(SAVES):
                    assert journal.flush(), journal.degraded

            async with asyncio.TaskGroup() as group:
                for work in (write(), asyncio.to_thread(flush), asyncio.to_thread(flush)):
                    group.create_task(work)
            journal.add("note", {})
            saving = asyncio.ensure_future(journal.wait_until_saved())
            await asyncio.sleep(0)
            await asyncio.to_thread(journal.close)
            assert await saving, journal.degraded
            assert journal.degraded is None
            assert [record.seq for record in handle.records] == [*range(1, SAVES + 2)]
