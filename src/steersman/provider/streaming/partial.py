"""Builds an assistant message from the deltas of an answer that is not complete."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall, parse_tool_call
from steersman.types.errors import ErrorKind
from steersman.types.messages import AssistantMessage, StopReason
from steersman.types.stream import (
    Reset,
    StreamEvent,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import Usage


def partial_message(
    deltas: Sequence[StreamEvent],
    *,
    stop_reason: StopReason,
    error_message: str | None = None,
    error_kind: ErrorKind | None = None,
    usage: Usage | None = None,
    model: str = "",
    provider: str = "",
    timestamp: float = 0.0,
) -> AssistantMessage:
    """The message that the deltas since the last reset form; tool calls that are not complete are left out."""
    return AssistantMessage(
        build_content(deltas),
        timestamp=timestamp,
        stop_reason=stop_reason,
        usage=Usage() if usage is None else usage,
        model=model,
        provider=provider,
        error_message=error_message,
        error_kind=error_kind,
    )


def build_content(deltas: Sequence[StreamEvent]) -> list[Content]:
    """The content blocks that the deltas form, in the order in which they began; empty ones are left out."""
    blocks: list[_Block] = []
    # Keyed by kind too: a simple StreamFn leaves every index at 0.
    current: dict[tuple[str, int], _Block] = {}
    for event in deltas:
        kind = type(event)
        if kind is Reset:
            blocks.clear()
            current.clear()
        elif isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta):
            _get_block(event, blocks, current).parts.append(event.delta)
        elif isinstance(event, TextStart | ThinkingStart | ToolCallStart):
            current.pop(_get_block_key(event), None)
            block = _get_block(event, blocks, current)
            if isinstance(event, ToolCallStart):
                block.start = event
        elif isinstance(event, ToolCallEnd):
            block = _get_block(event, blocks, current)
            block.call = event.tool_call if event.tool_call is not None else block.parse_call()
    return [content for block in blocks if (content := block.build()) is not None]


class _Block:
    """A block while it grows."""

    __slots__ = ("call", "kind", "parts", "start")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[str] = []
        self.start: ToolCallStart | None = None
        self.call: ToolCall | None = None

    def parse_call(self) -> ToolCall | None:
        """The call for an end event that does not hold it."""
        if self.start is None or not self.start.name:
            return None
        return parse_tool_call(self.start.id, self.start.name, "".join(self.parts))

    def build(self) -> Content | None:
        if self.kind == "tool_call":
            return self.call
        text = "".join(self.parts)
        if not text:
            return None
        return TextContent(text) if self.kind == "text" else ThinkingContent(text)


_Piece = TextStart | TextDelta | ThinkingStart | ThinkingDelta | ToolCallStart | ToolCallDelta | ToolCallEnd


def _get_block_key(event: _Piece) -> tuple[str, int]:
    return event.type.rpartition("_")[0], event.content_index


def _get_block(event: _Piece, blocks: list[_Block], current: dict[tuple[str, int], _Block]) -> _Block:
    key = _get_block_key(event)
    block = current.get(key)
    if block is None:
        block = current[key] = _Block(key[0])
        blocks.append(block)
    return block
