"""Checks messages as the Anthropic Messages API does; `Fault` carries the words of its error."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

_ID = "^[a-zA-Z0-9_-]+$"
NAME = "^[a-zA-Z0-9_-]{1,128}$"
"""The pattern of tool names."""

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_RESULT_BLOCKS = ("text", "image", "document", "search_result", "tool_reference")

Json: TypeAlias = dict[str, Any]
Issued: TypeAlias = Callable[[str, str], bool]
"""Whether this server issued the signature for the thinking."""


class Fault(Exception):
    """The reason why a request is refused."""


Turn: TypeAlias = tuple[str, list[Json]]
"""A role and its blocks."""


def merge_turns(messages: list[Any]) -> list[Turn]:
    """Merge consecutive messages of one role, as the API does."""
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        fields = cast(Json, message if isinstance(message, dict) else {})
        role, content = fields.get("role"), fields.get("content")
        if role == "system":
            raise Fault(
                'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, '
                'not "system" as an input message role.'
            )
        if role not in ("user", "assistant"):
            raise Fault(f"messages.{number}.role: Input should be 'user' or 'assistant'")
        if unknown := sorted(set(fields) - {"role", "content"}):
            raise Fault(f"messages.{number}.{unknown[0]}: Extra inputs are not permitted")
        if not isinstance(content, str | list):
            raise Fault(f"messages.{number}.content: Input should be a valid string or array")
        if not content:
            raise Fault(
                f"messages.{number}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(cast(list[Json], content))
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((cast(str, role), blocks))
    if turns[0][0] != "user":
        raise Fault('messages: first message must use the "user" role')
    return turns


_SIDES = {
    "user": ("text", "image", "document", "tool_result", "search_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
}


def check_blocks(number: int, turn: Turn, issued: Issued) -> None:
    """Check that each block is well formed and allowed for its role."""
    role, blocks = turn
    for index, block in enumerate(blocks):
        at = f"messages.{number}.content.{index}"
        kind = block.get("type")
        if not isinstance(kind, str):
            raise Fault(f"{at}: Field required: type")
        other = next((side for side, kinds in _SIDES.items() if side != role and kind in kinds), None)
        if kind not in _SIDES[role] and other is not None:
            raise Fault(f"messages.{number}: `{kind}` blocks can only be in `{other}` messages")
        if checker := _CHECKS.get(kind):
            checker(at, block)
        if kind in ("thinking", "redacted_thinking"):
            _check_thinking(at, block, issued)


def check_beginning(turns: list[Turn]) -> None:
    """Check that the answers since the last prompt begin with thinking, which a thinking budget requires."""
    at = len(turns) - 1
    if turns[at][0] != "user" or not _answers_calls(turns[at]):
        return
    while at > 1 and _answers_calls(turns[at]):
        at -= 2
    number = at + 1
    kind = turns[number][1][0]["type"]
    if kind not in ("thinking", "redacted_thinking"):
        raise Fault(
            f"messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks)."
        )


def _answers_calls(turn: Turn) -> bool:
    return any(block["type"] == "tool_result" for block in turn[1])


def check_end(number: int, turn: Turn) -> None:
    """Check that an answer does not end with thinking."""
    kind = turn[1][-1]["type"] if turn[1] else None
    if kind in ("thinking", "redacted_thinking"):
        raise Fault(f"messages.{number}: The final block in an assistant message cannot be `{kind}`.")


def _check_text(at: str, block: Json) -> None:
    del at
    if not isinstance(block.get("text"), str) or not block["text"]:
        raise Fault("messages: text content blocks must be non-empty")
    if not block["text"].strip():
        raise Fault("messages: text content blocks must contain non-whitespace text")


def _check_call(at: str, block: Json) -> None:
    if not isinstance(block.get("id"), str) or not re.match(_ID, block["id"]):
        raise Fault(f"{at}.tool_use.id: String should match pattern '{_ID}'")
    if not isinstance(block.get("name"), str) or not re.match(NAME, block["name"]):
        raise Fault(f"{at}.tool_use.name: String should match pattern '{NAME}'")
    if not isinstance(block.get("input"), dict):
        raise Fault(f"{at}.tool_use.input: Input should be a valid dictionary")


def _check_result(at: str, block: Json) -> None:
    if not isinstance(block.get("tool_use_id"), str) or not re.match(_ID, block["tool_use_id"]):
        raise Fault(f"{at}.tool_result.tool_use_id: String should match pattern '{_ID}'")
    content = block.get("content", [])
    if not content and block.get("is_error"):
        raise Fault(f"{at}.tool_result: content cannot be empty if `is_error` is true")
    if isinstance(content, str):
        return
    for number, inner in enumerate(cast(list[Json], content)):
        kind = inner.get("type")
        if kind not in _RESULT_BLOCKS:
            raise Fault(
                f"{at}.tool_result.content.{number}: Input tag {kind!r} does not match any of the expected tags"
            )
        if block.get("is_error") and kind != "text":
            raise Fault(f"{at}.tool_result: all content must be type `text` if `is_error` is true")
        if checker := _CHECKS.get(kind):
            checker(f"{at}.tool_result.content.{number}", inner)


def _check_image(at: str, block: Json) -> None:
    source: Json = block.get("source") or {}
    if source.get("type") == "base64":
        if source.get("media_type") not in _IMAGES:
            raise Fault(
                f"{at}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or "
                "'image/webp'"
            )
        try:
            good = bool(base64.b64decode(source.get("data") or "", validate=True))
        except (binascii.Error, ValueError):
            good = False
        if not good:
            raise Fault(f"{at}.image.source.base64.data: Invalid base64 data")
    elif source.get("type") not in ("url", "file"):
        raise Fault(f"{at}.image.source: Field required")


_CHECKS: dict[str, Callable[[str, Json], None]] = {
    "text": _check_text,
    "tool_use": _check_call,
    "tool_result": _check_result,
    "image": _check_image,
}


def _check_thinking(at: str, block: Json, issued: Issued) -> None:
    kind = block["type"]
    if kind == "redacted_thinking":
        if not block.get("data"):
            raise Fault(f"{at}.redacted_thinking.data: Field required")
        if not issued("", block["data"]):
            raise Fault(f"{at}: Invalid `data` in `redacted_thinking` block")
        return
    if "signature" not in block:
        raise Fault(f"{at}.thinking.signature: Field required")
    if not isinstance(block.get("thinking"), str):
        raise Fault(f"{at}.thinking.thinking: Field required")
    if not issued(block["thinking"], block["signature"] or ""):
        raise Fault(f"{at}: Invalid `signature` in `thinking` block")


def check_pairs(turns: list[Turn]) -> None:
    """Check that every call has exactly one result, at the start of the next message."""
    seen: set[str] = set()
    waiting: list[str] = []
    for number, (role, blocks) in enumerate(turns):
        if role == "assistant":
            waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if len(set(waiting)) < len(waiting) or seen.intersection(waiting):
                raise Fault(f"messages.{number}: `tool_use` ids must be unique")
            seen.update(waiting)
            continue
        _check_answered(number, blocks, waiting)
        waiting = []
    if waiting:
        raise Fault(_describe_unanswered(len(turns) - 1, waiting))


def _check_answered(number: int, blocks: list[Json], waiting: list[str]) -> None:
    answered: list[str] = []
    first = next((at for at, block in enumerate(blocks) if block["type"] != "tool_result"), len(blocks))
    for index, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        call_id = block["tool_use_id"]
        if call_id not in waiting:
            raise Fault(
                f"messages.{number}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{call_id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                "message."
            )
        if call_id in answered:
            raise Fault(
                f"messages.{number}.content.{index}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {call_id}"
            )
        if index < first:
            answered.append(call_id)
    if missing := [call_id for call_id in waiting if call_id not in answered]:
        raise Fault(_describe_unanswered(number - 1, missing))


def _describe_unanswered(number: int, missing: list[str]) -> str:
    return (
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )


def check_server_calls(turns: list[Turn]) -> None:
    """Check that calls to the server's own tools have their results; they may wait while only other results follow."""
    waiting: dict[str, tuple[int, str]] = {}
    for number, (role, blocks) in enumerate(turns):
        if role == "user" and waiting and any(block["type"] != "tool_result" for block in blocks):
            call_id, (at, name) = waiting.popitem()
            raise Fault(
                f"messages.{at}: `{name}` tool use with id `{call_id}` was found without a corresponding "
                f"`{name}_tool_result` block"
            )
        for index, block in enumerate(blocks if role == "assistant" else ()):
            kind = block["type"]
            if kind in ("server_tool_use", "mcp_tool_use"):
                waiting[block["id"]] = (number, block["name"])
            elif kind.endswith("_tool_result") and waiting.pop(block["tool_use_id"], None) is None:
                raise Fault(
                    f"messages.{number}.content.{index}: unexpected `tool_use_id` found in `{kind}` blocks: "
                    f"{block['tool_use_id']}. Each `{kind}` block must have a corresponding `server_tool_use` block "
                    "before it."
                )
