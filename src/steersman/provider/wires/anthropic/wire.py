"""The Anthropic Messages API as a `Wire`: `anthropic:claude-...`, and every compatible server.

Settings of a model (`get_model(..., settings={...})`):
    anthropic_version   the value of the `anthropic-version` header
    betas               names for the `anthropic-beta` header
    cache               False for no cache marks; "5m" (the default) or "1h": how long the prompt cache lives
    thinking            the API's own `thinking` object, instead of the one made from the thinking level
    structured_output   whether `output_type` is sent as a schema, else as a tool; by default if the model takes schemas
    extra_body          more fields of the request body; `tools` are added to those of the request
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache
from typing import Self

import msgspec

from steersman.provider.streaming.batches import (
    Batch,
    BatchedStreamFn,
    Batches,
    GeneratedBatches,
    TakeDeltas,
)
from steersman.provider.streaming.normalize import ModelCall, deliver_deltas
from steersman.provider.streaming.output_tool import with_output_tool
from steersman.provider.wires.anthropic.decode import PAUSED, AnthropicDecoder
from steersman.provider.wires.anthropic.encode import encode_request, encode_tools
from steersman.provider.wires.anthropic.errors import classify_response
from steersman.provider.wires.anthropic.schema import choose_output_mode
from steersman.provider.wires.protocol import Decoder, HttpRequest
from steersman.types.errors import ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, Failed, StreamStart
from steersman.types.usage import Usage

MAX_PAUSES = 16
"""How often one answer may pause before it counts as endless."""


def resume_pauses(stream_fn: BatchedStreamFn) -> BatchedStreamFn:
    """Wrap a `StreamFn`: send a paused answer back until it is complete."""

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        return _PausableAnswer(stream_fn, ModelCall(stream_fn, model, request, options))

    return BatchedStreamFn(stream)


class _PausableAnswer:
    """The batches of an answer: nearly always just those of its first part, else also those of `_stream_rest`."""

    __slots__ = ("_call", "_is_first_part", "_source", "_stream_fn")

    def __init__(self, stream_fn: BatchedStreamFn, call: ModelCall) -> None:
        self._stream_fn = stream_fn
        self._call = call
        self._source = stream_fn.batches(call.model, call.request, call.options)
        self._is_first_part = True

    def __aiter__(self) -> Self:
        return self

    def deliver_to(self, take: TakeDeltas) -> None:
        """Let the first part give deltas to this function."""
        deliver_deltas(self._source, take)

    async def __anext__(self) -> Batch:
        batch = await anext(self._source)
        last = batch[-1]
        if type(last) is not Done or last.message.raw_stop_reason != PAUSED or not self._is_first_part:
            return batch
        self._is_first_part = False
        await self._source.aclose()
        self._source = _stream_rest(self._stream_fn, self._call, last.message)
        return batch[:-1] or await anext(self._source)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is left to close."""
        return getattr(self._source, "is_closed", False)

    async def aclose(self) -> None:
        """Close the part that is being read."""
        await self._source.aclose()


async def _stream_rest(stream_fn: BatchedStreamFn, call: ModelCall, message: AssistantMessage) -> GeneratedBatches:
    """The parts of an answer after its first pause; the last event has the usage of all parts."""
    spent = message.usage
    for _ in range(MAX_PAUSES):
        continued = replace(call.request, messages=[*call.request.messages, message])
        try:
            async with aclosing(stream_fn.batches(call.model, continued, call.options)) as source:
                async for batch in source:
                    if type(batch[-1]) is Done:
                        message, batch = batch[-1].message, batch[:-1]
                        spent += message.usage
                    if batch and type(batch[0]) is StreamStart:
                        batch = batch[1:]
                    if batch:
                        yield batch
        except ProviderError as error:
            # A value, because an exception cannot carry the usage of the parts before it.
            yield (_build_failure(error, spent),)
            return
        if message.raw_stop_reason != PAUSED:
            break
    else:
        words = f"The server paused its answer {MAX_PAUSES + 1} times without completing it."
        message = msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="protocol")
    yield (Done(msgspec.structs.replace(message, usage=spent)),)


def _build_failure(error: ProviderError, spent: Usage) -> Failed:
    """Build the failure of an answer after a pause; the usage of the failed request is unknown."""
    reason = "refusal" if error.info.kind == "refused" else "error"
    usage = msgspec.structs.replace(spent, partial=True)
    return Failed(AssistantMessage(stop_reason=reason, usage=usage), error.info)


BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"


class AnthropicWire:
    """Encodes requests and decodes answers of the Anthropic Messages API."""

    name = "anthropic"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        body, limit = encode_request(model, request, options)
        return HttpRequest(build_url(model.base_url or BASE_URL), _build_headers(model, key), body, limit)

    def decoder(self, model: Model, request: Request) -> Decoder:
        """Return a new decoder; if the request ends with a paused answer, it continues that answer."""
        last = request.messages[-1] if request.messages else None
        paused = last if isinstance(last, AssistantMessage) and last.raw_stop_reason == PAUSED else None
        first = 0 if paused is None else len(paused.content)
        return AnthropicDecoder(model, encode_tools(request.tools).names, paused, first)

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream."""
        return classify_response(model, status, headers, body)


@lru_cache(maxsize=64)
def build_url(base: str) -> str:
    """Return the URL to post to; the base URL may leave out the API version, or be the whole URL already."""
    base = base.rstrip("/")
    if base.endswith("/messages"):
        return base
    return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"


def _build_headers(model: Model, key: str | None) -> dict[str, str]:
    settings = model.settings
    headers = {
        "accept": "text/event-stream",
        "anthropic-version": str(settings.get("anthropic_version") or VERSION),
        "content-type": "application/json",
    }
    if key:
        headers["x-api-key"] = key
    if betas := settings.get("betas"):
        headers["anthropic-beta"] = betas if isinstance(betas, str) else ",".join(betas)
    if model.headers:
        headers.update({name.lower(): value for name, value in model.headers.items()})
    return headers


WIRE = AnthropicWire()


def stream_anthropic() -> StreamFn:
    """The `StreamFn` of the provider `anthropic`."""
    from steersman.provider.http.client import http_stream

    return with_output_tool(resume_pauses(http_stream(WIRE)), choose_output_mode)
