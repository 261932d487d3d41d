"""The token budget of an answer: the request and the answer share the context window."""

from __future__ import annotations

from steersman.provider.wires.protocol import memoize_by_identity
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, ToolSpec

_MIN_TOKEN_BUDGET = 1024
_IMAGE_TOKENS = 1600
# The overhead per message, rounded up: a request that is one token too long is refused.
_MESSAGE_TOKENS = 50


def limit_output_tokens(model: Model, request: Request, wanted: int) -> int:
    """Limit the wanted output tokens to what the model can write and what its context window has left.

    If hardly any token budget is left, the limit stays: the server then reports the overflow itself.
    """
    limit = wanted if model.max_output_tokens is None else min(wanted, model.max_output_tokens)
    window = model.context_window
    if window is None:
        return limit
    # `request.tokens` may be lower than the last usage, which can count messages that are no longer sent.
    estimate = None if request.tokens is None else request.tokens + _estimate_head(request) + _MESSAGE_TOKENS
    if estimate is not None and estimate + limit <= window:
        return limit
    counted = _estimate_request(request)
    budget = window - (counted if estimate is None else min(counted, estimate))
    return budget if _MIN_TOKEN_BUDGET <= budget < limit else limit


def _estimate_request(request: Request) -> int:
    """Estimate the tokens of the request: the last usage the server reported, plus a guess for what came after it."""
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
