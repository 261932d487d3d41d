"""A journal keeps what it was given: in order, once, a group at a time; a store that refuses costs nothing but time."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import SOAK
from tests.session.shaky import ShakyHandle

from steersman.session.journal import JournalWriter
from steersman.session.records import decode
from steersman.session.stores.store import StoreFailed

pytestmark = pytest.mark.real_time

T = TypeVar("T")

FULL = "The disk is full."
REFUSALS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "a full disk": (lambda: StoreFailed(FULL), FULL),
    "an I/O error": (lambda: OSError(errno.EIO, "Input/output error"), "OSError: [Errno 5] Input/output error"),
    "no more files": (lambda: OSError(errno.EMFILE, "Too many open files"), "OSError: [Errno 24] Too many open files"),
    "a bug": (lambda: KeyError("seq"), "KeyError: 'seq'"),
    "no memory": (MemoryError, "MemoryError"),
    "an exit": (lambda: SystemExit(3), "SystemExit: 3"),
}


def journals() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("steersman-journal")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(journals())
    yield
    assert not set(journals()) - before


@pytest.fixture
def handle() -> ShakyHandle:
    return ShakyHandle()


@pytest.fixture
def journal(handle: ShakyHandle) -> Iterator[JournalWriter]:
    """Neither the lag nor the retry comes to pass by itself, unless a test makes its own."""
    journal = JournalWriter(handle, lag=60, retry=60)
    yield journal
    handle.free.set()
    handle.error = None
    journal.close()
    assert handle.closed == 1


def add(journal: JournalWriter, count: int = 1) -> None:
    for _ in range(count):
        journal.add("label", {"target": None, "text": f"number {journal.seq + 1}"})


def texts(handle: ShakyHandle) -> list[str]:
    return [record.payload["text"] for record in handle.records]


def numbered(count: int) -> list[str]:
    return [f"number {number}" for number in range(1, count + 1)]


async def ended(*tasks: asyncio.Task[T]) -> list[T]:
    await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def begun(handle: ShakyHandle) -> None:
    assert await asyncio.to_thread(handle.began.wait, 30)


async def test_what_was_added_is_safe_once_synced_with_one_sync_for_all(
    journal: JournalWriter, handle: ShakyHandle
) -> None:
    add(journal, 50)
    assert await journal.wait_until_saved()
    assert texts(handle) == numbered(50)
    assert handle.groups == [50]
    assert (journal.seq, journal.last_saved, journal.degraded) == (50, 50, None)
    assert await journal.wait_until_saved()
    assert handle.tries == 1, "Nothing new is nothing to write."


async def test_what_comes_during_a_sync_is_the_next_group(journal: JournalWriter, handle: ShakyHandle) -> None:
    handle.free.clear()
    add(journal)
    first = asyncio.create_task(journal.wait_until_saved())
    await begun(handle)
    add(journal, 3)
    waiters = [asyncio.create_task(journal.wait_until_saved()) for _ in range(5)]
    await asyncio.sleep(0)
    add(journal, 2)
    handle.free.set()
    assert await ended(first, *waiters) == [True] * 6
    assert handle.groups == [1, 5]
    assert texts(handle) == numbered(6)


def test_a_waiter_is_told_while_others_may_add(journal: JournalWriter, handle: ShakyHandle) -> None:
    """A run that goes on adds a record at once: it must not wait for the thread that has told it."""
    could_add: list[bool] = []

    class Loop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *args: Any, **named: Any) -> asyncio.Handle:
            if threading.current_thread() in journals():
                other = threading.Thread(target=add, args=(journal,))
                other.start()
                other.join(10)
                could_add.append(not other.is_alive())
            return super().call_soon_threadsafe(*args, **named)

    add(journal)
    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(journal.wait_until_saved())
    assert could_add == [True]
    assert journal.flush()
    assert texts(handle) == numbered(2)


def test_records_without_a_waiter_are_kept_soon(handle: ShakyHandle) -> None:
    journal = JournalWriter(handle, lag=0.001)
    add(journal)
    handle.wait_for(1)
    add(journal, 2)
    handle.wait_for(3)
    journal.close()
    assert texts(handle) == numbered(3)


def test_a_journal_goes_on_from_the_last_record(handle: ShakyHandle) -> None:
    for start in (0, 2):
        handle.closed = 0
        journal = JournalWriter(handle)
        add(journal, 2)
        assert journal.seq == start + 2
        journal.close()
    assert [record.seq for record in handle.records] == [1, 2, 3, 4]


async def test_the_order_is_that_of_the_numbers_whatever_the_clock_says(handle: ShakyHandle) -> None:
    """failures.md H12."""
    times = iter([5.0, 3.0, 4.0])
    journal = JournalWriter(handle, clock=lambda: next(times))
    add(journal, 3)
    assert await journal.wait_until_saved()
    assert [(record.seq, record.time) for record in handle.records] == [(1, 5.0), (2, 3.0), (3, 4.0)]
    journal.close()


@pytest.mark.parametrize("late", [False, True], ids=["not kept", "kept but not told"])
@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("nth", [1, 2, 5])
async def test_a_refused_group_is_kept_when_the_store_takes_it_again(
    handle: ShakyHandle, caplog: pytest.LogCaptureFixture, nth: int, name: str, late: bool
) -> None:
    """failures.md H7, H8: the state says why, the run goes on, each sync tries again, and then all of it is there."""
    error, reason = REFUSALS[name]
    journal = JournalWriter(handle, lag=60, retry=60)
    for number in range(1, nth):
        add(journal)
        assert await journal.wait_until_saved()
        assert len(handle.records) == number
    handle.error, handle.late = error, late
    with caplog.at_level(logging.WARNING, "steersman"):
        for _ in range(3):
            add(journal, 2)
            assert not await journal.wait_until_saved()
            assert journal.degraded == reason
            assert journal.last_saved == nth - 1
    assert [record.message for record in caplog.records] == [f"Session 'shaky' goes on in memory: {reason}"]
    assert texts(handle) == numbered(nth + 5 if late else nth - 1)
    assert [decode(line).payload["text"] for _, line in journal.lines()] == numbered(nth + 5)
    handle.error = None
    assert await journal.wait_until_saved()
    assert journal.degraded is None
    assert texts(handle) == numbered(nth + 5)
    journal.close()


def test_a_refused_group_is_tried_again_by_itself(handle: ShakyHandle) -> None:
    """failures.md H7: a disk that was full for two minutes is no reason to lose the hours after them."""
    journal = JournalWriter(handle, lag=0.001, retry=0.001)
    handle.error = REFUSALS["a full disk"][0]
    add(journal, 3)
    assert not journal.flush()
    add(journal)
    handle.error = None
    handle.wait_for(4)
    assert journal.flush()
    assert (texts(handle), journal.degraded) == (numbered(4), None)
    journal.close()


def test_what_waited_long_is_written_in_groups_that_are_not_too_long(handle: ShakyHandle) -> None:
    journal = JournalWriter(handle, lag=60, retry=60)
    handle.error = REFUSALS["a full disk"][0]
    add(journal)
    assert not journal.flush()
    add(journal, 2_400)
    handle.error = None
    assert journal.flush()
    assert handle.groups == [1_000, 1_000, 401]
    assert texts(handle) == numbered(2_401)
    journal.close()


def test_closing_writes_what_is_left(handle: ShakyHandle) -> None:
    journal = JournalWriter(handle, lag=60)
    add(journal, 3)
    journal.close()
    journal.close()
    assert (texts(handle), handle.groups, handle.closed) == (numbered(3), [3], 1)


def test_closing_tries_once_more_what_was_refused(handle: ShakyHandle) -> None:
    journal = JournalWriter(handle, lag=60, retry=60)
    handle.error = REFUSALS["a full disk"][0]
    add(journal, 3)
    assert not journal.flush()
    handle.error = None
    journal.close()
    assert (texts(handle), journal.degraded) == (numbered(3), None)


def test_what_is_refused_to_the_end_is_told(handle: ShakyHandle, caplog: pytest.LogCaptureFixture) -> None:
    journal = JournalWriter(handle, lag=60, retry=60)
    handle.error = REFUSALS["a full disk"][0]
    add(journal, 3)
    with caplog.at_level(logging.ERROR, "steersman"):
        journal.close()
    assert [record.message for record in caplog.records] == [
        f"Session 'shaky' goes on in memory: {FULL}",
        f"3 records of session 'shaky' were not kept: {FULL}",
    ]
    assert (handle.tries, handle.closed) == (1, 1)
    assert not journal.flush()
    assert handle.tries == 1


async def test_after_closing_nothing_raises_and_nothing_hangs(handle: ShakyHandle) -> None:
    journal = JournalWriter(handle)
    add(journal)
    journal.close()
    assert await journal.wait_until_saved()
    add(journal)
    assert not await journal.wait_until_saved()
    assert not journal.flush()
    assert journal.degraded == "The session 'shaky' is closed."
    assert texts(handle) == numbered(1)


@pytest.mark.parametrize("refused", [False, True])
async def test_a_waiter_is_told_when_it_is_closed(handle: ShakyHandle, *, refused: bool) -> None:
    journal = JournalWriter(handle, lag=60)
    handle.free.clear()
    add(journal)
    waiters = [asyncio.create_task(journal.wait_until_saved()), asyncio.create_task(asyncio.to_thread(journal.flush))]
    await begun(handle)
    add(journal)
    waiters.append(asyncio.create_task(journal.wait_until_saved()))
    await asyncio.sleep(0)
    closing = asyncio.create_task(asyncio.to_thread(journal.close))
    handle.error = REFUSALS["a full disk"][0] if refused else None
    handle.free.set()
    assert await ended(*waiters) == [not refused] * 3
    await closing
    assert texts(handle) == ([] if refused else numbered(2))


def test_a_store_that_closes_its_own_journal_is_the_last_to_write(handle: ShakyHandle) -> None:
    journal = JournalWriter(handle, lag=60)
    handle.during = journal.close
    add(journal)
    assert journal.flush()
    journal.close()
    assert (texts(handle), handle.closed) == (numbered(1), 1)


async def test_a_cancelled_waiter_holds_up_no_other(journal: JournalWriter, handle: ShakyHandle) -> None:
    handle.free.clear()
    add(journal)
    gone, stays = asyncio.create_task(journal.wait_until_saved()), asyncio.create_task(journal.wait_until_saved())
    await begun(handle)
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()
    handle.free.set()
    assert await stays
    assert texts(handle) == numbered(1)


def test_a_closed_event_loop_holds_up_no_other(journal: JournalWriter, handle: ShakyHandle) -> None:
    handle.free.clear()
    add(journal)

    async def leave() -> None:
        waiting = asyncio.create_task(journal.wait_until_saved())
        await begun(handle)
        waiting.cancel()

    asyncio.run(leave())
    handle.free.set()
    assert journal.flush()

    async def come_back() -> bool:
        add(journal)
        return await journal.wait_until_saved()

    assert asyncio.run(come_back())
    assert texts(handle) == numbered(2)


def test_many_threads_and_event_loops_may_use_one_journal(journal: JournalWriter, handle: ShakyHandle) -> None:
    answers: list[bool] = []

    async def work() -> None:
        for _ in range(25):
            journal.add("label", {"text": threading.current_thread().name})
            answers.append(await journal.wait_until_saved())

    threads = [threading.Thread(target=asyncio.run, args=(work(),), name=f"user {n}") for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 150
    assert [record.seq for record in handle.records] == [*range(1, 151)]
    assert sorted(texts(handle)) == sorted([f"user {n}" for n in range(6)] * 25)
    assert len(handle.groups) <= 150


def test_a_thread_with_nothing_to_do_ends_until_it_is_needed(handle: ShakyHandle) -> None:
    journal = JournalWriter(handle, lag=0.001, idle=0.001)
    for count in (1, 2):
        add(journal)
        assert journal.flush()
        for thread in journals():
            thread.join(30)
            assert not thread.is_alive()
        assert texts(handle) == numbered(count)
    journal.close()


STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 4)),
    st.tuples(st.just("refuse"), st.sampled_from(sorted(REFUSALS)), st.booleans()),
    st.just(("take",)),
    st.just(("sync",)),
    st.just(("flush",)),
    st.just(("leave",)),
    st.just(("crowd",)),
    st.just(("hold",)),
    st.just(("let go",)),
    st.just(("reopen",)),
)


class Machine:
    """A journal, the store under it, and what must hold after each step."""

    def __init__(self, lag: float, retry: float) -> None:
        self.handle = ShakyHandle()
        self.open = lambda: JournalWriter(self.handle, lag=lag, retry=retry)
        self.journal = self.open()
        self.added: list[str] = []
        self.acknowledged = 0
        self.waiting: list[tuple[int, asyncio.Task[bool]]] = []

    async def step(self, name: str, *args: Any) -> None:
        await getattr(self, f"step_{name.replace(' ', '_')}")(*args)
        self.check()

    def check(self) -> None:
        kept = [record.id for record in self.handle.records]
        assert kept == self.added[: len(kept)]
        assert [record.seq for record in self.handle.records] == [*range(1, len(kept) + 1)]
        assert self.acknowledged <= len(kept)
        assert self.journal.seq == len(self.added)

    async def step_add(self, count: int) -> None:
        self.added += [self.journal.add("label", {}).id for _ in range(count)]

    async def step_refuse(self, name: str, late: bool) -> None:
        self.handle.late = late
        self.handle.error = REFUSALS[name][0]

    async def step_take(self) -> None:
        self.handle.error = None

    async def step_sync(self) -> None:
        self.waiting.append((len(self.added), asyncio.create_task(self.journal.wait_until_saved())))
        await asyncio.sleep(0)
        await self.hear()

    async def step_flush(self) -> None:
        self.waiting.append((len(self.added), asyncio.create_task(asyncio.to_thread(self.journal.flush))))
        await self.hear()

    async def step_leave(self) -> None:
        task = asyncio.create_task(self.journal.wait_until_saved())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    async def step_crowd(self) -> None:
        lists: list[list[str]] = [[], [], []]

        def work(own: list[str]) -> None:
            own.extend(self.journal.add("label", {}, id=f"{len(self.added)}.{id(own)}.{n}").id for n in range(3))

        await ended(*(asyncio.create_task(asyncio.to_thread(work, own)) for own in lists))
        seen = [decode(line).id for _, line in self.journal.lines(len(self.added))]
        assert sorted(seen) == sorted(id for own in lists for id in own)
        assert all([id for id in seen if id in own] == own for own in lists)
        self.added += seen

    async def step_hold(self) -> None:
        self.handle.free.clear()

    async def step_let_go(self) -> None:
        self.handle.free.set()
        await self.hear()

    async def step_reopen(self) -> None:
        self.handle.free.set()
        await asyncio.to_thread(self.journal.close)
        await self.hear()
        if self.handle.error is None:
            assert [record.id for record in self.handle.records] == self.added
        # What was refused to the end is gone, and the next journal goes on from what is kept.
        del self.added[len(self.handle.records) :]
        self.handle.closed = 0
        self.journal = self.open()

    async def hear(self) -> None:
        """Unless the store is held up, a waiter is told, and told the truth."""
        if not self.handle.free.is_set():
            return
        for wanted, task in self.waiting:
            if await asyncio.wait_for(task, 30):
                assert len(self.handle.records) >= wanted
                self.acknowledged = max(self.acknowledged, wanted)
        self.waiting.clear()

    async def end(self) -> None:
        self.handle.free.set()
        self.handle.error = None
        await self.hear()
        assert await self.journal.wait_until_saved()
        assert self.journal.degraded is None
        assert [record.id for record in self.handle.records] == self.added
        self.journal.close()


@settings(max_examples=2_000 if SOAK else 150)
@given(st.lists(STEPS, max_size=25), st.sampled_from([0.0, 60.0]), st.sampled_from([0.0, 60.0]))
async def test_nothing_is_lost_doubled_or_out_of_order_whatever_happens(
    steps: list[tuple[Any, ...]], lag: float, retry: float
) -> None:
    """failures.md I8, I18: what is kept is always a beginning of what was added, and a sync never lies."""
    machine = Machine(lag, retry)
    try:
        for step in steps:
            await machine.step(*step)
        await machine.end()
    finally:
        machine.handle.free.set()
        machine.journal.close()
