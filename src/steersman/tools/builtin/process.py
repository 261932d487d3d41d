"""One command from its start to its end: its output is taken as it comes, and when this returns nothing of it is left.

It runs in a thread, so the event loop is free whatever the command does. A cancel asks the command to end, waits a
moment, kills it, and is passed on.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steersman.tools.builtin.captured import Captured
from steersman.tools.confine.launch import KILL, TERMINATE, Launched, launch, read_report
from steersman.tools.threads import in_thread
from steersman.types.errors import ToolError

MARK = "STEERSMAN_CALL"

_BUFFER = 1 << 20
_UPDATE_SECONDS = 0.1
_DRAIN_SECONDS = 0.2  # for a pipe that somebody holds whom we could not end
_TIMEOUT_GRACE = 1.0
_CANCEL_GRACE = 0.15  # less than a run grants a cancelled call
_PATIENCE = 3.0  # for the supervisor once it was told to kill; it needs two seconds at most
_LOOK_SECONDS = 1.0  # orders may come from another thread, so it looks now and then


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `left` ran on in the background and were ended with it, `survivors` could not be.

    `refused` says what it changed that it may not, and what became of that.
    """

    status: int
    timed_out: bool
    duration: float
    left: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


async def run_command(
    plan: Mapping[str, Any], captured: Captured, *, timeout: float, on_output: Callable[[str], None]
) -> Ended:
    """Run a plan to its end; `on_output` is shown new text now and then. `ToolError` when it could not be started."""
    command = Command(plan, captured, timeout, on_output)
    work = asyncio.ensure_future(in_thread(command.run))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await _ended(command, work)
        raise
    finally:
        # Cancelled twice, or closed with its loop: no more waiting.
        if not work.done():
            command.order(KILL)
            work.cancel()


async def _ended(command: Command, work: asyncio.Future[Ended]) -> None:
    command.order(TERMINATE)
    done, _ = await asyncio.wait((work,), timeout=_CANCEL_GRACE)
    if not done:
        command.order(KILL)
        done, _ = await asyncio.wait((work,), timeout=_PATIENCE)
    if done and not work.cancelled():
        work.exception()  # seen: nobody asks any more how it went


class Command:
    """The conversation with a supervisor. `run` blocks; `order` may come from any thread and at any time."""

    def __init__(
        self, plan: Mapping[str, Any], captured: Captured, timeout: float, on_output: Callable[[str], None]
    ) -> None:
        self._mark = os.urandom(16).hex()
        self._plan = {**plan, "env": {**plan["env"], MARK: self._mark}}
        self._captured = captured
        self._timeout = timeout
        self._on_output = on_output
        self._lock = threading.Lock()
        self._ordered = b""
        self._orders: int | None = None
        self._next_update = 0.0
        self._timed_out = False
        self._kill_at = float("inf")
        self._give_up_at = float("inf")

    def order(self, letter: bytes) -> None:
        """Ask for the end of the command."""
        with self._lock:
            self._ordered += letter
            if letter == KILL:
                self._give_up_at = min(self._give_up_at, time.monotonic() + _PATIENCE)
            self._send(letter)

    def _send(self, letters: bytes) -> None:
        if self._orders is not None and letters:
            try:
                os.write(self._orders, letters)
            except OSError:
                pass  # it is over already

    def run(self) -> Ended:
        """Run the command until nothing of it is left."""
        began = time.monotonic()
        launched = launch(self._plan)
        try:
            with self._lock:
                self._orders = launched.orders
                self._send(self._ordered)
            report = read_report(self._converse(launched, began + self._timeout))
        finally:
            with self._lock:
                self._orders = None
            # Here and nowhere else the supervisor is reaped, also in a thread that nobody waits for any more.
            launched.close()
            self._captured.close()
        if report is None:
            end_marked(self._mark)
            raise ToolError(
                "The process that looks after the command was ended before it could report, and the command with it."
            )
        if "error" in report:
            raise ToolError(f"The command was not run: {report['error']}.")
        return Ended(
            report["status"],
            self._timed_out,
            time.monotonic() - began,
            tuple(report["left"]),
            tuple(report["survivors"]),
            tuple(report["refused"]),
        )

    def _converse(self, launched: Launched, deadline: float) -> bytes:
        """Take output until the supervisor has reported and gone; what it reported."""
        buffer, report = bytearray(_BUFFER), b""
        poll = select.poll()
        poll.register(launched.output, select.POLLIN)
        poll.register(launched.report, select.POLLIN)
        waiting, until = {launched.output, launched.report}, float("inf")
        while waiting and time.monotonic() < until:
            for number, _ in poll.poll(self._pause(until if self._timed_out else min(deadline, until))):
                if number == launched.output:
                    size = os.readv(number, [buffer])
                    self._captured.add(buffer, size)
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
                launched.process.kill()  # it hangs; its report is missed, and what it looked after is found by its mark
        self._show()
        return report

    def _pause(self, due: float) -> float:
        """Milliseconds until there is something to do without being told."""
        due = min(due, self._kill_at, self._next_update if self._captured.has_recent else due)
        return max(0.001, min(due - time.monotonic(), _LOOK_SECONDS)) * 1000

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
            self._show()

    def _show(self) -> None:
        self._next_update = time.monotonic() + _UPDATE_SECONDS
        if text := self._captured.recent():
            self._on_output(text)


def end_marked(mark: str) -> None:
    """Kill the processes that carry the mark of a call in their environment, when nobody else looks after them."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit():
                with open(f"/proc/{entry}/environ", "rb") as file:
                    found = wanted in file.read().split(b"\0")
                if found:
                    os.kill(int(entry), 9)
        except OSError:
            continue  # gone, or not ours
