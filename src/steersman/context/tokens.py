"""How long a message and a request are for a model, guessed without its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent
from steersman.types.messages import AgentMessage, ExtensionMessage, user_message
from steersman.types.model import ToolSpec

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


def find_context_size(window: int, max_output_tokens: int | None, max_tokens: int | None) -> int:
    """The most tokens of a request that shares this context window with its answer.

    The answer gets what is asked for it, at most half of the window; without that, an eighth of the window or what the
    model can write, whichever is less. Where a window is nearly full, a provider's answer gets what is left.
    """
    answer = min(max_output_tokens or window, window // 8) if max_tokens is None else min(max_tokens, window // 2)
    return max(1, window - answer)


class HeadSize:
    """About how many tokens system prompt and tool schemas have, counted again only when they change.

    `billed` is the size at the last answer with a usage: the usage counts the head as it was then.
    """

    __slots__ = ("_counted", "billed", "tokens")

    def __init__(self) -> None:
        self._counted: tuple[str, Sequence[ToolSpec], Estimator] | None = None
        self.tokens = 0
        self.billed: int | None = None

    def measure(self, system_prompt: str, tools: Sequence[ToolSpec], estimator: Estimator) -> int:
        """Count them, unless they are the same as before."""
        known = self._counted
        if (
            known is None
            or known[0] != system_prompt
            or known[2] is not estimator
            or not (known[1] is tools or _are_same(known[1], tools))
        ):
            self.tokens = _estimate(system_prompt, tools, estimator)
        self._counted = (system_prompt, tools, estimator)
        return self.tokens

    def mark_billed(self) -> None:
        """Note that the usage of an answer counts the head as it is now."""
        self.billed = None if self._counted is None else self.tokens

    def find_missing(self, *, measured: bool) -> int:
        """What a count of the messages lacks: the whole head, or if a usage is in it, what the head grew by since."""
        if not measured:
            return self.tokens
        return 0 if self.billed is None else self.tokens - self.billed


class FutileCompaction:
    """How many tokens there were when compaction freed nothing or too little, by estimate and by usage; -1 for never.

    `compact` and `ask_until_it_fits` own it: it keeps them from trying again before the context has grown.
    """

    __slots__ = ("billed", "estimated")

    def __init__(self) -> None:
        self.billed = self.estimated = -1


def _are_same(a: Sequence[ToolSpec], b: Sequence[ToolSpec]) -> bool:
    return len(a) == len(b) and all(one is other for one, other in zip(a, b, strict=True))


def _estimate(system_prompt: str, tools: Sequence[ToolSpec], estimator: Estimator) -> int:
    parts = [system_prompt, *[f"{tool.name} {tool.description} {_encode(tool.parameters)}" for tool in tools]]
    return sum(estimator(user_message(part)) for part in parts if part)


def _encode(schema: object) -> str:
    try:
        return msgspec.json.encode(schema).decode()
    except (TypeError, ValueError, OverflowError):
        return repr(schema)  # a schema that JSON has no form for: the length of its text is near enough
