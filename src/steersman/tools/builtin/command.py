"""Runs one command to its end and captures its output; afterwards no process of it is left.

It runs in a thread, so the event loop is never blocked. A cancel sends SIGTERM, waits a moment, kills the command, and
is then raised.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from steersman.tools.confine.exit_delay import delay_exit
from steersman.tools.confine.launch import KILL, MARK, TERMINATE, RunningSupervisor, kill_marked, launch, parse_report
from steersman.tools.threads import call_in_thread
from steersman.types.errors import ToolError

_BUFFER = 1 << 20
_UPDATE_SECONDS = 0.1
_DRAIN_SECONDS = 0.2  # for a pipe that is held open by a process we could not end
_TIMEOUT_GRACE = 1.0
_CANCEL_GRACE = 0.15  # less than a run grants a cancelled call
_KILL_SECONDS = 5.0  # for the supervisor after the order to kill; it needs three seconds at most
_POLL_SECONDS = 1.0  # orders may come from another thread, so check for them at least this often


class Capture(Protocol):
    """Takes the output of a command. If `add` raises, the command is ended, and `run_command` raises the error."""

    def add(self, buffer: bytearray, size: int) -> None:
        """Add the first `size` bytes of a buffer."""
        ...

    @property
    def has_recent(self) -> bool:
        """Whether there is new output since the last `take_recent`."""
        ...

    def take_recent(self) -> str:
        """Return the output since the last call, to show it while the command runs."""
        ...

    def close(self) -> None:
        """Close what it has open; what was captured stays."""
        ...


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended. `left` are background processes that were ended with it, `survivors` could not be ended.

    `refused` are notes about protected paths that it changed, and what was done about it.
    """

    status: int
    timed_out: bool
    duration: float
    left: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


async def run_command(
    plan: Mapping[str, Any],
    captured: Capture,
    *,
    timeout: float,
    on_end: Callable[[], None],
    on_output: Callable[[str], None] = lambda _: None,
    errors: Capture | None = None,
) -> CommandOutcome:
    """Run a plan to its end; `on_output` gets new output every 0.1 s. Raises `ToolError` when it cannot be started.

    `errors` takes standard error; without it, that comes with standard output. `on_end` is called in a thread when no
    process of it is left, also if this call was cancelled and is over by then.
    """
    command = Command(plan, captured, timeout, on_output, on_end, errors)
    work = asyncio.ensure_future(call_in_thread(command.run))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await _end_command(command, work)
        raise
    finally:
        # Cancelled a second time, or the event loop was closed: do not wait any longer.
        if not work.done():
            command.order(KILL)
            work.cancel()


async def _end_command(command: Command, work: asyncio.Future[CommandOutcome]) -> None:
    command.order(TERMINATE)
    done, _ = await asyncio.wait((work,), timeout=_CANCEL_GRACE)
    if not done:
        command.order(KILL)
        done, _ = await asyncio.wait((work,), timeout=_KILL_SECONDS)
    if done and not work.cancelled():
        work.exception()  # marks it as retrieved, so that asyncio does not log it


class Command:
    """Runs a supervisor. `run` blocks; `order` can be called from any thread at any time."""

    def __init__(
        self,
        plan: Mapping[str, Any],
        captured: Capture,
        timeout: float,
        on_output: Callable[[str], None],
        on_end: Callable[[], None] = lambda: None,
        errors: Capture | None = None,
    ) -> None:
        self._mark = os.urandom(16).hex()
        self._plan = {**plan, "env": {**plan["env"], MARK: self._mark}}
        self._captured = captured
        self._errors = errors
        self._timeout = timeout
        self._on_output = on_output
        self._on_end = on_end
        self._lock = threading.Lock()
        self._ordered = b""
        self._orders: int | None = None
        self._next_update = 0.0
        self._timed_out = False
        self._kill_at = float("inf")
        self._give_up_at = float("inf")

    def order(self, letter: bytes) -> None:
        """End the command: `TERMINATE` sends SIGTERM, `KILL` kills it."""
        with self._lock:
            self._ordered += letter
            if letter == KILL:
                self._give_up_at = min(self._give_up_at, time.monotonic() + _KILL_SECONDS)
            self._send(letter)

    def _send(self, letters: bytes) -> None:
        if self._orders is not None and letters:
            try:
                os.write(self._orders, letters)
            except OSError:
                pass  # it has already ended

    def run(self) -> CommandOutcome:
        """Run the command until no process of it is left; the program does not end before."""
        with delay_exit(partial(self.order, KILL)):
            try:
                return self._run()
            finally:
                self._on_end()

    def _run(self) -> CommandOutcome:
        began = time.monotonic()
        launched = launch(self._plan, separate_errors=self._errors is not None)
        try:
            with self._lock:
                self._orders = launched.orders
                self._send(self._ordered)
            report = parse_report(self._read_until_done(launched, began + self._timeout))
        finally:
            with self._lock:
                self._orders = None
            # The supervisor is always reaped here, even in a thread whose caller was cancelled.
            launched.close()
            self._captured.close()
        if report is None:
            kill_marked(self._mark)
            raise ToolError("The supervisor of the command was killed before it could report, and the command with it.")
        if "error" in report:
            raise ToolError(f"The command was not run: {report['error']}.")
        return CommandOutcome(
            report["status"],
            self._timed_out,
            time.monotonic() - began,
            tuple(report["left"]),
            tuple(report["survivors"]),
            tuple(report["refused"]),
        )

    def _read_until_done(self, launched: RunningSupervisor, deadline: float) -> bytes:
        """Capture output until the supervisor has reported and ended; return its report."""
        buffer, report = bytearray(_BUFFER), b""
        captures = {launched.output: self._captured}
        if launched.errors is not None and self._errors is not None:
            captures[launched.errors] = self._errors
        poll = select.poll()
        waiting, until = {*captures, launched.report}, float("inf")
        for number in waiting:
            poll.register(number, select.POLLIN)
        while waiting and time.monotonic() < until:
            for number, _ in poll.poll(self._compute_pause(until if self._timed_out else min(deadline, until))):
                if number in captures:
                    size = os.readv(number, [buffer])
                    captures[number].add(buffer, size)
                else:
                    piece = os.read(number, 65_536)
                    size, report = len(piece), report + piece
                if size == 0:
                    poll.unregister(number)
                    waiting.discard(number)
            if launched.report not in waiting:
                until = min(until, time.monotonic() + _DRAIN_SECONDS)
            self._tick(deadline)
            if time.monotonic() >= self._give_up_at:
                launched.process.kill()  # it hangs: without its report, `kill_marked` finds the processes of the call
        self._report_output()
        return report

    def _compute_pause(self, due: float) -> float:
        """Compute the milliseconds until the next deadline or update."""
        due = min(due, self._kill_at, self._next_update if self._captured.has_recent else due)
        return max(0.001, min(due - time.monotonic(), _POLL_SECONDS)) * 1000

    def _tick(self, deadline: float) -> None:
        now = time.monotonic()
        if not self._timed_out and now >= deadline:
            self._timed_out = True
            self._kill_at = now + _TIMEOUT_GRACE
            self.order(TERMINATE)
        elif now >= self._kill_at:
            self._kill_at = float("inf")
            self.order(KILL)
        if self._captured.has_recent and now >= self._next_update:
            self._report_output()

    def _report_output(self) -> None:
        self._next_update = time.monotonic() + _UPDATE_SECONDS
        if text := self._captured.take_recent():
            self._on_output(text)
