"""A content block while its deltas arrive, for the APIs that stream an answer block by block."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steersman.provider.wires.protocol import judge_calls, parse_call
from steersman.types.content import (
    Content,
    TextContent,
    ThinkingContent,
    ToolCall,
    escape_lone_surrogates,
    replace_lone_surrogates,
    split_trailing_surrogate,
)
from steersman.types.messages import StopReason
from steersman.types.stream import (
    StreamEvent,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolCallDelta,
    ToolCallEnd,
)

_NOTHING: tuple[StreamEvent, ...] = ()


class OpenBlock(msgspec.Struct, eq=False):
    """A block of text, thinking or a tool call, or of a kind that only its wire knows."""

    at: int
    kind: str
    parts: list[str] = []
    # A high surrogate whose low surrogate comes with the next delta.
    held: str = ""
    signature: str | None = None
    id: str = ""
    name: str = ""
    # Once the block has ended.
    content: Content | None = None

    def add_text(self, text: str | None) -> tuple[StreamEvent, ...]:
        """Add the text of a delta; returns the events that show it."""
        if not text:
            return _NOTHING
        if self.held or not text.isascii():
            text = self._join_surrogates(text)
            if not text:
                return _NOTHING
        self.parts.append(text)
        match self.kind:
            case "text":
                return (TextDelta(text, self.at),)
            case "thinking":
                return (ThinkingDelta(text, self.at),)
            case "tool_use":
                return (ToolCallDelta(text, self.at),)
            case _:
                return _NOTHING

    def close(self) -> Sequence[StreamEvent]:
        """End the block; returns its last events."""
        shown = _NOTHING
        if self.held:
            self.held = ""
            shown = self.add_text("\ufffd")
        content = self.content = self.build_content()
        if type(content) is ToolCall:
            return (*shown, ToolCallEnd(self.at, content))
        return (*shown, TextEnd(self.at) if type(content) is TextContent else ThinkingEnd(self.at))

    def build_content(self) -> Content:
        """Build the content block."""
        text = "".join(self.parts)
        if self.kind == "text":
            return TextContent(text)
        if self.kind == "tool_use":
            return parse_call(self.id, self.name, text)
        return ThinkingContent(text, self.signature, redacted=self.kind == "redacted_thinking")

    def _join_surrogates(self, text: str) -> str:
        """Join a surrogate pair that was split between deltas; a high surrogate at the end is held back."""
        text, self.held = split_trailing_surrogate(self.held + text)
        return escape_lone_surrogates(text) if self.kind == "tool_use" else replace_lone_surrogates(text)


def judge_blocks(reason: StopReason, content: list[Content], blocks: Sequence[OpenBlock]) -> StopReason:
    """Find the stop reason that the calls of an answer show.

    In an answer that was cut, a last call without arguments lost its arguments: it is marked as cut.
    """
    if reason != "length":
        return judge_calls(content)
    last = content[-1] if content else None
    if type(last) is ToolCall and not "".join(blocks[-1].parts).strip():
        content[-1] = msgspec.structs.replace(last, raw_arguments="")
    return "length"
