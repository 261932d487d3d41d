"""Encodes the messages of a conversation for the Converse API; the bytes of earlier messages stay the same.

The roles must alternate, so consecutive messages of one role become one message: one user message holds all results of
a turn, then the user's own text. Blank texts and empty messages are refused, so they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, cast

import msgspec

from steersman.provider.wires.bedrock.events import OPAQUE
from steersman.provider.wires.protocol import ToolNames, encode_json
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.frozen import MemoList
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_END = b"]}"
_MEMO = "bedrock"
_NO_OUTPUT = encode_json({"text": "(no output)"})


def encode_call_id(call_id: str) -> str:
    """Return a legal id for a call: the same id if it is legal, else a hash of it."""
    if _ID.fullmatch(call_id):
        return call_id
    return f"x-{blake2b(call_id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


class EncodedMessages:
    """The encoded messages of a conversation; `extend` adds new ones and keeps the rest."""

    __slots__ = (
        "_answered", "_blocks", "_done", "_first", "_names", "_results", "_role", "count", "status", "tools", "used",
    )  # fmt: skip

    def __init__(self, names: ToolNames, tools: object, *, status: bool) -> None:
        self.count = 0
        self.tools = tools
        self.status = status
        # The tools that were called: the API wants declarations for them.
        self.used: dict[str, None] = {}
        self._names = names
        self._done: list[bytes] = []
        self._role = b""
        self._results: list[bytes] = []
        self._blocks: list[bytes] = []
        # The first block of the answers since the last prompt, and whether results followed the last answer.
        self._first: Content | None = None
        self._answered = False

    @property
    def works_without_thinking(self) -> bool:
        """Whether the current tool calls began without thinking; Claude then refuses a thinking budget."""
        return self._answered and not (isinstance(self._first, ThinkingContent) and self._first.signature)

    def extend(self, messages: Iterable[Message]) -> None:
        """Encode more messages."""
        for message in messages:
            self.count += 1
            if isinstance(message, AssistantMessage):
                self._add_answer(message)
            elif isinstance(message, ToolResultMessage):
                self._answered = True
                self._switch_role(_USER)
                self._add_result(message)
            else:
                self._add_blocks(_USER, filter(None, map(_encode_block, message.content)))

    def list_pieces(self) -> list[bytes]:
        """Return the JSON of each message, including the last one, which may still grow."""
        last = self._encode_open_message()
        return [*self._done, last] if last else list(self._done)

    def _add_blocks(self, role: bytes, blocks: Iterable[bytes]) -> None:
        """Add the blocks of a message; one without blocks is left out, so that the roles still alternate."""
        found = list(blocks)
        if found:
            self._switch_role(role)
            self._blocks.extend(found)

    def _switch_role(self, role: bytes) -> None:
        if role is self._role:
            return
        if last := self._encode_open_message():
            self._done.append(last)
        self._role = role
        self._results = []
        self._blocks = []

    def _encode_open_message(self) -> bytes:
        blocks = [*self._results, *self._blocks]
        return b"".join((self._role, b",".join(blocks), _END)) if blocks else b""

    def _add_answer(self, message: AssistantMessage) -> None:
        if not self._answered:
            self._first = message.content[0] if message.content else None
        self._answered = False
        content = list(message.content)
        # The API refuses an answer that ends with thinking.
        while content and _is_thinking(content[-1]):
            content.pop()
        self._add_blocks(_ASSISTANT, filter(None, map(self._encode_answer_block, content)))

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
        if message.is_error and self.status:
            # Claude takes only text in an error; its images follow the results.
            images = [block for block in content if isinstance(block, ImageContent)]
            self._blocks.extend(filter(None, map(_encode_block, images)))
            content = [block for block in content if not isinstance(block, ImageContent)]
            fields["status"] = "error"
        blocks = [block for block in map(_encode_block, content) if block]
        fields["content"] = [msgspec.Raw(block) for block in blocks or [_NO_OUTPUT]]
        self._results.append(encode_json({"toolResult": fields}))


def encode_messages(messages: Sequence[Message], names: ToolNames, tools: object, *, status: bool) -> EncodedMessages:
    """Encode the messages; of a conversation that only grew, encode just the new ones.

    `tools` is what the names depend on: with other tools all messages are encoded again.
    """
    base: object = getattr(messages, "base", None)
    if not isinstance(base, MemoList):
        fresh = EncodedMessages(names, tools, status=status)
        fresh.extend(messages)
        return fresh
    grown = cast(MemoList[Message], base)
    known: EncodedMessages | None = grown.memo.get(_MEMO)
    if known is None or known.tools is not tools or known.status != status:
        known = grown.memo[_MEMO] = EncodedMessages(names, tools, status=status)
    elif known.count > len(messages):
        known = EncodedMessages(names, tools, status=status)  # an older request again: the memo is for the newer ones
    known.extend(grown[known.count : len(messages)])
    return known


def add_cache_points(pieces: list[bytes], mark: bytes) -> list[bytes]:
    """Put a cache point at the end of the last two user messages; the earlier one finds the last request's again."""
    users = [index for index, piece in enumerate(pieces) if piece.startswith(_USER)]
    for index in users[-2:]:
        pieces[index] = b"".join((pieces[index][: -len(_END)], b",", mark, _END))
    return pieces


def _is_thinking(block: Content) -> bool:
    """Whether the block is thinking or blank text; a block of an unknown type is neither."""
    if isinstance(block, TextContent):
        return not block.text or block.text.isspace()
    return isinstance(block, ThinkingContent) and block.field != OPAQUE


def _encode_block(block: Content) -> bytes | None:
    if isinstance(block, TextContent):
        return encode_json({"text": block.text}) if block.text and not block.text.isspace() else None
    if isinstance(block, ImageContent):
        form = block.mime_type.partition("/")[2]
        kind = "jpeg" if form == "jpg" else form
        return encode_json({"image": {"format": kind, "source": {"bytes": block.data}}})
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
