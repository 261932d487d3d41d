"""Cuts a stream that says nothing for too long; a slow one that keeps talking is left alone.

One timer per stream, moved lazily: an event costs a look at the clock, not a new timer. Only the wait for the model
counts, never the time a consumer takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from steersman.provider.streaming.normalize import ModelCall, close_stream, open_stream
from steersman.types.errors import StalledError
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import StreamEvent


def with_timeouts(stream_fn: StreamFn, *, first_event: float | None = None, idle: float | None = None) -> StreamFn:
    """The same `StreamFn`, raising `StalledError` when the first event, or a later one, takes longer than this."""
    if first_event is None and idle is None:
        return stream_fn

    async def stream_with_timeouts(
        model: Model, request: Request, options: StreamOptions, /
    ) -> AsyncGenerator[StreamEvent, None]:
        watchdog = _Watchdog()
        source: AsyncIterator[StreamEvent] | None = None
        limit, name = first_event, "first_event_timeout"
        try:
            while True:
                watchdog.arm(limit)
                try:
                    if source is None:
                        source = await open_stream(ModelCall(stream_fn, model, request, options))
                    event = await source.__anext__()
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    if watchdog.bit():
                        raise StalledError(f"No event from the model within {limit:g} s ({name}).") from None
                    raise
                finally:
                    watchdog.disarm()
                yield event
                limit, name = idle, "idle_timeout"
        finally:
            watchdog.close()
            await close_stream(source)

    return stream_with_timeouts


class _Watchdog:
    """Cancels the task that waits longer than it said; knows its own cancel from anybody else's."""

    __slots__ = ("_cancelling", "_deadline", "_fired", "_loop", "_task", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._deadline = 0.0
        self._cancelling = 0
        self._fired = False

    def arm(self, seconds: float | None) -> None:
        """The current task begins to wait."""
        if seconds is None:
            return
        task = asyncio.current_task()
        if task is None:
            return
        self._task = task
        self._cancelling = task.cancelling()
        self._deadline = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self.close()
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._tick)

    def disarm(self) -> None:
        """The wait is over; a cancel of ours that the source swallowed is taken back."""
        if self._fired:
            self.bit()
        self._task = None

    def bit(self) -> bool:
        """Whether the wait ended by our cancel alone; asked once, the cancel is taken back."""
        if not self._fired or self._task is None:
            return False
        self._fired = False
        return self._task.uncancel() <= self._cancelling

    def close(self) -> None:
        """No timer stays behind."""
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
