"""How long a message is for a model, guessed without its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent
from steersman.types.messages import AgentMessage, ExtensionMessage

Estimator: TypeAlias = Callable[[AgentMessage], int]

MESSAGE_TOKENS = 4
IMAGE_TOKENS = 1_600
BYTES_PER_TOKEN = 4


def estimate_tokens(message: AgentMessage) -> int:
    """A quarter of the bytes, a constant for an image, and a little for the message itself.

    An extension message counts nothing, because models are not sent it.
    """
    if type(message) is ExtensionMessage:
        return 0
    size = 0
    images = 0
    for block in message.content:
        if type(block) is TextContent:
            size += _count_bytes(block.text)
        elif type(block) is ImageContent:
            images += 1
        else:
            size += _count_block_bytes(block)
    return MESSAGE_TOKENS + images * IMAGE_TOKENS + (size + BYTES_PER_TOKEN - 1) // BYTES_PER_TOKEN


def estimate_total_tokens(messages: Iterable[AgentMessage], estimator: Estimator = estimate_tokens) -> int:
    """The estimates, added up."""
    return sum(map(estimator, messages))


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _count_block_bytes(block: Content) -> int:
    if isinstance(block, ThinkingContent):
        # Redacted thinking has no text; what is sent back is the signature.
        return _count_bytes(block.thinking or block.signature or "")
    if isinstance(block, TextContent | ImageContent):
        return 0
    if block.raw_arguments is not None:
        return _count_bytes(block.name) + _count_bytes(block.raw_arguments)
    try:
        return _count_bytes(block.name) + len(msgspec.json.encode(block.arguments))
    except (TypeError, ValueError, OverflowError):
        # Values that JSON has no form for; the length of their text is near enough for a guess.
        return _count_bytes(block.name) + len(repr(block.arguments))
