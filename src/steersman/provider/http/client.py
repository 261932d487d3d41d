"""HTTP for every wire: turns the bytes of a response into the batches of events of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Self

import msgspec

from steersman.provider.http.exchange import Exchange, begin_exchange
from steersman.provider.http.pool import aclose_http
from steersman.provider.http.sse import MAX_PIECE, EventReader
from steersman.provider.streaming.batches import Batch, BatchedStreamFn, Batches, TakeDeltas
from steersman.provider.wires.protocol import Decoder, FeedAll, Wire, find_feed_all
from steersman.types.errors import IncompleteStreamError, ProtocolError, ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamEvent, StreamStart

__all__ = ["aclose_http", "http_stream"]


def http_stream(wire: Wire) -> BatchedStreamFn:
    """The `StreamFn` for a wire protocol over HTTP; it raises `ProviderError`s and does not retry.

    Its time and size limits come from `Model.settings`, see `ResponseLimits`.
    """

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        return HttpAnswer(wire, model, request, options)

    return BatchedStreamFn(stream)


class HttpAnswer(msgspec.Struct, eq=False):
    """The batches of one answer; the request is sent for the first of them.

    An iterator and not a generator: an async generator costs several times as much, in every turn.
    """

    _wire: Wire
    _model: Model
    _request: Request
    _options: StreamOptions
    is_closed: bool = False
    # They are there once the request was sent.
    _exchange: Exchange | None = None
    _decoder: Decoder | None = None
    _feed_all: FeedAll | None = None
    # Decoded, but not passed on yet; and what is raised after that.
    _pending: list[StreamEvent] = []
    _failure: Exception | None = None
    _has_started: bool = False
    # Takes the deltas that come while a batch is waited for.
    _take_deltas: TakeDeltas | None = None

    def deliver_to(self, take: TakeDeltas) -> None:
        """Give deltas that come while a batch is waited for to this function: that costs a task less."""
        self._take_deltas = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if self._failure is not None:
            self._raise_failure()
        if self.is_closed:
            raise StopAsyncIteration
        try:
            batch = await self._read_batch(self._exchange or begin_exchange(self._wire, self._model))
        except Exception as error:
            if isinstance(error, ProviderError) and self._exchange is not None:
                self._exchange.complete_error(error)
            self.close()
            if not self._pending:
                raise
            batch, self._failure = self._pending, error
        except BaseException:
            self.close()
            raise
        if not self._has_started:
            self._has_started = True
            return _prepend_start(batch)
        return batch

    async def _read_batch(self, exchange: Exchange) -> list[StreamEvent]:
        """Read until there are events; the last ones come together with the end of the response."""
        decoder, chunk = self._decoder, None
        if decoder is None:
            self._exchange = exchange
            await exchange.send(self._request, self._options)
            chunk = await exchange.require_event_stream()
            decoder = self._decoder = self._wire.decoder(exchange.model, self._request)
            self._feed_all = find_feed_all(decoder)
        pending, feed_all = self._pending, self._feed_all
        assert feed_all is not None
        while not decoder.done:
            is_trailing = decoder.complete
            if chunk is None:
                deltas = self._take_deltas if self._has_started and not is_trailing else None
                take = deltas and partial(self._take, exchange, decoder, feed_all, deltas)
                chunk = await exchange.read(take, is_trailing=is_trailing)
                self._raise_failure()
            if chunk:
                feed_all(exchange.reader.feed(chunk), pending)
            elif is_trailing or exchange.is_complete:
                break
            chunk = None
            exchange.has_content = bool(pending)
            is_last = exchange.is_complete if decoder.done else exchange.is_over
            if is_last:
                break
            if pending:
                self._pending = []
                return pending
        if not decoder.done:
            pending += _decode_leftover(exchange.reader, decoder, exchange.model)
        message = _complete_message(decoder.finish(), exchange, self._options)
        if not exchange.release_if_complete():
            await exchange.wait_and_release()
        self.close()
        return [*pending, Done(message)]

    def _take(
        self, exchange: Exchange, decoder: Decoder, feed_all: FeedAll, take_deltas: TakeDeltas, chunk: bytes
    ) -> bool:
        """Decode bytes as they arrive, and give the deltas on; `_read_batch` goes on only with what is not taken."""
        if len(chunk) > MAX_PIECE:
            return False
        pending = self._pending
        try:
            feed_all(exchange.reader.feed(chunk), pending)
            exchange.note_bytes(len(chunk), len(pending))
            if pending:
                del pending[: take_deltas(pending)]
        except Exception as error:  # noqa: BLE001  # whatever it is, `_read_batch` raises it
            self._failure = error
        if pending or self._failure is not None or decoder.done or decoder.complete:
            exchange.wake()
        return True

    def _raise_failure(self) -> None:
        """Raise the failure that had to wait, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Close the connection, unless it was released."""
        self.is_closed = True
        if self._exchange is not None:
            self._exchange.close()

    async def aclose(self) -> None:
        """Close the connection, unless it was released."""
        self.close()


def _prepend_start(events: list[StreamEvent]) -> list[StreamEvent]:
    """The first events of an answer, with a `StreamStart` if the protocol has no such event."""
    return events if type(events[0]) is StreamStart else [StreamStart(), *events]


def _decode_leftover(reader: EventReader, decoder: Decoder, model: Model) -> Sequence[StreamEvent]:
    """The events of a last block without its blank line, if it is whole; the SSE standard would drop it."""
    events: list[StreamEvent] = []
    for name, data in reader.finish():
        try:
            events.extend(decoder.feed(name, data))
        except ProtocolError:
            raise IncompleteStreamError(
                f"The stream of {model.provider!r} ended in the middle of an event.", provider=model.provider
            ) from None
    return events


def _complete_message(message: AssistantMessage, exchange: Exchange, options: StreamOptions) -> AssistantMessage:
    """The answer without keys, and with the stop reason `length` if it used all its tokens and the server says stop."""
    if message.error_message is not None:
        return exchange.redact_stop(message)
    max_tokens = options.max_tokens if exchange.max_tokens is None else exchange.max_tokens
    used = message.usage.output
    if max_tokens is None or used is None or used < max_tokens or message.stop_reason != "stop":
        return message
    return msgspec.structs.replace(message, stop_reason="length")
