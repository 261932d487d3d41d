"""How much a model may write: what is sent and what is answered share its window."""

from __future__ import annotations

from steersman.provider.wires.protocol import memoize_by_identity
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, ToolSpec

_MIN_TOKEN_BUDGET = 1024
_IMAGE_TOKENS = 1600
# What stands around a message on the wire, rather too much: a request that is too long by a token is refused.
_MESSAGE_TOKENS = 50


def limit_output_tokens(model: Model, request: Request, wanted: int) -> int:
    """As many tokens as are wanted, as the model can write, and as its window has room for.

    Where hardly any room is left the limit stays as it was: the server says it best that the request is too long.
    """
    limit = wanted if model.max_output_tokens is None else min(wanted, model.max_output_tokens)
    window = model.context_window
    if window is None:
        return limit
    # Whoever made the request may know of counts in it that speak of what is no longer there.
    told = None if request.tokens is None else request.tokens + _estimate_head(request) + _MESSAGE_TOKENS
    if told is not None and told + limit <= window:
        return limit
    counted = _estimate_request(request)
    room = window - (counted if told is None else min(counted, told))
    return room if _MIN_TOKEN_BUDGET <= room < limit else limit


def _estimate_request(request: Request) -> int:
    """About how long the request is: the last count the server gave, and a guess at what came after it."""
    tokens = 0
    for message in reversed(request.messages):
        if isinstance(message, AssistantMessage) and message.usage.total is not None:
            return tokens + message.usage.total
        tokens += _MESSAGE_TOKENS + sum(map(_estimate_block, message.content))
    return tokens + _estimate_head(request)


def _estimate_head(request: Request) -> int:
    return (len(request.system_prompt) + sum(map(_measure_tool, request.tools))) // 3


@memoize_by_identity
def _measure_tool(tool: ToolSpec) -> int:
    return len(str(tool.parameters))


def _estimate_block(block: object) -> int:
    match block:
        case TextContent():
            return len(block.text) // 3
        case ThinkingContent():
            return len(block.thinking) // 3
        case ImageContent():
            return _IMAGE_TOKENS
        case ToolCall():
            return len(str(block.arguments)) // 3
        case _:
            return 0
