"""Time limits for any `StreamFn`: cuts a stream that is silent for too long; a slow one that keeps sending goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from math import inf

from steersman.provider.http.watchdog import Watchdog
from steersman.provider.streaming.normalize import ModelCall, close_stream, open_stream
from steersman.types.errors import StalledError
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import StreamEvent


def with_timeouts(stream_fn: StreamFn, *, first_event: float | None = None, idle: float | None = None) -> StreamFn:
    """The same `StreamFn`; it raises `StalledError` when the first event, or a later one, takes more seconds."""
    if first_event is None and idle is None:
        return stream_fn

    async def stream_with_timeouts(
        model: Model, request: Request, options: StreamOptions, /
    ) -> AsyncGenerator[StreamEvent, None]:
        watchdog = Watchdog()
        now = asyncio.get_running_loop().time
        source: AsyncIterator[StreamEvent] | None = None
        limit, name = first_event, "first_event_timeout"
        try:
            while True:
                watchdog.arm(inf if limit is None else now() + limit)
                try:
                    if source is None:
                        source = await open_stream(ModelCall(stream_fn, model, request, options))
                    event = await source.__anext__()
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    if watchdog.disarm():
                        raise StalledError(f"No event from the model within {limit:g} s ({name}).") from None
                    raise
                finally:
                    # Also where the source swallowed the cancel and answered.
                    watchdog.disarm()
                yield event
                limit, name = idle, "idle_timeout"
        finally:
            watchdog.close()
            await close_stream(source)

    return stream_with_timeouts
