"""Goes on where the server paused.

A model that uses the server's own tools may stop for breath: its answer so far is sent back as it is, and the server
goes on with it. To whoever reads the stream it is one answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import cast

import msgspec

from steersman.provider.anthropic_decode import PAUSED
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, StreamEvent, StreamStart

MOST_PAUSES = 16
"""How often one answer may pause before it counts as one that comes to no end."""


def with_pauses(stream_fn: StreamFn) -> StreamFn:
    """The same `StreamFn`, asked to go on until the answer is whole."""

    async def stream(model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[StreamEvent, None]:
        asked = request
        message: AssistantMessage | None = None
        for _ in range(MOST_PAUSES + 1):
            source = cast(AsyncGenerator[StreamEvent, None], stream_fn(model, asked, options))
            first = message is None
            async with aclosing(source):
                async for event in source:
                    if type(event) is Done:
                        message = event.message
                    elif first or type(event) is not StreamStart:
                        yield event
            if message is None or message.raw_stop_reason != PAUSED:
                break
            asked = replace(request, messages=[*request.messages, message])
        else:
            assert message is not None
            words = f"The server paused its answer {MOST_PAUSES + 1} times without coming to an end."
            message = msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="protocol")
        if message is not None:
            yield Done(message)

    return stream
