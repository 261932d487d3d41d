"""Decodes an answer of the Converse API from its events; `metadata`, with the usage, is the last one.

Only tool calls announce their block. A block of text or reasoning begins with its first delta. Blocks of tools that the
server runs itself are kept for the next request, and never run here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from steersman.provider.http.errors import build_malformed_error
from steersman.provider.wires.bedrock.errors import classify_exception
from steersman.provider.wires.bedrock.events import (
    DECODERS,
    BlockDelta,
    BlockStart,
    BlockStop,
    MessageStop,
    Metadata,
    Reasoning,
    RedactedBlock,
    ServerBlock,
    ToolStart,
    decode_delta,
)
from steersman.provider.wires.bedrock.frames import EXCEPTION
from steersman.provider.wires.dialects import build_incomplete_error, keep_unknown_event
from steersman.provider.wires.open_block import OpenBlock, judge_blocks
from steersman.provider.wires.protocol import ToolNames, check_block_count, check_call_count, decode_count
from steersman.types.content import Content, TextContent, replace_lone_surrogates, replace_surrogates_in_json
from steersman.types.errors import ErrorKind, ProtocolError
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.model import Model
from steersman.types.stream import StreamEvent, StreamStart, TextStart, ThinkingStart, ToolCallStart
from steersman.types.usage import Usage

_NOTHING: tuple[StreamEvent, ...] = ()
_STARTED: tuple[StreamEvent, ...] = (StreamStart(),)
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "content_filtered": "refusal",
    "guardrail_intervened": "refusal",
    "refusal": "refusal",
}
# The model wrote malformed output: another attempt may succeed.
_SHOWN = 300
_MALFORMED = frozenset(("malformed_model_output", "malformed_tool_use"))


class BedrockDecoder(msgspec.Struct, eq=False):
    """Decodes one answer."""

    _model: Model
    _names: ToolNames
    done: bool = False
    _begun: bool = False
    _blocks: list[OpenBlock] = []
    _calls: int = 0
    _open: dict[int, OpenBlock] = {}
    _usage: dict[str, Any] = {}
    _reason: Any = None
    _stopped: bool = False
    _unknown_events: list[str] = []

    @property
    def complete(self) -> bool:
        """Whether the stop reason has arrived; the usage may follow."""
        return self._stopped

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode one event."""
        if event == "contentBlockDelta":
            try:
                got: BlockDelta = decode_delta(data)
            except (msgspec.DecodeError, RecursionError):
                got = self._decode(BlockDelta, data)
            return self._add_delta(got)
        return self._feed_other(event, data)

    def finish(self) -> AssistantMessage:
        """Return the whole answer; raises if the stop reason is missing."""
        if not self._stopped:
            unknown = () if self._begun or self._blocks else self._unknown_events
            raise build_incomplete_error(self._model, "bedrock", "'messageStop'", unknown)
        content = [block.content or block.build_content() for block in self._blocks]
        reason, error, kind = self._classify_stop(content)
        raw = self._reason
        return AssistantMessage(
            content,
            stop_reason=reason,
            raw_stop_reason=raw if raw is None or isinstance(raw, str) else msgspec.json.encode(raw).decode(),
            usage=_decode_usage(self._usage),
            model=self._model.id,
            provider=self._model.provider,
            error_message=error,
            error_kind=kind,
        )

    def _feed_other(self, event: str, data: str) -> Sequence[StreamEvent]:
        match event:
            case "contentBlockStart":
                return self._start_block(self._decode(BlockStart, data))
            case "contentBlockStop":
                return self._stop_block(self._decode(BlockStop, data).content_block_index)
            case "messageStart":
                self._decode(Any, data)
                self._begun = True
                return _STARTED
            case "messageStop":
                self._reason = self._decode(MessageStop, data).stop_reason
                self._stopped = True
                return self._stop_blocks()
            case "metadata":
                self._usage = self._decode(Metadata, data).usage or {}
                self.done = self._stopped
                return self._stop_blocks() if self.done else _NOTHING
            case _ if event.startswith(EXCEPTION):
                raise classify_exception(self._model, event.removeprefix(EXCEPTION), data)
            case _:
                keep_unknown_event(self._unknown_events, data)  # of a later version, or of another protocol
        return _NOTHING

    def _decode(self, kind: Any, data: str) -> Any:
        try:
            return DECODERS[kind].decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass
        try:
            # Lone surrogates: the strict decoder refuses them. In a delta, the other half may follow.
            plain: object = json.loads(data)
            return msgspec.convert(plain if kind is BlockDelta else replace_surrogates_in_json(plain), kind)
        except (ValueError, RecursionError) as error:
            raise build_malformed_error(self._model, data, error) from error

    def _start_block(self, got: BlockStart) -> Sequence[StreamEvent]:
        call, result = got.start.tool_use, got.start.tool_result
        index = got.content_block_index
        if result is not None or (call is not None and call.type is not None):
            fields = {"toolResult": _describe(result)} if result is not None else {"toolUse": _describe(call)}
            closed = self._stop_block(index)
            block = self._add_block(index, ServerBlock(len(self._blocks), fields=fields))
            return (*closed, ThinkingStart(block.at))
        if call is None:
            return _NOTHING  # a text or another block; its first delta says what it is
        closed = self._stop_block(index)
        block = self._add_block(index, OpenBlock(len(self._blocks), "tool_use"))
        block.id = "" if call.tool_use_id is None else replace_lone_surrogates(str(call.tool_use_id))
        block.name = self._names.from_wire(replace_lone_surrogates(call.name or ""))
        self._calls += 1
        check_call_count(self._calls)
        return (*closed, ToolCallStart(block.at, block.id, block.name))

    def _add_block(self, index: int, block: OpenBlock) -> OpenBlock:
        self._open[index] = block
        self._blocks.append(block)
        check_block_count(len(self._blocks))
        return block

    def _add_delta(self, got: BlockDelta) -> Sequence[StreamEvent]:
        delta, index = got.delta, got.content_block_index
        if delta.text is not None:
            return self._add_text(index, "text", delta.text)
        if delta.tool_use is not None:
            block = self._open.get(index)
            if block is None or block.kind not in ("tool_use", "server"):
                if not delta.tool_use.input:
                    return _NOTHING
                raise ProtocolError(
                    f"The server sent input for a tool call in block {index}, which it never started.",
                    provider=self._model.provider,
                )
            return block.add_text(delta.tool_use.input or "")
        if delta.reasoning_content is not None:
            return self._add_reasoning(index, delta.reasoning_content)
        block = self._open.get(index)
        if delta.tool_result is not None and isinstance(block, ServerBlock):
            block.results += delta.tool_result
        return _NOTHING  # citations, and deltas of later versions

    def _add_text(self, index: int, kind: str, text: str) -> Sequence[StreamEvent]:
        """Add text or thinking; the first delta of a block begins it, and another kind of delta begins another one."""
        block = self._open.get(index)
        begun: tuple[StreamEvent, ...] = ()
        if block is None or block.kind != kind:
            if not text:
                return _NOTHING
            closed = self._stop_block(index)
            block = self._add_block(index, OpenBlock(len(self._blocks), kind))
            begun = (*closed, TextStart(block.at) if kind == "text" else ThinkingStart(block.at))
        return (*begun, *block.add_text(text)) if begun else block.add_text(text)

    def _add_reasoning(self, index: int, given: Reasoning) -> Sequence[StreamEvent]:
        if given.text is not None:
            return self._add_text(index, "thinking", given.text)
        kind, added = (
            ("thinking", given.signature) if given.signature else ("redacted_thinking", given.redacted_content)
        )
        if not added:
            return _NOTHING
        added = replace_lone_surrogates(added)
        block = self._open.get(index)
        events: tuple[StreamEvent, ...] = ()
        if block is None or block.kind != kind:
            # Thinking whose text is left out has only its signature.
            closed = self._stop_block(index)
            at = len(self._blocks)
            block = self._add_block(index, OpenBlock(at, kind) if kind == "thinking" else RedactedBlock(at))
            events = (*closed, ThinkingStart(block.at))
        if isinstance(block, RedactedBlock):
            block.pieces.append(added)
        else:
            block.signature = f"{block.signature or ''}{added}"
        return events

    def _stop_blocks(self) -> Sequence[StreamEvent]:
        return [event for index in list(self._open) for event in self._stop_block(index)]

    def _stop_block(self, index: int) -> Sequence[StreamEvent]:
        block = self._open.pop(index, None)
        return _NOTHING if block is None else block.close()

    def _classify_stop(self, content: list[Content]) -> tuple[StopReason, str | None, ErrorKind | None]:
        """Return our stop reason, with the message and the kind of error if it is one."""
        raw = self._reason
        if raw == "model_context_window_exceeded":
            return "error", "The answer filled the model's context window.", "context_overflow"
        if isinstance(raw, str) and raw in _MALFORMED:
            return "error", f"The model's output was malformed: {raw}.", "incomplete"
        reason = _STOP_REASONS.get(raw) if isinstance(raw, str) else None
        if reason is None:
            return "error", f"The server stopped with an unknown stopReason: {raw!r}.", "protocol"
        if reason == "refusal":
            return reason, _describe_refusal(raw, content), "refused"
        return judge_blocks(reason, content, self._blocks), None, None


def _describe_refusal(raw: str, content: Sequence[Content]) -> str:
    """What refused the answer; a guardrail says why in place of the answer."""
    if raw != "guardrail_intervened":
        return f"The model or its filter refused to answer ({raw})."
    said = " ".join("".join(block.text for block in content if isinstance(block, TextContent)).split())
    words = f"A guardrail refused the prompt or the answer ({raw})."
    return f"{words} {said[:_SHOWN]}" if said else words


def _describe(given: ToolStart | None) -> dict[str, Any]:
    """The fields of a server's own call or result that are sent back."""
    fields: dict[str, Any] = {} if given is None else msgspec.to_builtins(given)
    return {name: value for name, value in fields.items() if value is not None}


def _decode_usage(counts: dict[str, Any]) -> Usage:
    """Return the usage; input tokens are without those of the cache."""
    return Usage(
        input=decode_count(counts.get("inputTokens")),
        output=decode_count(counts.get("outputTokens")),
        cache_read=decode_count(counts.get("cacheReadInputTokens")),
        cache_write=decode_count(counts.get("cacheWriteInputTokens")),
    )
