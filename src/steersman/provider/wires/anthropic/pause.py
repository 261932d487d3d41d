"""Goes on where the server paused.

A model that uses the server's own tools may stop for breath: its answer so far is sent back as it is, and the server
goes on with it. To whoever reads the stream it is one answer.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

import msgspec

from steersman.provider.streaming.batches import Batched, Batches
from steersman.provider.wires.anthropic.decode import PAUSED
from steersman.types.errors import ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, Failed, StreamStart
from steersman.types.usage import Usage

MOST_PAUSES = 16
"""How often one answer may pause before it counts as one that comes to no end."""


def with_pauses(stream_fn: Batched) -> Batched:
    """The same `StreamFn`, asked to go on until the answer is whole."""

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        return _answer(stream_fn, model, request, options)

    return Batched(stream)


async def _answer(stream_fn: Batched, model: Model, request: Request, options: StreamOptions) -> Batches:
    asked = request
    message: AssistantMessage | None = None
    spent = Usage()
    for _ in range(MOST_PAUSES + 1):
        source = stream_fn.batches(model, asked, options)
        first = message is None
        try:
            async with aclosing(source):
                async for batch in source:
                    if type(batch[-1]) is Done:
                        message, batch = batch[-1].message, batch[:-1]
                        spent += message.usage
                    if not first and batch and type(batch[0]) is StreamStart:
                        batch = batch[1:]
                    if batch:
                        yield batch
        except ProviderError as error:
            if first:
                raise
            # As a value, which unlike an exception can tell what the parts before it cost.
            yield (_broken_off(error, spent),)
            return
        if message is None or message.raw_stop_reason != PAUSED:
            break
        asked = replace(request, messages=[*request.messages, message])
    else:
        assert message is not None
        words = f"The server paused its answer {MOST_PAUSES + 1} times without coming to an end."
        message = msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="protocol")
    if message is not None:
        yield (Done(msgspec.structs.replace(message, usage=spent)),)


def _broken_off(error: ProviderError, spent: Usage) -> Failed:
    """The failure of an answer after a pause; what the request that failed cost is not known."""
    reason = "refusal" if error.info.kind == "refused" else "error"
    usage = msgspec.structs.replace(spent, partial=True)
    return Failed(AssistantMessage(stop_reason=reason, usage=usage), error.info)
