"""The Anthropic Messages API as a `Wire`: `anthropic:claude-...`, and every server that speaks the same protocol.

Settings of a model (`get_model(..., settings={...})`):
    anthropic_version   the API version that is asked for
    betas               names for the `anthropic-beta` header
    cache               False for no cache marks; "5m" (the default) or "1h": how long the server keeps what is marked
    thinking            the API's own `thinking` object, instead of the one made from the thinking level
    structured_output   whether `output_type` is sent as a schema, else as a tool; by default where the model takes one
    extra_body          more fields of the request body; `tools` are added to those of the request
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from operator import is_
from typing import Any, cast

import msgspec

from steersman.provider.streaming.batches import Batched, Batches
from steersman.provider.streaming.output_tool import with_output_tool
from steersman.provider.wires.anthropic.decode import PAUSED, AnthropicDecoder
from steersman.provider.wires.anthropic.encode import (
    add_cache_marks,
    build_options,
    build_tool_choice,
    choose_output_mode,
    encode_json,
    encode_messages,
    insert_cache_mark,
)
from steersman.provider.wires.anthropic.errors import classify_response
from steersman.provider.wires.anthropic.schema import convert_parameters
from steersman.provider.wires.protocol import Decoder, HttpRequest
from steersman.provider.wires.tool_names import ToolNames
from steersman.types.errors import ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions, ToolSpec
from steersman.types.stream import Done, Failed, StreamStart
from steersman.types.usage import Usage

MAX_PAUSES = 16
"""How often one answer may pause before it counts as one that comes to no end."""


def resume_pauses(stream_fn: Batched) -> Batched:
    """The same `StreamFn`, asked to go on until the answer is whole."""

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        return _stream_until_complete(stream_fn, model, request, options)

    return Batched(stream)


async def _stream_until_complete(stream_fn: Batched, model: Model, request: Request, options: StreamOptions) -> Batches:
    asked = request
    message: AssistantMessage | None = None
    spent = Usage()
    for _ in range(MAX_PAUSES + 1):
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
            yield (_build_failure(error, spent),)
            return
        if message is None or message.raw_stop_reason != PAUSED:
            break
        asked = replace(request, messages=[*request.messages, message])
    else:
        assert message is not None
        words = f"The server paused its answer {MAX_PAUSES + 1} times without coming to an end."
        message = msgspec.structs.replace(message, stop_reason="error", error_message=words, error_kind="protocol")
    if message is not None:
        yield (Done(msgspec.structs.replace(message, usage=spent)),)


def _build_failure(error: ProviderError, spent: Usage) -> Failed:
    """The failure of an answer after a pause; what the request that failed cost is not known."""
    reason = "refusal" if error.info.kind == "refused" else "error"
    usage = msgspec.structs.replace(spent, partial=True)
    return Failed(AssistantMessage(stop_reason=reason, usage=usage), error.info)


BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME_LENGTH = 64
_MARKS = {"5m": b',"cache_control":{"type":"ephemeral"}', "1h": b',"cache_control":{"type":"ephemeral","ttl":"1h"}'}
_MAX_TOOL_SETS = 64


class ToolSet:
    """The tools of a request, encoded once, and their names on the wire."""

    __slots__ = ("changed", "encoded", "names", "tools")

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.tools = tuple(tools)
        self.names = ToolNames(self.tools, _NAME, _MAX_NAME_LENGTH)
        self.encoded = [encode_json(self._declare(tool)) for tool in self.tools]
        # What the names in a transcript depend on.
        self.changed = tuple(
            (tool.name, wire) for tool in self.tools if (wire := self.names.to_wire(tool.name)) != tool.name
        )

    def _declare(self, tool: ToolSpec) -> dict[str, Any]:
        schema, more = convert_parameters(tool.parameters)
        words = "\n\n".join(filter(None, (tool.description, more)))
        fields: dict[str, Any] = {"name": self.names.to_wire(tool.name)}
        if words:
            fields["description"] = words
        return {**fields, "input_schema": schema}


class AnthropicWire:
    """Writes requests and reads answers of the Anthropic Messages API."""

    name = "anthropic"

    def __init__(self) -> None:
        self._tool_sets: dict[tuple[int, ...], ToolSet] = {}

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """The request as bytes: what stays the same comes first, what may change from turn to turn last."""
        body, most = self._encode_body(model, request, options)
        return HttpRequest(build_url(model.base_url or BASE_URL), _build_headers(model, key), body, most)

    def decoder(self, model: Model, request: Request) -> Decoder:
        """A decoder for the answer; one to a request that ends with a paused answer goes on with that."""
        last = request.messages[-1] if request.messages else None
        paused = last if isinstance(last, AssistantMessage) and last.raw_stop_reason == PAUSED else None
        return AnthropicDecoder(model, self._find_tool_set(request.tools).names, paused)

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What a response that is not a stream means."""
        return classify_response(model, status, headers, body)

    def _find_tool_set(self, tools: Sequence[ToolSpec]) -> ToolSet:
        key = tuple(map(id, tools))
        known = self._tool_sets.get(key)
        # The tools are kept with what was made of them, so an id cannot come to mean another one.
        if known is None or not all(map(is_, known.tools, tools)):
            if len(self._tool_sets) >= _MAX_TOOL_SETS:
                self._tool_sets.clear()
            known = self._tool_sets[key] = ToolSet(tools)
        return known

    def _encode_body(self, model: Model, request: Request, options: StreamOptions) -> tuple[bytes, int | None]:
        tools = self._find_tool_set(request.tools)
        mark = _choose_cache_mark(model)
        extra = cast(Mapping[str, Any], model.settings.get("extra_body") or {})
        said = encode_messages(request.messages, tools.names.to_wire, tools.changed)
        declared = [*tools.encoded, *map(encode_json, extra.get("tools") or ())]
        chosen = build_tool_choice(options)
        if not declared and said.used:
            # A transcript with calls in it is only taken with tools declared; none of these is there to be used.
            declared = [encode_json({"name": name, "input_schema": {"type": "object"}}) for name in said.used]
            chosen = {"type": "none"}
        parts = [b'{"model":', encode_json(model.id), b',"stream":true']
        if declared:
            parts += (b',"tools":', _encode_array(declared, mark))
        if request.system_prompt.strip():
            parts += (
                b',"system":',
                _encode_array([encode_json({"type": "text", "text": request.system_prompt})], mark),
            )
        parts.append(b',"messages":[')
        fields = build_options(model, request, options, said)
        if declared and chosen is not None:
            fields["tool_choice"] = chosen
        fields.update({name: value for name, value in extra.items() if name != "tools"})
        pieces = add_cache_marks(said.list_pieces(), mark) if mark else said.list_pieces()
        # Joined once, because a long conversation is many bytes.
        pieces[:1] = [b"".join((*parts, *pieces[:1]))]
        pieces[-1] = b"".join((pieces[-1], b"],", encode_json(fields)[1:]))
        return b",".join(pieces), fields["max_tokens"]


def _encode_array(objects: list[bytes], mark: bytes) -> bytes:
    whole = b"[" + b",".join(objects) + b"]"
    return insert_cache_mark(whole, mark, depth=2) if mark else whole


def _choose_cache_mark(model: Model) -> bytes:
    wanted = model.settings.get("cache", True)
    if isinstance(wanted, bool):
        return _MARKS["5m"] if wanted else b""
    if wanted not in _MARKS:
        raise ValueError(f"The setting cache is False, True, '5m' or '1h', got {wanted!r}.")
    return _MARKS[wanted]


def build_url(base: str) -> str:
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
    headers.update({name.lower(): value for name, value in model.headers.items()})
    return headers


WIRE = AnthropicWire()


def stream_anthropic() -> StreamFn:
    """The `StreamFn` of the provider `anthropic`."""
    from steersman.provider.http.client import http_stream

    return with_output_tool(resume_pauses(http_stream(WIRE)), choose_output_mode)
