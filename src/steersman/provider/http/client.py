"""The HTTP of every wire: an exchange gives the bytes, the decoders make events of them, and nothing is left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from steersman.provider.http.exchange import Exchange
from steersman.provider.http.pool import aclose_http
from steersman.provider.http.sse import Event
from steersman.provider.streaming.batches import Batched, Batches
from steersman.provider.wires.protocol import Decoder, Wire, feed_all
from steersman.types.errors import IncompleteStreamError, ProtocolError, ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamEvent, StreamStart

__all__ = ["aclose_http", "http_stream"]


class Reader(Protocol):
    """Turns the bytes of a response into the names and data of its events, as `SseDecoder` does."""

    def feed(self, chunk: bytes, /) -> Sequence[Event]: ...
    def finish(self) -> Sequence[Event]: ...


def http_stream(wire: Wire) -> Batched:
    """The `StreamFn` that speaks this protocol over HTTP; it raises `ProviderError`s and never asks twice.

    The bounds of time and size are in `Model.settings`, see `provider.bounds`.
    """

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        return _batches(wire, model, request, options)

    return Batched(stream)


async def _batches(wire: Wire, model: Model, request: Request, options: StreamOptions) -> Batches:
    exchange = Exchange(wire, model)
    started = done = fresh = False
    # What was read and is not passed on yet.
    told: list[StreamEvent] = []
    try:
        await exchange.ask(request, options)
        decoder = wire.decoder(exchange.model, request)
        sse = exchange.reader
        while not done and (chunk := await exchange.read(fresh=fresh, decoder=decoder)):
            feed_all(decoder, sse.feed(chunk), told)
            done = decoder.done
            fresh = bool(told)
            # What comes with the end of the response is passed on together with it.
            if fresh and not (done and exchange.over):
                batch, told = told, []
                yield batch if started else _begun(batch)
                started = True
        if not done:
            told += _leftover(sse, decoder, exchange.model)
        final = Done(_judged(decoder.finish(), options.max_tokens if exchange.most is None else exchange.most))
        if not exchange.ended():
            await exchange.end()
        batch, told = [*told, final], []
        yield batch if started else _begun(batch)
    except Exception as error:
        if isinstance(error, ProviderError):
            exchange.complete(error)
        if told:
            yield told if started else _begun(told)
        raise
    finally:
        exchange.close()


def _judged(message: AssistantMessage, max_tokens: int | None) -> AssistantMessage:
    """The answer as cut, where it used all the tokens it was allowed and the server calls that a stop."""
    used = message.usage.output
    if max_tokens is None or used is None or used < max_tokens or message.stop_reason != "stop":
        return message
    return msgspec.structs.replace(message, stop_reason="length")


def _begun(events: list[StreamEvent]) -> list[StreamEvent]:
    """The first events of an answer, after its `start` if the protocol has no such thing."""
    return events if type(events[0]) is StreamStart else [StreamStart(), *events]


def _leftover(sse: Reader, decoder: Decoder, model: Model) -> Sequence[StreamEvent]:
    """What a last event without its blank line means, if it is whole; the standard would have it dropped."""
    events: list[StreamEvent] = []
    for name, data in sse.finish():
        try:
            events.extend(decoder.feed(name, data))
        except ProtocolError:
            raise IncompleteStreamError(
                f"The stream of {model.provider!r} ended in the middle of an event.", provider=model.provider
            ) from None
    return events
