"""Batches of stream events: the events of one network read are passed on together, not one by one.

A batch is never empty, and the terminal event is the last of its batch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, TypeAlias

import msgspec

from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import StreamEvent

Batch: TypeAlias = Sequence[StreamEvent]
GeneratedBatches: TypeAlias = AsyncGenerator[Batch, None]
TakeDeltas: TypeAlias = Callable[[Batch], int]
"""Takes deltas as they arrive, in the event loop and not in a task; returns how many of them it took. Never raises."""
Events: TypeAlias = AsyncGenerator[StreamEvent, None]


class Batches(Protocol):
    """The batches of an answer: an iterator, such as an async generator, that can be closed before its end."""

    def __aiter__(self) -> AsyncIterator[Batch]: ...
    def __anext__(self) -> Awaitable[Batch]: ...
    def aclose(self) -> Awaitable[None]: ...


class BatchedStreamFn(msgspec.Struct, frozen=True):
    """A `StreamFn` made of a function that gives batches, for callers that can take several events at a time.

    `plain` gives those of a request without an output schema, if they need no wrapper.
    """

    batches: Callable[[Model, Request, StreamOptions], Batches]
    plain: Callable[[Model, Request, StreamOptions], Batches] | None = None

    def __call__(self, model: Model, request: Request, options: StreamOptions, /) -> Events:
        return flatten_batches(self.batches(model, request, options))


async def flatten_batches(batches: Batches) -> Events:
    """The events of the batches one by one; the source is closed with this."""
    async with aclosing(batches):
        async for batch in batches:
            for event in batch:
                yield event


async def batch_singly(events: Events) -> GeneratedBatches:
    """The events as batches of one; the source is closed with this."""
    async with aclosing(events):
        async for event in events:
            yield (event,)
