"""Recorded answers as a model would give them: what came before them, and one delta for each of their blocks."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steersman.loop.overflow import STILL_HEAVY, STUCK, STUCK_HEAVY
from steersman.provider.wires.overflow import room_left
from steersman.testing.replay.parts import Happened, Item
from steersman.types.content import TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage
from steersman.types.stream import (
    Failed,
    FallbackNotice,
    RetryNotice,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

_TOO_LARGE = 413


def notice_of(item: Item) -> RetryNotice | FallbackNotice | None:
    """The item as a wrapper tells it, if it is an attempt that failed."""
    if not isinstance(item, Happened) or item.type not in ("retry_scheduled", "model_fallback"):
        return None
    fields = item.fields
    error = msgspec.convert(fields["error"], ErrorInfo)
    if item.type == "retry_scheduled":
        return RetryNotice(fields["attempt"], fields["delay"], error)
    return FallbackNotice(fields["from_model"], fields["to_model"], error)


def refusal_of(notice: RetryNotice | FallbackNotice) -> Failed | None:
    """The failure behind a notice, if it was the loop that asked again, for a shorter answer."""
    error = notice.error
    if type(notice) is not RetryNotice or error.kind != "context_overflow" or room_left(error.message) is None:
        return None
    return Failed(AssistantMessage(stop_reason="error", error_message=error.message, error_kind=error.kind), error)


def overflow_before(answer: AssistantMessage | None) -> Failed:
    """The failure that made the loop compact: it is not kept, unless the run ended with it."""
    if answer is not None and is_stuck(answer):
        return failure_of(answer)
    words = "The context is too long."
    return Failed(AssistantMessage(stop_reason="error", error_message=words, error_kind="context_overflow"))


def is_stuck(answer: AssistantMessage | None) -> bool:
    """Whether the loop gave up on this answer because nothing more could be freed."""
    return answer is not None and (answer.error_message or "").endswith((STUCK, STUCK_HEAVY))


def failure_of(message: AssistantMessage) -> Failed:
    """An answer that failed, as the provider told it: what the loop adds to its words is left out."""
    words = message.error_message or ""
    if message.error_kind != "context_overflow" or not words.endswith((STUCK, STUCK_HEAVY, STILL_HEAVY)):
        return Failed(message)
    own = words.removesuffix(STUCK).removesuffix(STUCK_HEAVY).removesuffix(STILL_HEAVY)
    error = ErrorInfo("context_overflow", own, status=None if words.endswith(STUCK) else _TOO_LARGE)
    return Failed(msgspec.structs.replace(message, error_message=own), error)


def deltas_of(message: AssistantMessage) -> Iterator[StreamEvent]:
    """The answer in pieces, as large as they can be."""
    for index, block in enumerate(message.content):
        match block:
            case TextContent():
                yield from (TextStart(index), TextDelta(block.text, index), TextEnd(index))
            case ThinkingContent():
                yield from (ThinkingStart(index), ThinkingDelta(block.thinking, index), ThinkingEnd(index))
            case ToolCall():
                written = block.raw_arguments or msgspec.json.encode(block.arguments).decode()
                yield ToolCallStart(index, block.id, block.name)
                yield from (ToolCallDelta(written, index), ToolCallEnd(index, block))
            case _:
                continue
