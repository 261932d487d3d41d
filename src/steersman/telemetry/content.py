"""Messages as the conventions write them, with keys redacted as in a session. Used only with `content=True`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from steersman.session.records import redact_values
from steersman.telemetry import names
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.frozen import thaw
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage

_ROLES = {"user": "user", "assistant": "assistant", "tool_result": "tool"}


def write_messages(messages: Sequence[AgentMessage], secrets: Collection[str]) -> str:
    """Messages as JSON text; an application's own messages are left out."""
    return write_json([_describe(message) for message in messages if message.role in _ROLES], secrets)


def write_instructions(system_prompt: str, secrets: Collection[str]) -> str:
    """The system prompt as JSON text."""
    return write_json([{"type": "text", "content": system_prompt}], secrets)


def write_json(value: Any, secrets: Collection[str]) -> str:
    """Any value as JSON text."""
    plain = msgspec.to_builtins(thaw(value), enc_hook=repr)
    return msgspec.json.encode(redact_values(plain, secrets)).decode()


def _describe(message: AgentMessage) -> dict[str, Any]:
    if isinstance(message, ToolResultMessage):
        return {"role": "tool", "parts": [describe_result(message)]}
    described: dict[str, Any] = {
        "role": _ROLES[message.role],
        "parts": [_describe_block(block) for block in message.content],
    }
    if isinstance(message, AssistantMessage):
        described["finish_reason"] = names.name_finish_reason(message.stop_reason)
    return described


def describe_result(message: ToolResultMessage) -> dict[str, Any]:
    """The result of a tool call as a part of a message."""
    return {"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}


def _describe_block(block: object) -> dict[str, Any]:
    match block:
        case TextContent():
            return {"type": "text", "content": block.text}
        case ThinkingContent():
            return {"type": "reasoning", "content": block.thinking}
        case ToolCall():
            arguments = block.arguments if block.raw_arguments is None else block.raw_arguments
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": arguments}
        case ImageContent():
            # Not the image itself: it is in the session, and a span is no place for megabytes.
            return {"type": "blob", "modality": "image", "mime_type": block.mime_type, "content": ""}
        case _:
            return {"type": "unknown"}
