"""Images are few tokens and many bytes: where a request is too large to be read, the old ones are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.context.compaction.levels import IMAGE_LEFT_OUT, last_group
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage

if TYPE_CHECKING:
    from steersman.context.compaction.compact import ContextConfig


def image_bytes(messages: Sequence[AgentMessage]) -> int:
    """How many bytes the images in these messages are on the wire."""
    return sum(map(_weight, messages))


class ImageCompaction:
    """Leaves out images, the oldest first, until at most half of their bytes are left.

    Those that the user has just shown stay: an answer about something else than what was asked helps nobody. Once the
    model has begun to work on it they may go too, after all others but the newest.
    """

    __slots__ = ()

    def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
        """The messages with a note where an image was; the same ones when there is none to leave out."""
        del config
        total = left = image_bytes(messages)
        shown = list(messages)
        asked = _asked_last(messages)
        worked = any(map(_is_work, messages[asked.stop :]))
        end = len(messages) if worked else asked.start
        newest = last_group(messages)
        for index in sorted(range(end), key=lambda index: 2 if index >= newest else index in asked):
            weight = _weight(messages[index])
            if weight and left * 2 > total:
                left -= weight
                shown[index] = _without(messages[index])
        return shown


def _asked_last(messages: Sequence[AgentMessage]) -> range:
    """Where that stands which the user said last."""
    said = [index for index, message in enumerate(messages) if _is_asked(message)]
    if not said:
        return range(0)
    start = last_group(messages[: said[-1] + 1])
    return range(start, said[-1] + 1)


def _is_asked(message: AgentMessage) -> bool:
    return isinstance(message, UserMessage) and not message.synthetic


def _is_work(message: AgentMessage) -> bool:
    """An answer that failed is none: it is left out when the model is asked again."""
    return isinstance(message, ToolResultMessage) or (isinstance(message, AssistantMessage) and not message.failed)


def _weight(message: AgentMessage) -> int:
    return sum(len(block.data) for block in message.content if isinstance(block, ImageContent))


def _without(message: AgentMessage) -> AgentMessage:
    note = TextContent(IMAGE_LEFT_OUT)
    return replace(message, content=[note if isinstance(block, ImageContent) else block for block in message.content])
