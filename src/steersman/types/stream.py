"""Stream events: what a `StreamFn` yields while a model's answer arrives.

`start`, then any number of updates, then exactly one `done` or `error` that carries the whole assistant message.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from steersman.types.content import ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage
from steersman.types.usage import Usage


class StreamStart(msgspec.Struct, frozen=True, tag="start", tag_field="type", gc=False):
    """The server begins its answer."""

    type: ClassVar[Literal["start"]] = "start"


class TextStart(msgspec.Struct, frozen=True, tag="text_start", tag_field="type", gc=False):
    """A text block begins."""

    type: ClassVar[Literal["text_start"]] = "text_start"
    content_index: int = 0


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta", tag_field="type", gc=False):
    """More of a text block."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    delta: str
    content_index: int = 0


class TextEnd(msgspec.Struct, frozen=True, tag="text_end", tag_field="type", gc=False):
    """A text block is complete."""

    type: ClassVar[Literal["text_end"]] = "text_end"
    content_index: int = 0


class ThinkingStart(msgspec.Struct, frozen=True, tag="thinking_start", tag_field="type", gc=False):
    """A thinking block begins."""

    type: ClassVar[Literal["thinking_start"]] = "thinking_start"
    content_index: int = 0


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking_delta", tag_field="type", gc=False):
    """More of a thinking block."""

    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    delta: str
    content_index: int = 0


class ThinkingEnd(msgspec.Struct, frozen=True, tag="thinking_end", tag_field="type", gc=False):
    """A thinking block is complete."""

    type: ClassVar[Literal["thinking_end"]] = "thinking_end"
    content_index: int = 0


class ToolCallStart(msgspec.Struct, frozen=True, tag="tool_call_start", tag_field="type", gc=False):
    """A tool call begins; its arguments follow as text."""

    type: ClassVar[Literal["tool_call_start"]] = "tool_call_start"
    content_index: int = 0
    id: str = ""
    name: str = ""


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call_delta", tag_field="type", gc=False):
    """More of a tool call's arguments, as JSON text that may still be incomplete."""

    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"
    delta: str
    content_index: int = 0


class ToolCallEnd(msgspec.Struct, frozen=True, tag="tool_call_end", tag_field="type"):
    """A tool call is complete."""

    type: ClassVar[Literal["tool_call_end"]] = "tool_call_end"
    content_index: int = 0
    tool_call: ToolCall | None = None


class Reset(msgspec.Struct, frozen=True, tag="reset", tag_field="type", gc=False):
    """The answer starts again; everything shown of it so far is void."""

    type: ClassVar[Literal["reset"]] = "reset"


class RetryNotice(msgspec.Struct, frozen=True, tag="retry", tag_field="type"):
    """A wrapper is about to wait and retry; `usage` is what the failed attempt cost."""

    type: ClassVar[Literal["retry"]] = "retry"
    attempt: int
    delay: float
    error: ErrorInfo
    usage: Usage | None = None


class FallbackNotice(msgspec.Struct, frozen=True, tag="fallback", tag_field="type"):
    """A wrapper is about to ask another model; `usage` is what the failed attempts cost."""

    type: ClassVar[Literal["fallback"]] = "fallback"
    from_model: str
    to_model: str
    error: ErrorInfo
    usage: Usage | None = None


class Done(msgspec.Struct, frozen=True, tag="done", tag_field="type"):
    """The answer is complete."""

    type: ClassVar[Literal["done"]] = "done"
    message: AssistantMessage


class Failed(msgspec.Struct, frozen=True, tag="error", tag_field="type", omit_defaults=True):
    """The answer failed; the message keeps what had arrived and says why."""

    type: ClassVar[Literal["error"]] = "error"
    message: AssistantMessage
    error: ErrorInfo | None = None


Delta: TypeAlias = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | Reset
)
"""The stream events that a `message_update` event carries."""

StreamEvent: TypeAlias = StreamStart | Delta | RetryNotice | FallbackNotice | Done | Failed
"""Everything a `StreamFn` may yield."""

STREAM_UPDATE_EVENTS: frozenset[str] = frozenset(
    f"{block}_{part}" for block in ("text", "thinking", "tool_call") for part in ("start", "delta", "end")
)
"""The types of stream events that update the partial message."""
