from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from typing import Any

import pytest

from steersman.tools.threads import (
    Threads,
    call_in_thread,
    count_abandoned_threads,
    count_running_threads,
    run_in_thread,
)

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE")


class Blocker:
    """A call that runs until it is released, and says when it began."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self.release.wait()
        return "late"


async def abandon(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until_calm(base: int) -> None:
    """Wait for threads that were released to be done: each further call gives them time."""
    while count_running_threads() > base:
        await call_in_thread(int)


async def test_a_call_runs_elsewhere_with_its_arguments_and_context() -> None:
    """loop.md D5"""
    VARIABLE.set("mine")

    def work(a: int, *, b: int) -> tuple[int, str, bool]:
        seen = VARIABLE.get()
        VARIABLE.set("theirs")
        return a + b, seen, threading.current_thread().daemon

    assert (await call_in_thread(work, 1, b=2), VARIABLE.get()) == ((3, "mine", True), "mine")


async def test_the_event_loop_goes_on_meanwhile() -> None:
    """loop.md D5: never block the event loop."""
    blocker = Blocker()
    task = asyncio.create_task(call_in_thread(blocker))
    await asyncio.to_thread(blocker.begun.wait)
    steps = [await asyncio.sleep(0, step) for step in range(3)]
    blocker.release.set()
    assert (steps, await task) == ([0, 1, 2], "late")


async def test_an_idle_thread_is_used_again() -> None:
    names = {await call_in_thread(threading.get_ident) for _ in range(20)}
    assert len(names) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError("k"), "KeyError('k')"),
        (StopIteration(3), "RuntimeError('The call raised StopIteration.')"),
        (SystemExit(1), "RuntimeError('The call raised SystemExit(1).')"),
        (KeyboardInterrupt(), "RuntimeError('The call raised KeyboardInterrupt().')"),
        (asyncio.CancelledError(), "RuntimeError('The call raised CancelledError().')"),
        (GeneratorExit(), "RuntimeError('The call raised GeneratorExit().')"),
    ],
)
async def test_whatever_a_call_raises_reaches_the_one_who_waits(error: BaseException, expected: str) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(Exception, match=r".") as caught:
        await call_in_thread(fail)
    assert repr(caught.value) == expected
    assert error in (caught.value, caught.value.__cause__)


async def test_a_cancelled_wait_leaves_the_thread_behind_and_counts_it() -> None:
    """loop.md D5: abandoned, counted and reported."""
    before, running = count_abandoned_threads(), count_running_threads()
    blocker = Blocker()
    task = asyncio.create_task(call_in_thread(blocker))
    await asyncio.to_thread(blocker.begun.wait)
    assert (count_abandoned_threads(), count_running_threads()) == (before, running + 1)
    await abandon(task)
    assert (count_abandoned_threads(), count_running_threads()) == (before + 1, running + 1)
    blocker.release.set()
    await until_calm(running)
    assert count_abandoned_threads() == before


async def test_a_late_outcome_is_told_once_in_the_event_loop() -> None:
    """loop.md D5: its late result is an event, not a second message."""
    running = count_running_threads()
    told: list[tuple[Any, BaseException | None, int]] = []
    blocker = Blocker()
    task = asyncio.create_task(
        run_in_thread(blocker, on_late=lambda value, error: told.append((value, error, threading.get_ident())))
    )
    await asyncio.to_thread(blocker.begun.wait)
    await abandon(task)
    assert told == []
    blocker.release.set()
    await until_calm(running)
    await asyncio.sleep(0)
    assert told == [("late", None, threading.get_ident())]


async def test_an_outcome_in_time_is_not_told_as_late() -> None:
    told: list[Any] = []
    result = await run_in_thread(lambda: 1, on_late=lambda value, error: told.append((value, error)))
    await asyncio.sleep(0)
    assert (result, told) == (1, [])


async def test_a_thousand_threads_that_will_not_stop_leave_room_for_others() -> None:
    """failures.md F5"""
    before, running = count_abandoned_threads(), count_running_threads()
    release, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        release.wait()

    tasks = [asyncio.create_task(call_in_thread(hang)) for _ in range(1000)]
    try:
        await asyncio.sleep(0)
        for _ in tasks:
            await asyncio.to_thread(begun.acquire)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert count_abandoned_threads() == before + 1000
        assert await call_in_thread(lambda: "served") == "served"
    finally:
        release.set()
    await until_calm(running)
    assert count_abandoned_threads() == before


async def test_the_hard_limit_says_what_to_do() -> None:
    pool, blocker = Threads(max_threads=1), Blocker()
    task = asyncio.create_task(pool.run(blocker))
    await asyncio.to_thread(blocker.begun.wait)
    with pytest.raises(RuntimeError, match=r"^1 tool threads are running, 0 of them abandoned.*look at ctx\.cancelled"):
        await pool.run(int)
    blocker.release.set()
    assert (await task, await pool.run(int), pool.threads) == ("late", 0, 1)


async def test_calls_given_up_at_once_begin_or_not_and_are_counted_right() -> None:
    pool = Threads()
    for _ in range(200):
        wait = pool.run(int)
        wait.send(None)
        with pytest.raises(asyncio.CancelledError):
            wait.throw(asyncio.CancelledError())
    while pool.running:
        await pool.run(int)
    with pool.lock:  # a thread that has just counted itself out is about to join the idle ones
        assert (pool.abandoned, pool.running, len(pool.idle)) == (0, 0, pool.threads)


def test_an_event_loop_closed_meanwhile_is_no_harm() -> None:
    blocker = Blocker()
    ended = threading.Event()

    def work() -> str:
        try:
            return blocker()
        finally:
            ended.set()

    async def leave() -> None:
        task = asyncio.create_task(call_in_thread(work))
        await asyncio.to_thread(blocker.begun.wait)
        await abandon(task)

    before = count_running_threads()
    asyncio.run(leave())
    blocker.release.set()
    assert ended.wait(10)

    async def next_call() -> str:
        await until_calm(before)
        return await call_in_thread(lambda: "fine")

    assert asyncio.run(next_call()) == "fine"


async def test_an_idle_thread_keeps_nothing_alive() -> None:
    class Large:
        pass

    def make() -> Large:
        return Large()

    result = await call_in_thread(make)
    kept = weakref.ref(result)
    del result
    await call_in_thread(lambda: None)
    gc.collect()
    assert kept() is None
