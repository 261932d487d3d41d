"""Decodes an answer of the Anthropic Messages API from its server-sent events.

Compatible servers differ: some leave out the event names, some interleave blocks, some send the whole input of a tool
call in `content_block_start`. Unknown events are skipped; a block of an unknown type is kept for the next request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from steersman.provider.wires.anthropic.errors import build_malformed_error, classify_event
from steersman.provider.wires.anthropic.events import (
    DECODERS,
    AnthropicBlock,
    AnyEvent,
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    Delta,
    MessageDelta,
    MessageHead,
    MessageStart,
    StopDelta,
    add_container,
    decode_delta,
    extract_block,
    find_call_fields,
    find_citations,
    is_usual_call,
    split_fields,
    split_list,
)
from steersman.provider.wires.dialects import build_incomplete_error, keep_unknown_event
from steersman.provider.wires.open_block import judge_calls
from steersman.provider.wires.protocol import ToolNames, check_block_count, check_call_count, decode_count
from steersman.types.content import Content, replace_lone_surrogates, replace_surrogates_in_json
from steersman.types.errors import ErrorKind, IncompleteStreamError, ProtocolError
from steersman.types.frozen import FrozenList
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.model import Model
from steersman.types.stream import (
    StreamEvent,
    StreamStart,
    TextDelta,
    TextStart,
    ThinkingStart,
    ToolCallDelta,
    ToolCallStart,
)
from steersman.types.usage import Usage

PAUSED = "pause_turn"
"""The stop reason of a paused answer: the server continues it when it is sent back unchanged."""


# The events that most servers name.
_NAMES = frozenset(("message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"))
_NOTHING: tuple[StreamEvent, ...] = ()
# The events that hold no piece of a text.
_WITHOUT_PIECES = frozenset((MessageStart, MessageDelta))
# The index of blocks that come whole; the server's own begin at 0.
_WHOLE = -1
_EMPTY = AssistantMessage()
_STARTED: tuple[StreamEvent, ...] = (StreamStart(),)

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "refusal": "refusal",
    PAUSED: "stop",
}


class AnthropicDecoder(msgspec.Struct, eq=False):
    """Decodes one answer. `before` is its first part, if the server paused."""

    _model: Model
    _names: ToolNames
    before: AssistantMessage | None = None
    done: bool = False
    _blocks: list[AnthropicBlock] = []
    _calls: int = 0
    _open: dict[int, AnthropicBlock] = {}
    _usage: dict[str, Any] = {}
    _id: str | None = None
    _reason: Any = None
    _details: dict[str, Any] = {}
    _container: Any = None
    _stopped: bool = False
    _unknown_events: list[str] = []

    @property
    def complete(self) -> bool:
        """Same as `done`: an answer is complete only with its terminal event."""
        return self.done

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode one event."""
        out: list[StreamEvent] = []
        self.feed_all(((event, data),), out)
        return out

    def feed_all(self, received: Sequence[tuple[str, str]], out: list[StreamEvent]) -> None:
        """Decode several events, up to the terminal one."""
        blocks = self._open
        for event, data in received:
            if event != "content_block_delta":
                self._feed_other(event, data, out)
                if self.done:
                    return
                continue
            try:
                got: BlockDelta = decode_delta(data)
            except (msgspec.DecodeError, RecursionError):
                out += self._add_delta(self._decode(BlockDelta, data), data)
                continue
            block, delta = blocks.get(got.index), got.delta
            # The fast path: nearly all events of a stream are deltas of a text or of the arguments of a call.
            if block is None or block.held:
                out += self._add_delta(got, data)
            elif delta.type == "text_delta" and block.kind == "text" and (text := delta.text):
                block.parts.append(text)
                out.append(TextDelta(text, block.at))
            elif delta.type == "input_json_delta" and block.kind == "tool_use" and (text := delta.partial_json):
                block.parts.append(text)
                out.append(ToolCallDelta(text, block.at))
            else:
                out += self._add_delta(got, data)

    def finish(self) -> AssistantMessage:
        """Return the whole answer; raises if the terminal event is missing."""
        if not self.done or not self._stopped:
            started = self._id or self._blocks or self._usage or self._stopped
            raise build_incomplete_error(
                self._model, "anthropic", "'message_stop'", () if started else self._unknown_events
            )
        content = [block.build_content() for block in self._blocks]
        if self._container is not None:
            content = [add_container(block, self._container) for block in content]
        reason, error, kind = self._classify_stop(content)
        if self.before is not None:
            content[:0] = self.before.content
        return msgspec.structs.replace(
            _EMPTY,
            content=FrozenList(content),
            stop_reason=reason,
            raw_stop_reason=_format_stop_reason(self._reason),
            usage=_decode_usage(self._usage),
            model=self._model.id,
            provider=self._model.provider,
            error_message=error,
            error_kind=kind,
            response_id=self._id,
        )

    def _feed_other(self, event: str, data: str, out: list[StreamEvent]) -> None:
        is_named = event in _NAMES and data.startswith("{")
        match event if is_named else self._find_event_name(event, data):
            case "content_block_start":
                got = self._decode(BlockStart, data)
                # A block that never stopped ends where another one takes its index.
                out += self._stop_block(got.index)
                out += self._start_block(got.index, got.content_block, data)
            case "content_block_stop":
                out += self._stop_block(self._decode(BlockStop, data).index)
            case "message_start":
                out += self._start_message(self._decode(MessageStart, data).message, data)
            case "message_delta":
                self._record_stop(self._decode(MessageDelta, data))
            case "message_stop":
                self._decode(AnyEvent, data)  # malformed JSON is not an end
                self.done = True
                for index in list(self._open):
                    out += self._stop_block(index)
            case "content_block_delta":
                out += self._add_delta(self._decode(BlockDelta, data), data)
            case "error":
                raise classify_event(self._model, data)
            case "ping":
                pass
            case _:
                keep_unknown_event(self._unknown_events, data)  # of a later version, or of another protocol

    def _find_event_name(self, event: str, data: str) -> str:
        """Return the name of an event, from its JSON if the server sent none."""
        if not data or data.startswith(":") or data == "[DONE]":
            return "ping"  # a comment that a proxy sent as data, or the end marker of another protocol
        if event in ("", "message"):
            named = self._decode(AnyEvent, data)
            event = named.type or ("error" if named.error is not None else "")
        return event

    def _decode(self, kind: type[Any], data: str | bytes) -> Any:
        try:
            return DECODERS[kind].decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass
        try:
            # Lone surrogates: the strict decoder refuses them. In a block, the other half may follow.
            plain: object = json.loads(data)
            return msgspec.convert(replace_surrogates_in_json(plain) if kind in _WITHOUT_PIECES else plain, kind)
        except (ValueError, RecursionError) as error:
            raise build_malformed_error(self._model, data, error) from error

    def _start_message(self, message: MessageHead, data: str) -> Sequence[StreamEvent]:
        given = None if message.id in (None, "") else replace_lone_surrogates(str(message.id))
        if (self._blocks or self._stopped) and (given is None or given != self._id):
            raise IncompleteStreamError(
                f"{self._model.name} began a second answer ({given!r}) inside the first ({self._id!r}), "
                "so neither is complete.",
                provider=self._model.provider,
            )
        self._id = given or self._id
        self._record_usage(message.usage)
        if self._blocks or (not message.content and message.stop_reason is None):
            return _STARTED
        # Code on the server called another tool: the whole answer is here, and no other event adds to it.
        if message.stop_reason is not None:
            self._record_stop(MessageDelta(StopDelta(message.stop_reason, message.stop_details, message.container)))
        raw = split_fields(split_fields(data).get("message", b"")).get("content", b"")
        return [*_STARTED, *(event for block in split_list(raw) for event in self._add_whole_block(bytes(block)))]

    def _add_whole_block(self, raw: bytes) -> Sequence[StreamEvent]:
        data = f'{{"content_block":{raw.decode()}}}'
        started = self._start_block(_WHOLE, self._decode(Block, raw), data)
        return [*started, *self._stop_block(_WHOLE)]

    def _start_block(self, index: int, block: Block, data: str) -> Sequence[StreamEvent]:
        grown = self._add_block(index, block.type)
        grown.signature = block.signature or None
        match block.type:
            case "text":
                if '"citations"' in data:
                    grown.citations = find_citations(extract_block(data))
                return (TextStart(grown.at), *grown.add_text(block.text))
            case "thinking":
                return (ThinkingStart(grown.at), *grown.add_text(block.thinking))
            case "tool_use":
                grown.id, grown.given = "" if block.id is None else replace_lone_surrogates(str(block.id)), block.input
                grown.name = self._names.from_wire(replace_lone_surrogates(block.name or ""))
                grown.signature = None if is_usual_call(data, block) else find_call_fields(extract_block(data))
                self._calls += 1
                check_call_count(self._calls)
                return (ToolCallStart(grown.at, grown.id, grown.name),)
            case "redacted_thinking":
                grown.signature = block.data
            case _:
                grown.raw = extract_block(data)
        return (ThinkingStart(grown.at),)

    def _add_block(self, index: int, kind: str) -> AnthropicBlock:
        blocks = self._blocks
        at = len(blocks) if self.before is None else len(blocks) + len(self.before.content)
        block = self._open[index] = AnthropicBlock(at, kind)
        blocks.append(block)
        check_block_count(len(blocks))
        return block

    def _add_delta(self, got: BlockDelta, data: str) -> Sequence[StreamEvent]:
        block = self._open.get(got.index)
        delta = got.delta
        if block is None:
            return self._add_unannounced_delta(got.index, delta)
        kind = block.kind
        match delta.type:
            case "text_delta":
                return block.add_text(delta.text) if kind == "text" else _NOTHING
            case "input_json_delta":
                return _NOTHING if kind in ("text", "thinking") else block.add_text(delta.partial_json)
            case "thinking_delta":
                return block.add_text(delta.thinking) if kind == "thinking" else _NOTHING
            case "signature_delta":
                if kind == "thinking":
                    block.signature = delta.signature or block.signature
            case "citations_delta" if kind == "text":
                citation = split_fields(split_fields(data).get("delta", b"")).get("citation")
                if citation is not None:
                    block.citations.append(citation)
            case _:
                if block.raw:
                    block.add_fields(split_fields(data).get("delta", b""))
        return _NOTHING

    def _add_unannounced_delta(self, index: int, delta: Delta) -> Sequence[StreamEvent]:
        """Start a block for text or thinking whose start is missing; raises for a call, whose name is unknown."""
        if not (delta.text or delta.thinking or delta.partial_json):
            return _NOTHING  # such as an empty delta after the block stopped
        if delta.type == "text_delta":
            block = self._add_block(index, "text")
            return (TextStart(block.at), *block.add_text(delta.text))
        if delta.type == "thinking_delta":
            block = self._add_block(index, "thinking")
            return (ThinkingStart(block.at), *block.add_text(delta.thinking))
        if delta.type == "input_json_delta":
            raise ProtocolError(
                f"The server sent input for a tool call in block {index}, which it never started.",
                provider=self._model.provider,
            )
        return _NOTHING

    def _stop_block(self, index: int) -> Sequence[StreamEvent]:
        block = self._open.pop(index, None)
        return _NOTHING if block is None else block.close()

    def _record_stop(self, got: MessageDelta) -> None:
        self._stopped = True
        if got.delta.stop_reason is not None or self._reason is None:
            # Some servers send a second `message_delta` only for the usage.
            self._reason = got.delta.stop_reason
            self._details = (
                cast(dict[str, Any], got.delta.stop_details) if isinstance(got.delta.stop_details, dict) else {}
            )
        if isinstance(got.delta.container, dict):
            self._container = cast(dict[str, Any], got.delta.container).get("id")
        self._record_usage(got.usage)

    def _record_usage(self, usage: dict[str, Any] | None) -> None:
        """Counts are totals: a later count replaces the earlier one, a missing count keeps it."""
        if usage:
            self._usage.update({name: value for name, value in usage.items() if value is not None})

    def _classify_stop(self, content: list[Content]) -> tuple[StopReason, str | None, ErrorKind | None]:
        """Return our stop reason, with the message and the kind of error if it is one."""
        raw = self._reason
        if raw == "model_context_window_exceeded":
            return "error", "The answer filled the model's context window.", "context_overflow"
        reason = _STOP_REASONS.get(raw) if isinstance(raw, str) else None
        if reason is None:
            return "error", f"The server stopped with an unknown stop_reason: {raw!r}.", "protocol"
        if reason == "refusal":
            return reason, _describe_refusal(self._details), "refused"
        return judge_calls(reason, content, self._blocks), None, None


def _describe_refusal(details: dict[str, Any]) -> str:
    category, explanation = details.get("category"), details.get("explanation")
    words = f"The model refused to answer ({category})." if category else "The model refused to answer."
    return f"{words} {explanation}" if explanation else words


def _format_stop_reason(reason: Any) -> str | None:
    if reason is None or isinstance(reason, str):
        return reason
    return msgspec.json.encode(reason).decode()


def _decode_usage(counts: dict[str, Any]) -> Usage:
    details = counts.get("output_tokens_details")
    return Usage(
        input=decode_count(counts.get("input_tokens")),
        output=decode_count(counts.get("output_tokens")),
        cache_read=decode_count(counts.get("cache_read_input_tokens")),
        cache_write=decode_count(counts.get("cache_creation_input_tokens")),
        reasoning=decode_count(cast(dict[str, Any], details).get("thinking_tokens"))
        if isinstance(details, dict)
        else None,
    )
