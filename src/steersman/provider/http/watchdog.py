"""The one timer that cuts a silent stream: it cancels the task that waits past its deadline.

The timer is moved lazily: a wait costs a look at the clock, not a new timer. Only waiting counts, never the time that a
consumer takes between two waits.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.provider.http.limits import ResponseLimits


class Watchdog:
    """Watches the waits of one stream, one after the other; knows its own cancel from any other."""

    __slots__ = ("_cancelling", "_deadline", "_fired", "_loop", "_task", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._deadline = inf
        self._cancelling = 0
        self._fired = False

    def arm(self, deadline: float) -> None:
        """Begin a wait of the current task; at `deadline`, in the loop's time, the task is cancelled."""
        self._deadline = deadline
        if deadline == inf:
            return
        task = asyncio.current_task()
        if task is None:
            return
        self._task = task
        self._cancelling = task.cancelling()
        if self._timer is not None and self._timer.when() > deadline:
            self.close()
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._tick)

    def disarm(self) -> bool:
        """End the wait. Return whether only this watchdog cancelled the task, and take that cancel back."""
        task, self._task = self._task, None
        if not self._fired or task is None:
            return False
        self._fired = False
        return task.uncancel() <= self._cancelling

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._deadline > self._loop.time():
            self._timer = self._loop.call_at(self._deadline, self._tick)
            return
        self._fired = True
        self._task.cancel()


class ResponseWatchdog(Watchdog):
    """A watchdog with the time limits of one HTTP response; they begin to count when it is made."""

    __slots__ = ("_content_deadline", "_content_idle", "_first_byte_deadline", "_idle", "_limits", "_total_deadline")

    def __init__(self, limits: ResponseLimits) -> None:
        super().__init__()
        now = self._loop.time()
        self._limits = limits
        self._idle = inf if limits.idle_timeout is None else limits.idle_timeout
        self._content_idle = inf if limits.content_idle_timeout is None else limits.content_idle_timeout
        self._first_byte_deadline = inf if limits.first_byte_timeout is None else now + limits.first_byte_timeout
        self._total_deadline = inf if limits.total_timeout is None else now + limits.total_timeout
        self._content_deadline = inf

    def arm_for_first_byte(self) -> None:
        """Begin to wait for the head of the response, or for the first byte of its body."""
        self.arm(min(self._first_byte_deadline, self._content_deadline, self._total_deadline))

    def arm_for_next_bytes(self) -> None:
        """Begin to wait for more of the body."""
        self.arm(min(self._loop.time() + self._idle, self._content_deadline, self._total_deadline))

    def note_content(self) -> None:
        """The last bytes held content, not only comments and pings."""
        if self._content_idle < inf:
            self._content_deadline = self._loop.time() + self._content_idle

    def name_limit(self) -> tuple[str, float | None]:
        """The name and the seconds of the limit that the last wait came to."""
        limits = self._limits
        if self._deadline == self._total_deadline:
            return "total_timeout", limits.total_timeout
        if self._deadline == self._content_deadline:
            return "content_idle_timeout", limits.content_idle_timeout
        if self._deadline == self._first_byte_deadline:
            return "first_byte_timeout", limits.first_byte_timeout
        return "idle_timeout", limits.idle_timeout
