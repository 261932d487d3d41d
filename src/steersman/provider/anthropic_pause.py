"""Goes on where the server paused.

A model that uses the server's own tools may stop for breath: its answer so far is sent back as it is, and the server
goes on with it. To whoever reads the stream it is one answer.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

import msgspec

from steersman.provider.anthropic_decode import PAUSED
from steersman.provider.batches import Batched, Batches
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamStart

MOST_PAUSES = 16
"""How often one answer may pause before it counts as one that comes to no end."""


def with_pauses(stream_fn: Batched) -> Batched:
    """The same `StreamFn`, asked to go on until the answer is whole."""

    async def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        asked = request
        message: AssistantMessage | None = None
        for _ in range(MOST_PAUSES + 1):
            source = stream_fn.batches(model, asked, options)
            first = message is None
            async with aclosing(source):
                async for batch in source:
                    if type(batch[-1]) is Done:
                        message, batch = batch[-1].message, batch[:-1]
                    if not first and batch and type(batch[0]) is StreamStart:
                        batch = batch[1:]
                    if batch:
                        yield batch
            if message is None or message.raw_stop_reason != PAUSED:
                break
            asked = replace(request, messages=[*request.messages, message])
        else:
            assert message is not None
            words = f"The server paused its answer {MOST_PAUSES + 1} times without coming to an end."
            message = msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="protocol")
        if message is not None:
            yield (Done(message),)

    return Batched(stream)
