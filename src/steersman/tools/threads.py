"""Threads for `def` tools: one that will not stop is left behind, and nobody waits for it or runs out because of it.

Not the event loop's default executor: that one has few threads, is shared with name lookups, and is joined at exit.
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
"""Beyond this the machine suffers before the tools do."""

_IDLE_SECONDS = 10.0
_BUSY = "steersman-tool"
_IDLE = "steersman-tool idle"


def call_soon_in(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    """Call back on an event loop, from any thread; one that is closed has nobody left to tell."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return


class _Job:
    """One call on its way through a thread and back to the event loop that waits for it."""

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
            # A future cannot carry it: whoever awaits would take it for an end of iteration.
            return None, _wrap_error("StopIteration", error)
        except Exception as error:  # noqa: BLE001  # it goes to whoever awaits the call
            return None, error
        except BaseException as error:  # noqa: BLE001  # exit requests and the like concern this thread, not the program
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
    """A thread and the place where its next call arrives. Its name says whether it is idle."""

    __slots__ = ("inbox", "thread")

    def __init__(self, work: Callable[[_Worker], None]) -> None:
        self.inbox = queue.SimpleQueue[_Job]()
        self.thread = threading.Thread(target=work, args=(self,), name=_BUSY, daemon=True)


class Threads:
    """Threads that wait for work for a while and then go; `max_threads` counts the abandoned ones too."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self.max_threads = max_threads
        # Reentrant, because a collected coroutine may abandon its call while this very thread holds the lock.
        self.lock = threading.RLock()
        self.idle: list[_Worker] = []
        self.threads = 0
        self.running = 0
        self.abandoned = 0

    async def run(self, call: Callable[[], T], *, on_late: OnLate | None = None) -> T:
        """Await a blocking call that runs in a thread, with this task's context variables.

        A cancelled wait leaves the thread to itself at once; `on_late(value, error)` is then told, in the event loop,
        how it ended. A call that had not begun never begins.
        """
        job = _Job(call, on_late)
        self.submit(job)
        try:
            return await job.future
        except (asyncio.CancelledError, GeneratorExit):
            self.abandon(job)
            raise

    def submit(self, job: _Job) -> None:
        """Give a call to an idle thread, or to a new one."""
        with self.lock:
            worker = self.idle.pop() if self.idle else self.start_worker()
            worker.thread.name = _BUSY
            self.running += 1
        worker.inbox.put(job)

    def start_worker(self) -> _Worker:
        """Start a thread, if there is room for one."""
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
        """What a thread does until it has been idle for long."""
        while (job := self.next_job(worker)) is not None:
            begun = not job.abandoned
            value, error = job.run() if begun else (None, None)
            with self.lock:
                job.finished = True
                self.running -= 1
                self.abandoned -= job.abandoned
                if begun:
                    job.deliver(value, error)
                # Idle only once the outcome is on its way: whoever sees it idle may count on that.
                worker.thread.name = _IDLE
                self.idle.append(worker)
            # An idle thread must not keep the last call and its outcome alive.
            del job, value, error

    def next_job(self, worker: _Worker) -> _Job | None:
        """The next call for a thread, or `None` when it may go."""
        while True:
            try:
                return worker.inbox.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self.lock:
                    # Not among the idle ones: a job was given to it just now and is about to arrive.
                    if worker in self.idle:
                        self.idle.remove(worker)
                        self.threads -= 1
                        return None

    def abandon(self, job: _Job) -> None:
        """Count a call nobody waits for any more, unless it is over."""
        with self.lock:
            if not job.finished and not job.abandoned:
                job.abandoned = True
                self.abandoned += 1


_pool = Threads()


def _reset_after_fork() -> None:
    """A forked child has none of its parent's threads, and its locks may be held by one of them."""
    global _pool
    _pool = Threads()


os.register_at_fork(after_in_child=_reset_after_fork)


async def run_in_thread(call: Callable[[], T], *, on_late: OnLate | None = None) -> T:
    """Await a blocking call that runs in a thread, with this task's context variables; see `Threads.run`."""
    return await _pool.run(call, on_late=on_late)


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Await `function(*args, **kwargs)` in a thread."""
    return await run_in_thread(lambda: function(*args, **kwargs))


def count_abandoned_threads() -> int:
    """How many threads run on although nobody waits for them any more."""
    return _pool.abandoned


def count_running_threads() -> int:
    """How many calls are in threads now, the abandoned ones included."""
    return _pool.running


def _wrap_error(what: str, error: BaseException) -> RuntimeError:
    told = RuntimeError(f"The call raised {what}.")
    told.__cause__ = error
    return told
