"""A run as its caller sees it: iterate over it, await it, or both.

Memory is bounded: when the reader falls behind, `wait_for_reader` makes the run wait before it reads more from the
provider. The bound is lifted only while a task awaits the outcome and no task reads: else the run would wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Self

from steersman.types.events import AgentEnd, AgentEvent
from steersman.types.messages import AgentMessage
from steersman.types.output import OutputT
from steersman.types.result import RunResult

DEFAULT_LIMIT = 256
UNREAD_SECONDS = 5.0
"""How long a run waits for the first read of its stream before it logs that."""

_log = logging.getLogger("steersman")


class Channel:
    """The buffer between a run and its reader; the run holds this, the caller holds the `EventStream`."""

    __slots__ = (
        "_idle", "_waiting", "_warning", "awaiting", "begun", "buffer", "detached", "limit", "may_warn", "outcome",
        "reading", "take", "writer",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        self.buffer: deque[AgentEvent] = deque()
        # How a reader takes the next event: another way while the run waits for it.
        self.take = self.buffer.popleft
        self.limit = limit
        self.begun = False
        self.detached = False
        # The outcome of the run, once it is over, and the futures of the tasks that wait for it.
        self.outcome: RunResult[Any] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        # The task of each reader, and the tasks that await the outcome.
        self.reading: dict[int, asyncio.Task[Any] | None] = {}
        self.awaiting: list[asyncio.Task[Any] | None] = []
        self._idle: list[asyncio.Future[None]] = []
        self.writer: asyncio.Future[None] | None = None
        # A run that waits for the first read of its stream logs that, once, by a timer.
        self.may_warn = True
        self._warning: asyncio.TimerHandle | None = None

    def push(self, event: AgentEvent) -> None:
        """Keep an event for the reader."""
        self.buffer.append(event)
        if self._idle:
            self.wake_readers()

    def push_all(self, events: Sequence[AgentEvent]) -> None:
        """Keep events for the reader, which is woken once."""
        self.buffer += events
        if self._idle:
            self.wake_readers()

    def wake_readers(self) -> None:
        """Let the readers that wait for an event look again."""
        while self._idle:
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)

    @property
    def is_full(self) -> bool:
        """Whether the run should wait for the reader."""
        if len(self.buffer) < self.limit or self.detached:
            return False
        # A task that awaits the outcome does not read meanwhile, not even in the middle of an iteration.
        return not self.awaiting or any(task not in self.awaiting for task in self.reading.values())

    async def wait_for_reader(self) -> None:
        """Wait until the reader has caught up, or has gone."""
        while self.is_full:
            loop = asyncio.get_running_loop()
            self.writer = loop.create_future()
            self.take = self._take_and_wake_run
            if self.may_warn:
                self._warning = loop.call_later(UNREAD_SECONDS, self._warn)
            try:
                await self.writer
            finally:
                self.writer = None
                self.take = self.buffer.popleft
                self.stop_warning()

    def _take_and_wake_run(self) -> AgentEvent:
        """The next event; lets the run go on once half of them are read."""
        if len(self.buffer) <= self.limit // 2 + 1:
            self.wake_run()
        return self.buffer.popleft()

    def stop_warning(self) -> None:
        """Do not log that the run waits: it goes on, or a reader has come."""
        if self._warning is not None:
            self._warning.cancel()
            self._warning = None

    def _warn(self) -> None:
        self.may_warn = False
        loop_id = self.buffer[0].loop_id if self.buffer else ""
        _log.warning(
            "The stream of the run %s has %d events, and no reader for %g s: the run waits. Iterate over the stream, "
            "await it, or use agent.run(...) where the events are not needed.",
            loop_id,
            len(self.buffer),
            UNREAD_SECONDS,
        )

    def wake_run(self) -> None:
        """Let a waiting run look again."""
        if self.writer is not None and not self.writer.done():
            self.writer.set_result(None)

    async def wait_without_bound(self, future: asyncio.Future[None]) -> None:
        """Wait for something; this task reads nothing meanwhile, so the bound is lifted unless another one does."""
        task = asyncio.current_task()
        self.awaiting.append(task)
        self.wake_run()
        try:
            await future
        finally:
            self.awaiting.remove(task)

    def finish(self, outcome: RunResult[Any]) -> None:
        """Set the outcome of the run, which is over, and wake the tasks that wait for it."""
        self.outcome = outcome
        self.wake_readers()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for_outcome(self) -> None:
        """Wait for the outcome."""
        waiter, task = asyncio.get_running_loop().create_future(), asyncio.current_task()
        self._waiting.append(waiter)
        self.awaiting.append(task)
        self.wake_run()
        try:
            await waiter
        finally:
            self.awaiting.remove(task)
            self._waiting.remove(waiter)

    def detach(self) -> None:
        """Drop the events: no reader will come."""
        self.detached = True
        self.buffer.clear()
        self.wake_run()

    def wait_for_change(self) -> asyncio.Future[None]:
        """A future that is done with the next event, or at the end."""
        future = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        return future


class _Reader:
    """One iteration over a stream; dropping it before the end cancels the run."""

    __slots__ = ("_buffer", "_channel", "_done", "_stream")

    def __init__(self, stream: EventStream[Any]) -> None:
        self._stream = stream
        self._channel = stream.channel
        self._buffer = stream.channel.buffer
        self._done = False
        self._channel.may_warn = False
        self._channel.stop_warning()
        # Which task reads; an iteration may be handed from one to another.
        self._channel.reading[id(self)] = asyncio.current_task()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        if not self._buffer:
            buffer, channel = self._buffer, self._channel
            channel.reading[id(self)] = asyncio.current_task()
            while not buffer and channel.outcome is None:
                await channel.wait_for_change()
            if not buffer:
                self._unregister()
                raise StopAsyncIteration
        return self._channel.take()

    def _unregister(self) -> None:
        if not self._done:
            self._done = True
            self._channel.reading.pop(id(self), None)

    def __del__(self) -> None:
        if not self._done:
            self._unregister()
            self._stream.abandon()


class EventStream(Generic[OutputT]):
    """What `agent_loop` and `Agent.prompt` return.

    `async for event in stream` gives the events, `await stream` a `RunResult`, `stream.result()` the new messages.
    Leaving an iteration early, or `async with`, cancels the run. A stream that is dropped unread lets its run go on.
    """

    __slots__ = ("__weakref__", "_cancel", "_start", "channel")

    def __init__(self, *, limit: int = DEFAULT_LIMIT) -> None:
        self.channel = Channel(limit)
        self._start: Callable[[], None] | None = None
        self._cancel: Callable[[], None] | None = None

    def bind(self, *, start: Callable[[], None] | None, cancel: Callable[[], None]) -> None:
        """Connect the stream to its run; `start` is called at first use, when the run could not start at once."""
        self._start = start
        self._cancel = cancel
        self.channel.begun = start is None

    def push(self, event: AgentEvent) -> None:
        """Add an event; `agent_end` is the last one and resolves the result when no run is bound."""
        self.channel.push(event)
        if type(event) is AgentEnd and self._cancel is None:
            self.channel.finish(RunResult(list(event.messages), event.usage, event.end_reason, event.detail))

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self.channel.outcome is not None

    def __aiter__(self) -> _Reader:
        self._begin()
        return _Reader(self)

    def __await__(self) -> Generator[Any, None, RunResult[OutputT]]:
        return self._wait().__await__()

    async def result(self) -> list[AgentMessage]:
        """The new messages of the run, once it is over."""
        return list((await self._wait()).messages)

    async def aclose(self) -> None:
        """Cancel the run unless it is over, and wait until nothing of it is left."""
        self.abandon()
        self._begin()
        await self._wait()

    def abandon(self) -> None:
        """Cancel the run unless it is over, and keep no more events for a reader."""
        if self.channel.outcome is None and self._cancel is not None:
            self._cancel()
        self.channel.detach()

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _wait(self) -> RunResult[OutputT]:
        self._begin()
        channel = self.channel
        while channel.outcome is None:
            try:
                await channel.wait_for_outcome()
            except asyncio.CancelledError:
                # The caller gave up waiting; unless someone else still listens, the run was for them alone,
                # and nothing of it may be left when the caller goes on.
                if not channel.reading and not channel.awaiting:
                    self.abandon()
                    await self._wait()
                raise
        return channel.outcome

    def _begin(self) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            start()
            self.channel.begun = True

    def __del__(self) -> None:
        self.channel.detach()


def create_agent_stream() -> EventStream:
    """A stream of its own, to push events into by hand."""
    return EventStream()
