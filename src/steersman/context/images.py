"""Images are few tokens and many bytes: where a request is too large to be read, the old ones are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steersman.context.levels import IMAGE_LEFT_OUT, last_group
from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, UserMessage

if TYPE_CHECKING:
    from steersman.context.compaction import ContextConfig


def image_bytes(messages: Sequence[AgentMessage]) -> int:
    """How many bytes the images in these messages are on the wire."""
    return sum(map(_weight, messages))


class ImageCompaction:
    """Leaves out images, the oldest first, until at most half of their bytes are left.

    Those that the user has just shown stay: an answer about something else than what was asked helps nobody.
    """

    __slots__ = ()

    def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
        """The messages with a note where an image was; the same ones when there is none to leave out."""
        del config
        total = left = image_bytes(messages)
        end = _shown_just_now(messages)
        shown: list[AgentMessage] = []
        for index, message in enumerate(messages):
            weight = _weight(message)
            if weight and index < end and left * 2 > total:
                left -= weight
                message = _without(message)
            shown.append(message)
        return shown


def _shown_just_now(messages: Sequence[AgentMessage]) -> int:
    """Where that begins which is not touched: what the user said last, if nothing was said since."""
    start = last_group(messages)
    return start if messages and isinstance(messages[start], UserMessage) else len(messages)


def _weight(message: AgentMessage) -> int:
    return sum(len(block.data) for block in message.content if isinstance(block, ImageContent))


def _without(message: AgentMessage) -> AgentMessage:
    note = TextContent(IMAGE_LEFT_OUT)
    return replace(message, content=[note if isinstance(block, ImageContent) else block for block in message.content])
