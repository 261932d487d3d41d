"""Decodes an answer of the Anthropic Messages API from its server-sent events.

Compatible servers differ: some leave out the event names, some interleave blocks, some send the whole input of a tool
call in `content_block_start`. Unknown events are skipped; a block of an unknown type is kept for the next request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, cast

import msgspec

from steersman.provider.wires.anthropic.errors import build_malformed_error, classify_event
from steersman.provider.wires.anthropic.events import (
    AnthropicBlock,
    AnyEvent,
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    Delta,
    Event,
    MessageDelta,
    MessageHead,
    MessageStart,
    StopDelta,
    add_container,
    decode_delta,
    decode_usage,
    extract_block,
    find_call_fields,
    find_citations,
    is_usual_call,
    make_decoder,
    split_fields,
    split_list,
)
from steersman.provider.wires.dialects import build_incomplete_error, keep_unknown_event
from steersman.provider.wires.open_block import judge_blocks
from steersman.provider.wires.protocol import MAX_BLOCKS, ToolNames, check_block_count, check_call_count
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

PAUSED = "pause_turn"
"""The stop reason of a paused answer: the server continues it when it is sent back unchanged."""


_NOTHING: tuple[StreamEvent, ...] = ()
# The events that hold no piece of a text.
_WITHOUT_PIECES = frozenset((MessageStart, MessageDelta))
# The index of blocks that come whole; the server's own begin at 0.
_WHOLE = -1
_EMPTY = AssistantMessage()
_STARTED = StreamStart()

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "refusal": "refusal",
    PAUSED: "stop",
}


_Step: TypeAlias = tuple[
    type[Any], Callable[[str], Any], Callable[["AnthropicDecoder", Any, str, list[StreamEvent]], None]
]
"""What the JSON of an event is decoded to, by which function, and what is done with that."""


class AnthropicDecoder(msgspec.Struct, eq=False):
    """Decodes one answer. `before` is its first part, if the server paused."""

    _model: Model
    _names: ToolNames
    before: AssistantMessage | None = None
    # The place of the first block in the answer.
    first: int = 0
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
        content = [block.content or block.build_content() for block in self._blocks]
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
            usage=decode_usage(self._usage),
            model=self._model.id,
            provider=self._model.provider,
            error_message=error,
            error_kind=kind,
            response_id=self._id,
        )

    def _feed_other(self, event: str, data: str, out: list[StreamEvent]) -> None:
        step = self._STEPS.get(event) or self._find_step(event, data)
        if step is None:
            return
        kind, decode, add = step
        try:
            got = decode(data)
        except (msgspec.DecodeError, RecursionError):
            if _is_empty(data):
                return
            got = self._decode_leniently(kind, data)
        add(self, got, data, out)

    def _find_step(self, event: str, data: str) -> _Step | None:
        """Find out what to do with an event from its JSON, if the server sent no name; `None` for nothing."""
        if _is_empty(data):
            return None
        if event in ("", "message"):
            named: AnyEvent = self._decode(AnyEvent, data)
            event = named.type or ("error" if named.error is not None else "")
        if event == "error":
            raise classify_event(self._model, data)
        step = self._STEPS.get(event)
        if step is None and event != "ping":
            keep_unknown_event(self._unknown_events, data)  # of a later version, or of another protocol
        return step

    def _decode(self, kind: type[Event], data: str | bytes) -> Event:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError):
            return self._decode_leniently(kind, data)

    def _decode_leniently(self, kind: type[Event], data: str | bytes) -> Event:
        """Decode lone surrogates, which the strict decoder refuses. In a block, the other half may follow."""
        try:
            plain: object = json.loads(data)
            return msgspec.convert(replace_surrogates_in_json(plain) if kind in _WITHOUT_PIECES else plain, kind)
        except (ValueError, RecursionError) as error:
            raise build_malformed_error(self._model, data, error) from error

    def _start_message(self, got: MessageStart, data: str, out: list[StreamEvent]) -> None:
        message = got.message
        given = str(message.id) if message.id not in (None, "") else None
        if (self._blocks or self._stopped) and (given is None or given != self._id):
            raise IncompleteStreamError(
                f"{self._model.name} began a second answer ({given!r}) inside the first ({self._id!r}), "
                "so neither is complete.",
                provider=self._model.provider,
            )
        self._id = given or self._id
        self._record_usage(message.usage)
        out.append(_STARTED)
        if not self._blocks and (message.content or message.stop_reason is not None):
            self._add_whole_message(message, data, out)

    def _add_whole_message(self, message: MessageHead, data: str, out: list[StreamEvent]) -> None:
        """Add what came with the start: code on the server called another tool, and no other event adds to that."""
        if message.stop_reason is not None:
            self._record_stop(MessageDelta(StopDelta(message.stop_reason, message.stop_details, message.container)))
        raw = split_fields(split_fields(data).get("message", b"")).get("content", b"")
        for block in map(bytes, split_list(raw)):
            self._start_block(_WHOLE, self._decode(Block, block), f'{{"content_block":{block.decode()}}}', out)
            self._stop_block(_WHOLE, out)

    def _begin_block(self, got: BlockStart, data: str, out: list[StreamEvent]) -> None:
        if got.index in self._open:  # a block that never stopped ends where another one takes its index
            self._stop_block(got.index, out)
        self._start_block(got.index, got.content_block, data, out)

    def _start_block(self, index: int, block: Block, data: str, out: list[StreamEvent]) -> None:
        grown = self._add_block(index, block.type)
        grown.signature = _read_signature(block.signature)
        match block.type:
            case "text":
                if '"citations"' in data:
                    grown.citations = find_citations(extract_block(data))
                out.append(TextStart(grown.at))
                out += grown.add_text(block.text)
            case "tool_use":
                grown.id, grown.given = "" if block.id is None else replace_lone_surrogates(str(block.id)), block.input
                grown.name = self._names.from_wire(replace_lone_surrogates(block.name or ""))
                grown.signature = None if is_usual_call(data, block) else find_call_fields(extract_block(data))
                self._calls += 1
                check_call_count(self._calls)
                out.append(ToolCallStart(grown.at, grown.id, grown.name))
            case "thinking":
                out.append(ThinkingStart(grown.at))
                out += grown.add_text(block.thinking)
            case "redacted_thinking":
                grown.signature = block.data and _read_signature(block.data)
                out.append(ThinkingStart(grown.at))
            case _:
                grown.raw = extract_block(data)
                out.append(ThinkingStart(grown.at))

    def _add_block(self, index: int, kind: str) -> AnthropicBlock:
        blocks = self._blocks
        block = self._open[index] = AnthropicBlock(self.first + len(blocks), kind)
        blocks.append(block)
        if len(blocks) > MAX_BLOCKS:
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
                    block.signature = _read_signature(delta.signature) or block.signature
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

    def _add_named_delta(self, got: BlockDelta, data: str, out: list[StreamEvent]) -> None:
        out += self._add_delta(got, data)

    def _end_block(self, got: BlockStop, _data: str, out: list[StreamEvent]) -> None:
        self._stop_block(got.index, out)

    def _stop_block(self, index: int, out: list[StreamEvent]) -> None:
        block = self._open.pop(index, None)
        if block is not None:
            out += block.close()

    def _end_message(self, _got: AnyEvent, _data: str, out: list[StreamEvent]) -> None:
        self.done = True
        for index in list(self._open):
            self._stop_block(index, out)

    def _record_stop(self, got: MessageDelta, _data: str = "", _out: object = None) -> None:
        self._stopped = True
        delta = got.delta
        if delta.stop_reason is not None or self._reason is None:
            # Some servers send a second `message_delta` only for the usage.
            self._reason = delta.stop_reason
            self._details = cast(dict[str, Any], delta.stop_details) if isinstance(delta.stop_details, dict) else {}
        if isinstance(delta.container, dict):
            self._container = cast(dict[str, Any], delta.container).get("id")
        self._record_usage(got.usage)

    _STEPS: ClassVar[dict[str, _Step]] = {
        "message_start": (MessageStart, make_decoder(MessageStart), _start_message),
        "content_block_start": (BlockStart, make_decoder(BlockStart), _begin_block),
        "content_block_delta": (BlockDelta, decode_delta, _add_named_delta),
        "content_block_stop": (BlockStop, make_decoder(BlockStop), _end_block),
        "message_delta": (MessageDelta, make_decoder(MessageDelta), _record_stop),
        # Malformed JSON is not an end.
        "message_stop": (AnyEvent, make_decoder(AnyEvent), _end_message),
    }

    def _record_usage(self, usage: dict[str, Any] | None) -> None:
        """Counts are totals: a later count replaces the earlier one, a missing count keeps it."""
        if usage and None in usage.values():
            usage = {name: value for name, value in usage.items() if value is not None}
        self._usage.update(usage or ())

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
        return judge_blocks(reason, content, self._blocks), None, None


def _read_signature(text: str | None) -> str | None:
    """A signature as it is kept; one with half of a character is no signature, but the answer can still be saved."""
    return replace_lone_surrogates(text) if text else None


def _describe_refusal(details: dict[str, Any]) -> str:
    category, explanation = details.get("category"), details.get("explanation")
    words = f"The model refused to answer ({category})." if category else "The model refused to answer."
    return f"{words} {explanation}" if explanation else words


def _format_stop_reason(reason: Any) -> str | None:
    if reason is None or isinstance(reason, str):
        return reason
    return msgspec.json.encode(reason).decode()


def _is_empty(data: str) -> bool:
    """Whether an event holds nothing: a comment that a proxy sent as data, or the end marker of another protocol."""
    return not data or data.startswith(":") or data == "[DONE]"
