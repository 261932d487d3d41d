"""A virtual clock: an event loop that jumps to the next deadline when every task waits.

Waiting an hour takes no time, every run of a test takes the same steps, and a hang is an error at once.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")
OnStep = Callable[[int], None]

_SETTLING_STEPS = 10
_LONGER = 25
_WORK_SECONDS = 5.0
_TOOL, _JOURNAL = "steersman-tool", "steersman-journal"


class Deadlock(AssertionError):
    """Every task waits, and nothing can wake one."""


class LeftBehind(AssertionError):
    """The work is done, but a task that it started is still running, or an exception was not retrieved."""


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time that counts its steps.

    `on_step(n)` is called before step n, between any two things that happen on the loop: the place to inject a cancel.
    `patience` is how many real seconds are granted to other threads and to sockets before time jumps. A store
    that writes is granted more, and so is a tool that wants the processor or the disk: how busy these are must not
    change what happens.
    """

    def __init__(self, *, on_step: OnStep | None = None, patience: float = 0.2) -> None:
        self.steps = 0
        self.faults: list[str] = []
        self._now = 0.0
        self._on_step = on_step
        self._disturbed = False
        self._patience = patience
        super().__init__(_JumpingSelector(self))
        self.set_exception_handler(self._record_fault)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As in the base class; also notes that there is work to do."""
        self._disturbed = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As in the base class; also notes that there is work to do."""
        self._disturbed = True
        return super().call_at(when, callback, *args, context=context)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Ignore the timeout: threads end in real time, and the virtual time would pass at once."""
        await super().shutdown_default_executor()

    def step(self, selector: selectors.BaseSelector, timeout: float | None) -> list[_Ready]:
        """Take one step: what is ready now, or a jump to the next deadline."""
        self.steps += 1
        self._disturbed = False
        if self._on_step is not None:
            self._on_step(self.steps)
        ready = selector.select(0)
        if ready or self._disturbed or (timeout is not None and timeout <= 0):
            return ready
        outside = self._awaits_outside(selector)
        if timeout is None:
            # Nothing is scheduled, so only another thread or a socket can help, and there is no time to jump over.
            ready = selector.select(self._patience * (_LONGER if outside else 1))
            return ready or self._give_up()
        # Even when no thread works now: one may have delivered and gone idle since the first look.
        ready = selector.select(min(timeout, self._patience) if outside else 0)
        # A tool that waits may never return, so its timeout passes in virtual time. A store always returns, even on a
        # slow disk, and a tool that does not wait only needs its turn.
        until, working = time.monotonic() + _WORK_SECONDS, True
        while not ready and working and time.monotonic() < until:
            # It is looked once more after it has gone idle: it may have delivered right before.
            working = _is_at_work(_JOURNAL) or _wants_its_turn(_TOOL)
            ready = selector.select(self._patience if working else 0)
        if not ready:
            self._now += timeout
        return ready

    def _awaits_outside(self, selector: selectors.BaseSelector) -> bool:
        # One socket is the loop's own, by which other threads wake it.
        return len(selector.get_map()) > 1 or _is_at_work(_TOOL, _JOURNAL)

    def _give_up(self) -> list[_Ready]:
        waiting = "\n".join(f"  {_describe_task(task)}" for task in asyncio.all_tasks(self) if not task.done())
        raise Deadlock(
            f"Nothing is scheduled and nothing can arrive at virtual second {self._now:g}. Waiting:\n{waiting}"
        )

    def _record_fault(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        exception = context.get("exception")
        self.faults.append(
            f"{context.get('message')} {exception!r} {context.get('task') or context.get('future') or ''}"
        )


_Ready = tuple[selectors.SelectorKey, int]


def _is_at_work(*names: str) -> bool:
    """Whether a thread with one of these names is at work."""
    return any(thread.name.startswith(names) and not thread.name.endswith("idle") for thread in threading.enumerate())


def _wants_its_turn(name: str) -> bool:
    """Whether a thread with this name is at work and does not wait; only Linux says so."""
    at_work = [each.native_id for each in threading.enumerate() if each.name.startswith(name)]
    return any(_read_state(number) in ("R", "D") for number in at_work if number is not None)


def _read_state(thread: int) -> str:
    """Return the letter for what a thread of this process does, as in `ps`; empty where that is unknown."""
    try:
        with open(f"/proc/self/task/{thread}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # it has ended, or this is not Linux
        return ""


class _JumpingSelector(selectors.BaseSelector):
    """A real selector that asks the loop how to wait."""

    def __init__(self, loop: VirtualClockLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[_Ready]:
        return self._loop.step(self._real, timeout)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


def run_virtual(work: Coroutine[Any, Any, T], *, on_step: OnStep | None = None, patience: float = 0.2) -> T:
    """Run the coroutine on a virtual clock; `LeftBehind` if a task is left or an exception went unseen."""
    loops: list[VirtualClockLoop] = []

    def make_loop() -> VirtualClockLoop:
        loops.append(VirtualClockLoop(on_step=on_step, patience=patience))
        return loops[0]

    with asyncio.Runner(loop_factory=make_loop) as runner:
        result = runner.run(work)
        runner.run(_settle())
        left = [_describe_task(task) for task in asyncio.all_tasks(loops[0]) if not task.done()]
    faults = loops[0].faults
    if left or faults:
        raise LeftBehind("\n".join(["Left when the work was over:", *(f"  {line}" for line in [*left, *faults])]))
    return result


async def _settle() -> None:
    # What was cancelled by the last statement of the work gets a few steps to end, but no time.
    for _ in range(_SETTLING_STEPS):
        await asyncio.sleep(0)


def _describe_task(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    place = f" at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else ""
    return f"{task.get_name()} {task.get_coro()!r}{place}"
