"""Builds an assistant message from the deltas of an answer that is not complete: once, or as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall, parse_tool_call
from steersman.types.errors import ErrorKind
from steersman.types.frozen import FrozenList
from steersman.types.messages import AssistantMessage, PartialMessage, StopReason
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

if TYPE_CHECKING:
    from steersman.provider.streaming.json_prefix import GrowingText, JsonPrefix


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


# The content is read-only for everyone else.
_set_index = list[Content].__setitem__
_append = list[Content].append


class _GrowingBlock:
    """A block of the partial message: its place among those that have begun, and how it grows."""

    __slots__ = ("arguments", "at", "content", "text")

    def __init__(self) -> None:
        # `None` as long as it is empty; then it is left out.
        self.content: Content | None = None
        # The index in the content of the message.
        self.at = 0
        self.text: GrowingText | None = None
        self.arguments: JsonPrefix | None = None


class GrowingAnswer:
    """The partial message of an answer. Each delta is added once, when the message is first read after it.

    The message and its blocks are the same objects all the time, changed in place: reading costs the same at every
    delta. After a reset there is a new message, and the old one stays what it was.
    """

    __slots__ = ("_blocks", "_calls", "_content", "_deltas", "_message", "_older", "_seen", "_texts", "_thoughts")

    def __init__(self, deltas: Sequence[StreamEvent], head: PartialMessage) -> None:
        self._deltas = deltas
        self._seen = 0
        # The messages before each reset, and how many deltas these cover.
        self._older: list[tuple[int, PartialMessage]] = []
        self._message = head
        self._clear()

    def read(self, count: int) -> PartialMessage:
        """The message after the first `count` deltas; it may have grown further, since others read it too."""
        deltas, seen = self._deltas, self._seen
        if count > seen:
            self._seen = count
            while seen < count:
                delta = deltas[seen]
                seen += 1
                if type(delta) is TextDelta:
                    block = self._texts.get(delta.content_index)
                    # The usual delta, without any call: this is read for every one of them.
                    if block is not None and block.text is None and delta.delta.isascii():
                        content = block.content
                        if type(content) is TextContent:
                            text = content.text
                            force_setattr(content, "text", "")
                            text += delta.delta
                            force_setattr(content, "text", text)
                            continue
                elif type(delta) is ToolCallDelta:
                    self._grow_call(delta)
                    continue
                self._add(delta, seen)
        elif self._older:
            for end, message in self._older:
                if count <= end:
                    return message
        return self._message

    def _clear(self) -> None:
        self._blocks: list[_GrowingBlock] = []
        self._texts: dict[int, _GrowingBlock] = {}
        self._thoughts: dict[int, _GrowingBlock] = {}
        self._calls: dict[int, _GrowingBlock] = {}
        self._content: FrozenList[Content] = FrozenList()
        self._message = msgspec.structs.replace(self._message, content=self._content)

    def _add(self, delta: StreamEvent, count: int) -> None:
        match delta:
            case TextDelta() | ThinkingDelta():
                self._grow_text(delta)
            case TextStart():
                self._begin(self._texts, delta.content_index)
            case ThinkingStart():
                self._begin(self._thoughts, delta.content_index)
            case ToolCallStart():
                self._begin_call(delta)
            case ToolCallEnd():
                self._end_call(delta)
            case Reset():
                self._older.append((count - 1, self._message))
                self._clear()
            case _:
                pass

    def _begin(self, blocks: dict[int, _GrowingBlock], index: int) -> _GrowingBlock:
        block = blocks[index] = _GrowingBlock()
        self._blocks.append(block)
        return block

    def _grow_text(self, delta: TextDelta | ThinkingDelta) -> None:
        from steersman.provider.streaming.json_prefix import GrowingText  # only needed when a partial message is read

        blocks = self._texts if type(delta) is TextDelta else self._thoughts
        block = blocks.get(delta.content_index) or self._begin(blocks, delta.content_index)
        piece = delta.delta
        if not piece.isascii() or block.text is not None:
            block.text = block.text or GrowingText()
            piece = block.text.clean(piece)
        content = block.content
        if isinstance(content, TextContent):
            text = content.text
            force_setattr(content, "text", "")
            text += piece
            force_setattr(content, "text", text)
        elif isinstance(content, ThinkingContent):
            text = content.thinking
            force_setattr(content, "thinking", "")
            text += piece
            force_setattr(content, "thinking", text)
        elif piece:
            self._show(block, TextContent(piece) if type(delta) is TextDelta else ThinkingContent(piece))

    def _begin_call(self, start: ToolCallStart) -> None:
        from steersman.provider.streaming.json_prefix import JsonPrefix  # only needed when a partial message is read

        block = self._begin(self._calls, start.content_index)
        if start.name:
            block.arguments = JsonPrefix()
            self._show(block, ToolCall(start.id, start.name, block.arguments.value, "", complete=False))

    def _grow_call(self, delta: ToolCallDelta) -> None:
        block = self._calls.get(delta.content_index)
        if block is not None and block.arguments is not None and type(block.content) is ToolCall:
            raw = block.content.raw_arguments or ""
            force_setattr(block.content, "raw_arguments", "")
            raw += delta.delta
            force_setattr(block.content, "raw_arguments", raw)
            block.arguments.feed(delta.delta)

    def _end_call(self, end: ToolCallEnd) -> None:
        block = self._calls.get(end.content_index) or self._begin(self._calls, end.content_index)
        call, growing = end.tool_call, block.content
        if call is None and type(growing) is ToolCall and not growing.complete:
            call = parse_tool_call(growing.id, growing.name, growing.raw_arguments)
        block.arguments = None
        if call is not None and growing is None:
            self._show(block, call)
        elif call is not None:
            block.content = call
            _set_index(self._content, block.at, call)

    def _show(self, block: _GrowingBlock, content: Content) -> None:
        """Let a block into the message that has content now, in the order in which the blocks began."""
        block.content = content
        if block is self._blocks[-1]:
            block.at = len(self._content)
            _append(self._content, content)
            return
        visible = [one for one in self._blocks if one.content is not None]
        for at, one in enumerate(visible):
            one.at = at
        _set_index(self._content, slice(None), [one.content for one in visible if one.content is not None])
