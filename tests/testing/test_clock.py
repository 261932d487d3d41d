"""The virtual clock."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest
from tests.session.shaky import ShakyHandle

from steersman.session.journal import JournalWriter
from steersman.testing import Deadlock, LeftBehind, VirtualClockLoop, run_virtual
from steersman.tools.threads import call_in_thread


def test_an_hour_passes_at_once_and_is_seen_by_everyone() -> None:
    async def nap() -> float:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - before

    assert run_virtual(nap()) == pytest.approx(3600)


def test_sleepers_wake_in_the_order_of_their_deadlines() -> None:
    async def race() -> list[str]:
        woken: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append(name)

        async with asyncio.TaskGroup() as group:
            for name, seconds in [("late", 30.0), ("early", 1.0), ("middle", 2.5)]:
                group.create_task(sleeper(name, seconds))
        return woken

    assert run_virtual(race()) == ["early", "middle", "late"]


def test_a_timeout_cuts_at_its_virtual_second() -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(100)
        return asyncio.get_running_loop().time()

    assert run_virtual(wait()) == 5


def test_waiting_for_nothing_is_a_deadlock_that_names_who_waits() -> None:
    async def hang_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="hang_for_ever"):
        run_virtual(hang_for_ever(), patience=0.01)


def test_a_store_that_takes_its_time_is_waited_for() -> None:
    handle = ShakyHandle()
    handle.during = lambda: threading.Event().wait(0.05)

    async def work() -> int:
        journal = JournalWriter(handle)
        journal.add("label", {})
        async with asyncio.timeout(5):
            await journal.wait_until_saved()
        journal.close()
        return journal.last_saved

    assert run_virtual(work(), patience=0.001) == 1


def test_a_thread_that_waits_is_not_waited_for() -> None:
    """It may be one that never stops, and whose time is to be over."""
    release = threading.Event()

    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await call_in_thread(release.wait)
        release.set()
        return asyncio.get_running_loop().time()

    assert run_virtual(work(), patience=0.001) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a thread does")
def test_a_thread_that_works_is_waited_for() -> None:
    """However long it takes on a busy machine: what it was to do is done when its time comes."""

    def compute() -> str:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        return "done"

    async def work() -> tuple[str, float]:
        async with asyncio.timeout(5):
            result = await call_in_thread(compute)
        return result, asyncio.get_running_loop().time()

    assert run_virtual(work(), patience=0.001) == ("done", 0)


def test_a_thread_gets_real_time_before_the_clock_jumps() -> None:
    async def work() -> str:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=lambda: loop.call_soon_threadsafe(done.set), name="steersman-tool-1", daemon=True
        )
        async with asyncio.timeout(1000):
            thread.start()
            await done.wait()
        thread.join()
        return f"woken at {loop.time():g}"

    assert run_virtual(work()) == "woken at 0"


def test_a_task_left_running_is_reported() -> None:
    left: list[asyncio.Task[None]] = []

    async def forgetful() -> None:
        left.append(asyncio.create_task(asyncio.sleep(1), name="forgotten"))

    with pytest.raises(LeftBehind, match="forgotten"):
        run_virtual(forgetful())


def test_a_task_cancelled_by_the_last_statement_is_not_left() -> None:
    async def tidy() -> str:
        asyncio.create_task(asyncio.sleep(1)).cancel()
        return "done"

    assert run_virtual(tidy()) == "done"


def test_an_exception_that_was_not_retrieved_is_reported() -> None:
    async def careless() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    with pytest.raises(LeftBehind, match="ZeroDivisionError"):
        run_virtual(careless())


def test_every_step_can_be_used_to_cancel() -> None:
    async def work(log: list[int]) -> None:
        for number in range(3):
            await asyncio.sleep(number)
            log.append(number)

    def cancelled_at(step: int) -> list[int]:
        log: list[int] = []

        async def main() -> None:
            task = asyncio.create_task(work(log))
            cancels[step] = task.cancel
            await asyncio.wait([task])

        cancels: dict[int, object] = {}

        def on_step(number: int) -> None:
            if number == step and step in cancels:
                cancels[step]()  # pyright: ignore[reportCallIssue]

        run_virtual(main(), on_step=on_step)
        return log

    logs = [cancelled_at(step) for step in range(1, 12)]
    assert [] in logs
    assert [0] in logs
    assert [0, 1] in logs
    assert logs[-1] == [0, 1, 2]


def test_a_cancel_in_a_step_that_would_have_waited_is_not_mistaken_for_a_deadlock() -> None:
    async def main() -> str:
        task = asyncio.create_task(asyncio.Event().wait())
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualClockLoop)
        tasks.append(task)
        await asyncio.wait([task])
        return "ended" if task.cancelled() else "not cancelled"

    tasks: list[asyncio.Task[bool]] = []

    def on_step(number: int) -> None:
        if number >= 3 and tasks:
            tasks.pop().cancel()

    assert run_virtual(main(), on_step=on_step, patience=0.01) == "ended"


async def test_an_async_test_runs_on_virtual_time() -> None:
    assert isinstance(asyncio.get_running_loop(), VirtualClockLoop)


@pytest.mark.real_time
async def test_an_async_test_marked_so_runs_on_an_ordinary_loop() -> None:
    assert not isinstance(asyncio.get_running_loop(), VirtualClockLoop)
