"""Reads the content of a user's message as programs send it: a string, or a list of text and image blocks."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from steersman.types.content import ImageContent, TextContent
from steersman.types.messages import AgentMessage, to_message

_BLOCKS = ("text", "image")


def read_user_content(content: str | Sequence[Mapping[str, Any]] | None, sender: str) -> AgentMessage:
    """The content as a message; raises `ValueError`, which names the sender, if it is missing, empty or malformed."""
    if content is None:
        raise ValueError(f"{sender!r} needs 'content': a string or a list of blocks")
    if isinstance(content, str):
        if not content.strip():
            raise ValueError(f"{sender!r} needs some text or an image")
        return to_message(content)
    for block in content:
        if block.get("type") not in _BLOCKS:
            raise ValueError(f"a block of 'content' must have type 'text' or 'image', got {block.get('type')!r}")
    message = to_message({"role": "user", "content": [dict(block) for block in content]})
    # Checked here and not when its run starts, where it would stop all prompts that wait behind it.
    if all(isinstance(block, TextContent) and not block.text.strip() for block in message.content):
        raise ValueError(f"{sender!r} needs some text or an image")
    for block in message.content:
        if isinstance(block, ImageContent) and not _is_valid_image(block):
            raise ValueError("an image needs 'data' in base64 and a 'mime_type' such as 'image/png'")
    return message


def _is_valid_image(block: ImageContent) -> bool:
    """Whether a server can accept the image; an invalid one would stay in the conversation and fail every later run."""
    try:
        return bool(b64decode(block.data, validate=True)) and block.mime_type.startswith("image/")
    except ValueError:
        return False
