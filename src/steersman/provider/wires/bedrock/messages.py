"""Encodes the messages of a conversation for the Converse API; the bytes of earlier messages stay the same.

The roles must alternate, so consecutive messages of one role become one message: one user message holds all results of
a turn, then the user's own text. Blank texts and empty messages are refused, so they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from steersman.provider.wires.alternating import ASSISTANT, END, USER, AlternatingMessages, encode_new_messages
from steersman.provider.wires.bedrock.events import OPAQUE
from steersman.provider.wires.pictures import fit_picture
from steersman.provider.wires.protocol import ToolNames, encode_json
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_MEMO = "bedrock"
_NO_OUTPUT = encode_json({"text": "(no output)"})
_SEEN = encode_json({"text": "(see the image)"})


def encode_call_id(call_id: str) -> str:
    """Return a legal id for a call: the same id if it is legal, else a hash of it."""
    if _ID.fullmatch(call_id):
        return call_id
    return f"x-{blake2b(call_id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


class EncodedMessages(AlternatingMessages):
    """The encoded messages of a conversation; `extend` adds new ones and keeps the rest."""

    __slots__ = ("_names", "status", "tools")

    def __init__(self, names: ToolNames, tools: object, *, status: bool) -> None:
        super().__init__()
        self.tools = tools
        self.status = status
        self._names = names

    def extend(self, messages: Iterable[Message]) -> None:
        """Encode more messages."""
        for message in messages:
            self.count += 1
            if message.role == "assistant":
                self._add_answer(message)
            elif message.role == "tool_result":
                self._answered = True
                self._switch_role(USER)
                self._add_result(message)
            else:
                self._add_blocks(USER, filter(None, map(_encode_block, message.content)))

    def _add_blocks(self, role: bytes, blocks: Iterable[bytes]) -> None:
        """Add the blocks of a message; one without blocks is left out, so that the roles still alternate."""
        found = list(blocks)
        if found:
            self._switch_role(role)
            self._blocks.extend(found)

    def _add_answer(self, message: AssistantMessage) -> None:
        self._begin_answer(message)
        content = list(message.content)
        # The API refuses an answer that ends with thinking.
        while content and _is_thinking(content[-1]):
            content.pop()
        self._add_blocks(ASSISTANT, filter(None, map(self._encode_answer_block, content)))

    def _encode_answer_block(self, block: Content) -> bytes | None:
        if isinstance(block, ToolCall):
            name = self._names.to_wire(block.name)
            self.used[name] = None
            given = block.arguments if block.raw_arguments is None else {"_raw": block.raw_arguments}
            return encode_json({"toolUse": {"toolUseId": encode_call_id(block.id), "name": name, "input": given}})
        if isinstance(block, ThinkingContent):
            return _encode_thinking(block)
        # The API takes no images from the assistant.
        return _encode_block(TextContent("[image]") if isinstance(block, ImageContent) else block)

    def _add_result(self, message: ToolResultMessage) -> None:
        content = message.content
        fields: dict[str, Any] = {"toolUseId": encode_call_id(message.tool_call_id)}
        empty = _NO_OUTPUT
        if message.is_error or not self.status:
            # Only Claude and Nova take images in a result, and Claude none in an error; else they follow the results.
            images = [block for block in content if isinstance(block, ImageContent)]
            self._blocks.extend(filter(None, map(_encode_block, images)))
            content = [block for block in content if not isinstance(block, ImageContent)]
            empty = _SEEN if images else _NO_OUTPUT
        if message.is_error and self.status:
            fields["status"] = "error"
        blocks = [block for block in map(_encode_block, content) if block]
        fields["content"] = [msgspec.Raw(block) for block in blocks or [empty]]
        self._results.append(encode_json({"toolResult": fields}))


def encode_messages(messages: Sequence[Message], names: ToolNames, tools: object, *, status: bool) -> EncodedMessages:
    """Encode the messages; of a conversation that only grew, encode just the new ones.

    `tools` is what the names depend on: with other tools all messages are encoded again.
    """
    return encode_new_messages(
        messages,
        _MEMO,
        lambda: EncodedMessages(names, tools, status=status),
        lambda known: known.tools is tools and known.status == status,
    )


def add_cache_points(pieces: list[bytes], mark: bytes) -> list[bytes]:
    """Put a cache point at the end of the last two user messages; the earlier one finds the last request's again."""
    users = [index for index, piece in enumerate(pieces) if piece.startswith(USER)]
    for index in users[-2:]:
        pieces[index] = b"".join((pieces[index][: -len(END)], b",", mark, END))
    return pieces


def _is_thinking(block: Content) -> bool:
    """Whether the block is thinking or blank text; a block of an unknown type is neither."""
    if isinstance(block, TextContent):
        return not block.text or block.text.isspace()
    return isinstance(block, ThinkingContent) and block.field != OPAQUE


def _encode_block(block: Content) -> bytes | None:
    if isinstance(block, ImageContent):
        block = fit_picture(block, _PICTURES)
    if isinstance(block, TextContent):
        return encode_json({"text": block.text}) if block.text and not block.text.isspace() else None
    if isinstance(block, ImageContent):
        form = block.mime_type.partition("/")[2]
        return encode_json({"image": {"format": form, "source": {"bytes": block.data}}})
    return None


def _encode_thinking(block: ThinkingContent) -> bytes | None:
    """Encode thinking unchanged; without its signature it is refused, or of no use."""
    if not block.signature:
        return None
    if block.field == OPAQUE:
        return block.signature.encode("utf-8", "replace")
    if block.redacted:
        return encode_json({"reasoningContent": {"redactedContent": block.signature}})
    return encode_json({"reasoningContent": {"reasoningText": {"text": block.thinking, "signature": block.signature}}})
