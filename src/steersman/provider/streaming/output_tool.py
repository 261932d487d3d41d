"""Structured output for servers without JSON schemas: the model answers by calling a tool made for the schema.

That tool is not visible outside of this wrapper. Its call becomes the text of the answer, in the deltas and in the
message, so it is validated like any other answer, and no gate, hook or limit of tools applies to it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import msgspec

from steersman.provider.streaming.batches import BatchedStreamFn, Batches, Events, batch_singly
from steersman.provider.streaming.failures import get_error_info
from steersman.provider.streaming.normalize import DELTAS, stream_events
from steersman.types.content import Content, TextContent, ToolCall
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions, StreamResponse, ToolSpec
from steersman.types.stream import (
    Done,
    Failed,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

OutputMode: TypeAlias = Literal["schema", "tool", "offered", "words"]
"""How a server learns the schema: as such, as a tool it must or may call, or by the system prompt only."""

ModeOf: TypeAlias = Callable[[Model, Request, StreamOptions], OutputMode]
"""Chooses how to ask a server for an answer in the form of `options.output_schema`."""

FINAL_TOOL_NAME = "final_answer"
_DESCRIPTION = "Give the final answer: call this once, when you have it, instead of writing it as text."

# What servers call the parameter that they do not know; the rest of the message differs everywhere.
_ABOUT_SCHEMA = re.compile(
    r"response[_ ]?format|json[_ ]?(?:schema|mode|object)|structured.?output|output_(?:config|format)|response_?schema"
    r"|response mime|text\.format|grammar",
    re.IGNORECASE,
)
_ABOUT_TOOLS = re.compile(r"tool|function", re.IGNORECASE)
_KEPT = 64


def with_output_tool(stream_fn: StreamFn, mode_of: ModeOf) -> StreamFn:
    """The same `StreamFn`, with `output_schema` sent in the way that its server accepts.

    If a server refuses one way, the next is tried at once, and from then on: schema, tool, system prompt only.
    """
    refused: dict[tuple[str, str | None, str, bool], OutputMode] = {}

    def stream_structured(model: Model, request: Request, options: StreamOptions) -> Events:
        return _stream_structured(_StructuredCall(stream_fn, model, request, options, mode_of, refused))

    def stream(model: Model, request: Request, options: StreamOptions, /) -> StreamResponse | Awaitable[StreamResponse]:
        ask = stream_fn if options.output_schema is None else stream_structured
        return ask(model, request, options)

    def batches(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        if options.output_schema is None and isinstance(stream_fn, BatchedStreamFn):
            return stream_fn.batches(model, request, options)
        return batch_singly(stream_structured(model, request, options))

    return BatchedStreamFn(batches, plain=stream_fn.batches) if isinstance(stream_fn, BatchedStreamFn) else stream


@dataclass(frozen=True, slots=True)
class _StructuredCall:
    """One request for structured output."""

    stream_fn: StreamFn
    model: Model
    request: Request
    options: StreamOptions
    mode_of: ModeOf
    refused: dict[tuple[str, str | None, str, bool], OutputMode]

    @property
    def key(self) -> tuple[str, str | None, str, bool]:
        """What a refusal is remembered for: some servers accept a schema only without tools."""
        return self.model.provider, self.model.base_url, self.model.id, bool(self.request.tools)

    def choose_mode(self) -> OutputMode:
        """The way to ask now."""
        mode = self.mode_of(self.model, self.request, self.options)
        refused = self.refused.get(self.key)
        if mode == "schema" and refused is not None:
            mode = "tool"
        return "words" if mode in ("tool", "offered") and (refused == "tool" or not self.can_be_called) else mode

    @property
    def can_be_called(self) -> bool:
        """Whether a tool call can be the answer: not if calls are forbidden, or another call is required."""
        schema, choice = self.options.output_schema or {}, self.options.tool_choice
        due = choice == "required" and self.request.tools
        return schema.get("type") == "object" and choice != "none" and not due

    def note_refusal(self, mode: OutputMode, failed: Failed) -> bool:
        """Whether the server refused the way it was asked; if so, remember that."""
        error = get_error_info(failed)
        about = _ABOUT_SCHEMA if mode == "schema" else _ABOUT_TOOLS if not self.request.tools else None
        if error.kind != "invalid_request" or about is None or not about.search(error.message):
            return False
        if len(self.refused) >= _KEPT:
            self.refused.clear()
        self.refused[self.key] = "schema" if mode == "schema" else "tool"
        return True


async def _stream_structured(asking: _StructuredCall) -> Events:
    while True:
        mode = asking.choose_mode()
        shown = False
        events = _ask_in_mode(asking, mode)
        try:
            async for event in events:
                if not shown and mode != "words" and type(event) is Failed and asking.note_refusal(mode, event):
                    break
                shown = shown or type(event) in DELTAS
                yield event
            else:
                return
        finally:
            await events.aclose()


def _ask_in_mode(asking: _StructuredCall, mode: OutputMode) -> Events:
    request, options = asking.request, asking.options
    if mode == "schema":
        return stream_events(asking.stream_fn, asking.model, request, options)
    options = replace(options, output_schema=None)
    if mode == "words":
        return stream_events(asking.stream_fn, asking.model, request, options)
    final = _get_final_tool(asking.options.output_schema or {}, request.tools)
    request = replace(request, tools=(*request.tools, final))
    if mode == "tool":
        options = replace(options, tool_choice="required")
    return _rewrite_call_as_text(stream_events(asking.stream_fn, asking.model, request, options), final.name)


@dataclass(frozen=True, slots=True)
class _FinalTool:
    """The tool whose call is the answer."""

    name: str
    description: str
    parameters: Mapping[str, Any]


_final_tools: dict[tuple[int, str], _FinalTool] = {}


def _get_final_tool(schema: Mapping[str, Any], others: Sequence[ToolSpec]) -> _FinalTool:
    """The tool for a schema; the same object each time, so that wires encode it once."""
    taken = {tool.name for tool in others}
    name, number = FINAL_TOOL_NAME, 2
    while name in taken:
        name, number = f"{FINAL_TOOL_NAME}_{number}", number + 1
    known = _final_tools.get((id(schema), name))
    if known is None:
        if len(_final_tools) >= _KEPT:
            _final_tools.clear()
        known = _final_tools[id(schema), name] = _FinalTool(name, _DESCRIPTION, schema)
    return known


async def _rewrite_call_as_text(events: Events, name: str) -> Events:
    """The same answer, with each call of the tool as text."""
    said: dict[int, list[str]] = {}
    open_texts: set[int] = set()
    try:
        async for event in events:
            match event:
                case ToolCallStart(name=called) if called == name:
                    said[event.content_index] = []
                    open_texts.add(event.content_index)
                    yield TextStart(event.content_index)
                case ToolCallDelta() if event.content_index in open_texts:
                    said[event.content_index].append(event.delta)
                    yield TextDelta(event.delta, event.content_index)
                case ToolCallEnd() if event.content_index in open_texts:
                    open_texts.discard(event.content_index)
                    for last in _close_text(event, said[event.content_index]):
                        yield last
                case Done() | Failed():
                    texts = ["".join(parts) for parts in said.values()]
                    cut = ["".join(said[index]) for index in sorted(open_texts)]
                    yield _rewrite_end(event, name, texts, cut)
                case _:
                    yield event
    finally:
        await events.aclose()


def _close_text(event: ToolCallEnd, said: list[str]) -> Sequence[StreamEvent]:
    end = TextEnd(event.content_index)
    if "".join(said).strip() or event.tool_call is None:
        return (end,)
    # A server that sent the arguments only with the end of the call, or none at all.
    said.append(_encode_arguments(event.tool_call))
    return (TextDelta(said[-1], event.content_index), end)


def _encode_arguments(call: ToolCall) -> str:
    return call.raw_arguments if call.raw_arguments else msgspec.json.encode(call.arguments).decode()


def _rewrite_end(event: Done | Failed, name: str, texts: list[str], cut: list[str]) -> Done | Failed:
    message = event.message
    content: list[Content] = []
    broken = False
    for block in message.content:
        if type(block) is ToolCall and block.name == name:
            text = texts.pop(0) if texts else ""
            broken = broken or (block.raw_arguments is not None and not _is_json(block.raw_arguments))
            content.append(TextContent(text if text.strip() else _encode_arguments(block)))
        else:
            content.append(block)
    if isinstance(event, Failed):
        # A call that broke off is not in a failed answer; its text was shown, and stays.
        content += [TextContent(text) for text in cut if text]
    changed = msgspec.structs.replace(
        message, content=content, stop_reason=_correct_stop_reason(message, content, broken=broken)
    )
    return Done(changed) if isinstance(event, Done) else Failed(changed, event.error)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _correct_stop_reason(message: AssistantMessage, content: Sequence[Content], *, broken: bool) -> Any:
    """The stop reason without that call; malformed arguments were cut, whatever the server says."""
    if message.stop_reason not in ("stop", "tool_use"):
        return message.stop_reason
    if broken:
        return "length"
    return "tool_use" if any(type(block) is ToolCall for block in content) else "stop"
