"""A pool of threads for what blocks: a `def` tool, and files.

A thread that does not stop is abandoned: the pool starts another one.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
OnLate: TypeAlias = Callable[[Any, BaseException | None], None]

MAX_THREADS = 4_000
"""A safe upper limit; more threads would exhaust the machine."""

_IDLE_SECONDS = 10.0
_BUSY, _IDLE = "steersman-tool", "steersman-tool idle"


def is_running_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs in this event loop, and not in another one, in another thread or in none."""
    return asyncio._get_running_loop() is loop  # the public one raises where there is none


def call_soon_in(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    """Schedule a callback on an event loop, from any thread; does nothing when the loop is closed."""
    if is_running_in(loop):
        loop.call_soon(callback, *args)  # all that an event loop of one thread has, such as that of a workflow
        return
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError as error:
        if isinstance(error, NotImplementedError):
            raise  # that is no closed loop


class _Job:
    """One call that runs in a thread, and the future in the event loop that waits for it."""

    __slots__ = ("abandoned", "call", "context", "finished", "future", "loop", "on_late")

    def __init__(self, call: Callable[[], Any], on_late: OnLate | None) -> None:
        self.call = call
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.on_late = on_late
        self.abandoned = False
        self.finished = False

    def run(self) -> tuple[Any, BaseException | None]:
        try:
            return self.context.run(self.call), None
        except StopIteration as error:
            # A future cannot carry a StopIteration: awaiting code would take it for the end of an iteration.
            return None, _wrap_error("StopIteration", error)
        except Exception as error:  # noqa: BLE001  # it goes to the code that awaits the call
            return None, error
        except BaseException as error:  # noqa: BLE001  # SystemExit and the like end this call, not the program
            return None, _wrap_error(repr(error), error)

    def deliver(self, value: Any, error: BaseException | None) -> None:
        call_soon_in(self.loop, self.settle, value, error)

    def settle(self, value: Any, error: BaseException | None) -> None:
        if not self.future.done():
            if error is None:
                self.future.set_result(value)
            else:
                self.future.set_exception(error)
        elif self.on_late is not None:
            self.on_late(value, error)


class _Worker:
    """A thread and the queue of its next call. The thread's name says whether it is idle."""

    __slots__ = ("inbox", "thread")

    def __init__(self, work: Callable[[_Worker], None]) -> None:
        self.inbox = queue.SimpleQueue[_Job]()
        self.thread = threading.Thread(target=work, args=(self,), name=_BUSY, daemon=True)


class Threads:
    """A pool of threads that end when idle for long; `max_threads` includes the abandoned ones."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self.max_threads = max_threads
        # Reentrant: garbage collection of a coroutine may abandon its call while this thread holds the lock.
        self.lock = threading.RLock()
        self.idle: list[_Worker] = []
        self.threads = 0
        self.running = 0
        self.abandoned = 0

    async def run(self, call: Callable[[], T], *, on_late: OnLate | None = None) -> T:
        """Await a blocking call that runs in a thread, with this task's context variables.

        When the wait is cancelled, the thread is abandoned at once; `on_late(value, error)` is then called in the event
        loop when the call ends. A call that had not begun never begins.
        """
        job = _Job(call, on_late)
        self.submit(job)
        try:
            return await job.future
        except (asyncio.CancelledError, GeneratorExit):
            self.abandon(job)
            raise

    def submit(self, job: _Job) -> None:
        """Pass a call to an idle thread, or to a new one."""
        with self.lock:
            worker = self.idle.pop() if self.idle else self.start_worker()
            worker.thread.name = _BUSY
            self.running += 1
        worker.inbox.put(job)

    def start_worker(self) -> _Worker:
        """Start a thread; raise `RuntimeError` when the limit is reached."""
        if self.threads >= self.max_threads:
            raise RuntimeError(
                f"{self.threads} tool threads are running, {self.abandoned} of them abandoned. "
                "Give long 'def' tools a way to stop (look at ctx.cancelled), or make them 'async def'."
            )
        worker = _Worker(self.run_worker)
        try:
            worker.thread.start()
        except RuntimeError as error:
            raise RuntimeError(
                f"No thread could be started for a tool ({error}); {self.threads} are running, "
                f"{self.abandoned} of them abandoned."
            ) from error
        self.threads += 1
        return worker

    def run_worker(self, worker: _Worker) -> None:
        """Run calls in a thread until it has been idle for long."""
        while (job := self.wait_for_job(worker)) is not None:
            begun = not job.abandoned
            value, error = job.run() if begun else (None, None)
            with self.lock:
                job.finished = True
                self.running -= 1
                self.abandoned -= job.abandoned
                if begun:
                    job.deliver(value, error)
                # Idle only after the outcome is scheduled: tests and callers rely on that order.
                worker.thread.name = _IDLE
                self.idle.append(worker)
            # An idle thread must not keep the last call and its outcome in memory.
            del job, value, error

    def wait_for_job(self, worker: _Worker) -> _Job | None:
        """Wait for the next call of a thread; `None` when the thread should end."""
        while True:
            try:
                return worker.inbox.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self.lock:
                    # If it is not idle, a job was just assigned to it and is about to arrive.
                    if worker in self.idle:
                        self.idle.remove(worker)
                        self.threads -= 1
                        return None

    def abandon(self, job: _Job) -> None:
        """Count a call as abandoned, unless it is over."""
        with self.lock:
            if not job.finished and not job.abandoned:
                job.abandoned = True
                self.abandoned += 1


_pool = Threads()


def _reset_after_fork() -> None:
    """Use a new pool: a forked child has none of its parent's threads, and the lock may be held by one of them."""
    global _pool
    _pool = Threads()


os.register_at_fork(after_in_child=_reset_after_fork)


async def run_in_thread(call: Callable[[], T], *, on_late: OnLate | None = None) -> T:
    """Await a blocking call that runs in a thread, with this task's context variables; see `Threads.run`."""
    if type(asyncio.get_running_loop()).call_soon_threadsafe is asyncio.AbstractEventLoop.call_soon_threadsafe:
        return call()  # no thread can wake this event loop: it is that of a workflow, whose code does not block
    return await _pool.run(call, on_late=on_late)


async def call_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Await `function(*args, **kwargs)` in a thread."""
    return await run_in_thread(lambda: function(*args, **kwargs))


def count_abandoned_threads() -> int:
    """Count the threads whose call was abandoned and still runs."""
    return _pool.abandoned


def count_running_threads() -> int:
    """Count the calls that run in threads, including the abandoned ones."""
    return _pool.running


def _wrap_error(what: str, error: BaseException) -> RuntimeError:
    wrapped = RuntimeError(f"The call raised {what}.")
    wrapped.__cause__ = error
    return wrapped
