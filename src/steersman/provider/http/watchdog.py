"""The one timer that cuts a silent stream: it cancels the task that waits past its deadline.

The timer is moved lazily: a wait costs a look at the clock, not a new timer. Only waiting counts, never the time that a
consumer takes between two waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf, isfinite
from typing import Any


class Watchdog:
    """Watches the waits of one stream, one after the other; can tell its own cancel from others."""

    __slots__ = ("_cancelling", "_deadline", "_due", "_fired", "_loop", "_task", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # When the timer fires; infinite if there is none.
        self._due = inf
        self._task: asyncio.Task[object] | None = None
        self._deadline = inf
        self._cancelling = 0
        self._fired = False

    def arm(self, deadline: float) -> None:
        """Begin a wait of the current task; at `deadline`, in the loop's time, the task is cancelled."""
        task = self._task = asyncio.current_task()
        if task is not None:
            self._cancelling = task.cancelling()
        self._deadline = deadline
        if deadline < self._due:
            self.extend(deadline)

    def extend(self, deadline: float) -> None:
        """Move the deadline of the wait that goes on."""
        self._deadline = deadline
        if deadline < self._due and self._task is not None:
            self.close()
            self._set_timer(deadline)

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
            self._timer, self._due = None, inf

    def _set_timer(self, due: float) -> None:
        self._timer, self._due = self._loop.call_at(due, self._tick), due

    def _tick(self) -> None:
        self._timer, self._due = None, inf
        if self._task is None or self._deadline == inf:
            return
        if self._deadline > self._loop.time():
            self._set_timer(self._deadline)
            return
        self._fired = True
        self._task.cancel()


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Each can be set by its name in `Model.settings`; `None` means no limit. Times are in seconds.

    `connect_timeout`: until the connection is open. `first_byte_timeout`: from the request to the first byte of the
    answer. `idle_timeout`: between two reads after that; a comment or a ping counts as a sign of life.
    `content_idle_timeout`: without anything but comments and pings; off by default, because a model may think for long.
    `total_timeout`: for the whole answer; off by default, so that a slow healthy stream is not cut. Only the wait for
    the server counts, not the time a consumer takes.
    """

    connect_timeout: float | None = 30.0
    first_byte_timeout: float | None = 300.0
    idle_timeout: float | None = 300.0
    content_idle_timeout: float | None = None
    total_timeout: float | None = None
    max_event_bytes: int = 32 * 1024 * 1024
    max_response_bytes: int = 256 * 1024 * 1024


_DEFAULT = ResponseLimits()
_NAMES = tuple(field.name for field in fields(ResponseLimits))


def parse_limits(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> ResponseLimits:
    """The limits in a model's settings, over those of its provider; `ValueError` for one that is not a number."""
    if not settings and not defaults:
        return _DEFAULT
    given = {name: source[name] for source in (defaults, settings) for name in _NAMES if name in source}
    if not given:
        return _DEFAULT
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and isfinite(value) and value > 0):
            raise ValueError(f"The setting {name} must be a number above 0, or None for no limit; got {value!r}.")
    return ResponseLimits(**given)


class ResponseWatchdog(Watchdog):
    """A watchdog with the time limits of an HTTP response. It is used for one response after the other.

    Its timer goes on between them, so that most responses need no timer of their own.
    """

    __slots__ = (
        "_content_deadline", "_content_idle", "_first_byte", "_first_byte_deadline", "_idle", "_limits", "_total",
        "_total_deadline",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._use(_DEFAULT)
        self.begin(_DEFAULT)

    def begin(self, limits: ResponseLimits) -> None:
        """Begin to count the time of a response with these limits."""
        if limits is not self._limits:
            self._use(limits)
        now = self._loop.time()
        self._first_byte_deadline = now + self._first_byte
        self._total_deadline = now + self._total
        self._content_deadline = inf

    def _use(self, limits: ResponseLimits) -> None:
        self._limits = limits
        self._first_byte = inf if limits.first_byte_timeout is None else limits.first_byte_timeout
        self._total = inf if limits.total_timeout is None else limits.total_timeout
        self._idle = inf if limits.idle_timeout is None else limits.idle_timeout
        self._content_idle = inf if limits.content_idle_timeout is None else limits.content_idle_timeout

    def arm_for_first_byte(self) -> None:
        """Begin to wait for the head of the response, or for the first byte of its body."""
        self.arm(min(self._first_byte_deadline, self._content_deadline, self._total_deadline))

    def arm_for_next_bytes(self, most: float = inf) -> None:
        """Begin to wait for more of the body, at most so many seconds."""
        self.arm(min(self._loop.time() + min(self._idle, most), self._content_deadline, self._total_deadline))

    def extend_for_next_bytes(self, events: int) -> None:
        """Go on waiting for more of the body, some of which has come, with so many events."""
        now = self._loop.time()
        if events and self._content_idle < inf:
            self._content_deadline = now + self._content_idle
        self.extend(min(now + self._idle, self._content_deadline, self._total_deadline))

    def note_content(self) -> None:
        """The last bytes held content, not only comments and pings."""
        if self._content_idle < inf:
            self._content_deadline = self._loop.time() + self._content_idle

    def name_limit(self) -> tuple[str, float | None]:
        """The name and the seconds of the limit that the last wait reached."""
        limits = self._limits
        if self._deadline == self._total_deadline:
            return "total_timeout", limits.total_timeout
        if self._deadline == self._content_deadline:
            return "content_idle_timeout", limits.content_idle_timeout
        if self._deadline == self._first_byte_deadline:
            return "first_byte_timeout", limits.first_byte_timeout
        return "idle_timeout", limits.idle_timeout
