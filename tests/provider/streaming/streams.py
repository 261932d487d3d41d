"""Small stream functions for the tests of what is put around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from steersman.provider.streaming.normalize import stream_events
from steersman.testing.clock import run_virtual
from steersman.types.content import TextContent
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent, StreamStart, TextDelta, TextStart

MODEL = Model("lab", "rat")
REQUEST = Request("", ())
OPTIONS = StreamOptions()

HELLO = AssistantMessage([TextContent("hello")], model="rat", provider="lab")


def said(*deltas: str) -> list[StreamEvent]:
    """The beginning of an answer."""
    return [StreamStart(), TextStart(), *(TextDelta(delta) for delta in deltas)]


def failed(kind: ErrorKind = "overloaded", message: str = "busy", **more: Any) -> Failed:
    """The end of a failed attempt."""
    return Failed(AssistantMessage(stop_reason="error"), ErrorInfo(kind, message, **more))


class Attempts:
    """A `StreamFn` that plays one list per attempt: events, numbers to wait for, and exceptions to raise.

    `asked` holds what each attempt was asked with and when; `open` counts streams that were not closed.
    """

    def __init__(self, *attempts: Sequence[object]) -> None:
        self.attempts = [list(attempt) for attempt in attempts]
        self.asked: list[tuple[Model, Request, StreamOptions]] = []
        self.times: list[float] = []
        self.open = 0

    async def __call__(
        self, model: Model, request: Request, options: StreamOptions, /
    ) -> AsyncGenerator[StreamEvent, None]:
        self.asked.append((model, request, options))
        self.times.append(asyncio.get_running_loop().time())
        return self._play(self.attempts[len(self.asked) - 1])

    async def _play(self, steps: Sequence[Any]) -> AsyncGenerator[StreamEvent, None]:
        self.open += 1
        try:
            for step in steps:
                if isinstance(step, int | float):
                    await asyncio.sleep(step)
                elif isinstance(step, BaseException):
                    raise step
                else:
                    yield step
        finally:
            self.open -= 1


def collected(
    stream_fn: Any, *, model: Model = MODEL, request: Request = REQUEST, options: StreamOptions = OPTIONS
) -> list[StreamEvent]:
    """All events of one answer, on virtual time."""

    async def collect() -> list[StreamEvent]:
        return [event async for event in stream_events(stream_fn, model, request, options)]

    return run_virtual(collect())


def outcome(stream_fn: StreamFn) -> Done | Failed:
    """The terminal event of one answer."""
    last = collected(stream_fn)[-1]
    assert isinstance(last, Done | Failed)
    return last
