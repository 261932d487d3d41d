"""Messages from dicts, as callers write them: a key that is not known is refused with the nearest known one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import msgspec

from steersman.types.content import Content, parse_tool_call
from steersman.types.guards import find_nearest
from steersman.types.messages import AgentMessage
from steersman.types.usage import Usage

# The names that others give to our roles and blocks, where they are too different to be found by their letters.
_FOREIGN = {
    "ai": "assistant",
    "function": "tool_result",
    "function_call": "tool_call",
    "human": "user",
    "image_url": "image",
    "input_image": "image",
    "input_text": "text",
    "model": "assistant",
    "output_text": "text",
    "reasoning": "thinking",
    "tool": "tool_result",
    "tool_use": "tool_call",
}
_SYSTEM = "give the text as system_prompt, which is no message."
_ADVICE = {
    ("role", "system"): _SYSTEM,
    ("role", "developer"): _SYSTEM,
    ("type", "tool_result"): "a tool's result is a message: {'role': 'tool_result', 'tool_call_id': ..., ...}.",
}


def message_from_dict(value: Mapping[str, Any], *, strict: bool = True) -> AgentMessage:
    """Build a message from a dict; the content may be a string, and the arguments of a tool call JSON text.

    Raises `ValueError` for anything that is no message. Without `strict`, unknown keys are left out: a later version
    may have written them.
    """
    plain = dict(value)
    content = plain.get("content")
    if isinstance(content, str):
        plain["content"] = [{"type": "text", "text": content}]
    elif isinstance(content, Sequence):
        plain["content"] = [_to_plain_block(block) for block in cast(Sequence[Any], content)]
    if strict:
        _check_keys(plain)
    try:
        return msgspec.convert(plain, AgentMessage)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"Not a message: {error}. A message is a dict with 'role' (user, assistant, tool_result or extension) "
            f"and 'content' (a string or a list of blocks with 'type'), got {value!r}."
        ) from error


def _to_plain_block(block: Any) -> Any:
    """A content block as plain values, with parsed arguments."""
    if not isinstance(block, Mapping):
        return msgspec.to_builtins(block) if isinstance(block, msgspec.Struct) else block
    plain = dict(cast(Mapping[str, Any], block))
    if plain.get("type") == "tool_call" and not isinstance(plain.get("arguments", {}), dict):
        call = parse_tool_call("", "", plain.pop("arguments"))
        plain = {"arguments": call.arguments, "raw_arguments": call.raw_arguments, **plain}
    return plain


def _check_keys(message: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a key that the message, one of its blocks or its usage does not have."""
    role = message.get("role")
    _check_level(message, _MESSAGE_KEYS, role, f"a message with role {role!r}")
    content, usage = message.get("content"), message.get("usage")
    for block in cast(Sequence[Any], content) if isinstance(content, Sequence) else ():
        if isinstance(block, Mapping):
            plain = cast(Mapping[str, Any], block)
            kind = plain.get("type")
            _check_level(plain, _BLOCK_KEYS, kind, f"a content block of type {kind!r}")
    if isinstance(usage, Mapping):
        _check_level(cast(Mapping[str, Any], usage), _USAGE_KEYS, "usage", "'usage'")


def _check_level(value: Mapping[str, Any], keys: Mapping[str, Sequence[str]], kind: object, what: str) -> None:
    known = keys.get(kind) if isinstance(kind, str) else None
    if isinstance(kind, str) and known is None:
        tag = "role" if keys is _MESSAGE_KEYS else "type"
        advice = _ADVICE.get((tag, kind)) or _suggest_key(kind, list(keys))
        raise ValueError(f"Not a message: there is no {tag} {kind!r}; {advice}")
    if known is None:
        return  # the conversion reports that it is missing
    for key in value:
        if key not in known:
            raise ValueError(f"Not a message: {what} has no key {key!r}; {_suggest_key(key, known)}")


def _suggest_key(key: object, known: Sequence[str]) -> str:
    """Words that name the nearest known key, or all of them."""
    near = _FOREIGN.get(str(key)) or find_nearest(key, known)
    return f"did you mean {near!r}?" if near in known else f"there are {', '.join(known)}."


def _list_keys(union: object, tag: str) -> dict[str, tuple[str, ...]]:
    kinds: tuple[Any, ...] = get_args(union)
    return {getattr(kind, tag): (tag, *kind.__struct_fields__) for kind in kinds}


_MESSAGE_KEYS = _list_keys(AgentMessage, "role")
_BLOCK_KEYS = _list_keys(Content, "type")
_USAGE_KEYS = {"usage": Usage.__struct_fields__}
