"""Writes a conversation for the Anthropic Messages API, as bytes that stay the same while it goes on.

A turn of ours may be several messages; on the wire one user message holds all results of a turn, then what was said.
Consecutive messages of one side become one, so that the sides take turns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec

from steersman.provider.wires.anthropic.decode import PAUSED
from steersman.provider.wires.anthropic.events import OPAQUE
from steersman.types.content import Content, ImageContent, TextContent, ThinkingContent, ToolCall, well_formed
from steersman.types.grown import Grown
from steersman.types.messages import AssistantMessage, Message, ToolResultMessage

NameOf = Callable[[str], str]
"""A tool's name as the wire takes it."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_FOREIGN_ID = "x-"
_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_END = b"]}"
_MEMO = "anthropic"
_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """JSON; half characters, which it has no way to write, are replaced."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_mended(value))


def wire_id(call_id: str) -> str:
    """A call's id as the API takes it: the same where it is legal, else spelled out, never that of another call."""
    if _ID.fullmatch(call_id) and not call_id.startswith(_FOREIGN_ID):
        return call_id
    return _FOREIGN_ID + call_id.encode("utf-8", "surrogatepass").hex()


class Written:
    """The messages of a conversation as they go over the wire; it takes more, and keeps what it has."""

    __slots__ = (
        "_answered", "_blocks", "_done", "_first", "_name_of", "_results", "_role", "count", "names", "used",
    )  # fmt: skip

    def __init__(self, name_of: NameOf, names: object) -> None:
        self.count = 0
        self.names = names
        # The tools that were called: the API wants to know tools that a conversation mentions.
        self.used: dict[str, None] = {}
        self._name_of = name_of
        self._done: list[bytes] = []
        self._role = b""
        self._results: list[bytes] = []
        self._blocks: list[bytes] = []
        # With what the calls began that lead up to the last results, and whether results have followed the last answer.
        self._first: Content | None = None
        self._answered = False

    @property
    def works_without_thinking(self) -> bool:
        """Whether calls are being answered that were begun without thinking, by another model or with thinking off.

        With a budget, what the model says after the last prompt has to begin with thinking that it signed.
        """
        return self._answered and not (isinstance(self._first, ThinkingContent) and self._first.signature)

    def extend(self, messages: Iterable[Message]) -> None:
        """Write the messages that follow."""
        for message in messages:
            self.count += 1
            if isinstance(message, AssistantMessage):
                if not self._answered:
                    self._first = message.content[0] if message.content else None
                self._answered = False
                self._turn(_ASSISTANT)
                self._blocks.extend(filter(None, map(self._said, _told(message))))
            elif isinstance(message, ToolResultMessage):
                self._answered = True
                self._turn(_USER)
                self._result(message)
            else:
                self._turn(_USER)
                self._blocks.extend(filter(None, map(_block, message.content)))

    def pieces(self) -> list[bytes]:
        """The messages, each as its JSON, with the last one as it is now."""
        last = self._last()
        return [*self._done, last] if last else list(self._done)

    def _turn(self, role: bytes) -> None:
        if role is self._role:
            return
        if last := self._last():
            self._done.append(last)
        self._role = role
        self._results = []
        self._blocks = []

    def _last(self) -> bytes:
        blocks = [*self._results, *self._blocks]
        return b"".join((self._role, b",".join(blocks), _END)) if blocks else b""

    def _said(self, block: Content) -> bytes | None:
        if isinstance(block, ToolCall):
            name = self._name_of(block.name)
            self.used[name] = None
            call = {"type": "tool_use", "id": wire_id(block.id), "name": name, "input": _input(block)}
            return encode(call)
        if isinstance(block, ThinkingContent):
            return _thinking(block)
        # The model's side may not show pictures.
        return _block(TextContent("[image]") if isinstance(block, ImageContent) else block)

    def _result(self, message: ToolResultMessage) -> None:
        content = message.content
        fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id(message.tool_call_id)}
        if message.is_error:
            # An error is text alone; the pictures follow the results.
            self._blocks.extend(filter(None, (_block(block) for block in content if isinstance(block, ImageContent))))
            content = [block for block in content if not isinstance(block, ImageContent)]
            fields["is_error"] = True
        blocks = [msgspec.Raw(block) for block in map(_block, content) if block]
        if blocks:
            fields["content"] = blocks
        self._results.append(encode(fields))


def written(messages: Sequence[Message], name_of: NameOf, names: object) -> Written:
    """The messages on the wire; of a conversation that only grew, just the new ones are encoded.

    `names` is what `name_of` depends on: a conversation that was written with other names is written anew.
    """
    base: object = getattr(messages, "base", None)
    if not isinstance(base, Grown):
        fresh = Written(name_of, names)
        fresh.extend(messages)
        return fresh
    grown = cast(Grown[Message], base)
    known: Written | None = grown.memo.get(_MEMO)
    if known is None or known.names != names:
        known = grown.memo[_MEMO] = Written(name_of, names)
    elif known.count > len(messages):
        known = Written(name_of, names)  # an older request, asked again: what is kept is for the newer ones
    known.extend(grown[known.count : len(messages)])
    return known


def marked(pieces: list[bytes], mark: bytes) -> list[bytes]:
    """The messages with a cache mark on the last two of the user's.

    The mark before the last stood there in the request before, so what the server kept then is found again.
    """
    left = 2
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if piece.startswith(_USER):
            pieces[index] = mark_last(piece, mark, depth=3)
            left -= 1
            if not left:
                break
    return pieces


def mark_last(encoded: bytes, mark: bytes, *, depth: int) -> bytes:
    """The JSON with `mark` inside the object that ends `depth` bytes before its end."""
    return b"".join((encoded[:-depth], mark, encoded[-depth:]))


def _told(message: AssistantMessage) -> Sequence[Content]:
    """What an answer said, up to its last block that is no thinking: the API takes no message that ends with one.

    An answer that paused goes back as it is.
    """
    content = message.content
    end = len(content)
    while end and _is_thought(content[end - 1]) and message.raw_stop_reason != PAUSED:
        end -= 1
    return content if end == len(content) else content[:end]


def _is_thought(block: Content) -> bool:
    """Whether there is nothing to the block but thinking; a block of an unknown kind may be anything."""
    if isinstance(block, TextContent):
        return not block.text or block.text.isspace()
    return isinstance(block, ThinkingContent) and block.field != OPAQUE


def _block(block: Content) -> bytes | None:
    if isinstance(block, TextContent):
        return encode({"type": "text", "text": block.text}) if block.text and not block.text.isspace() else None
    if isinstance(block, ImageContent):
        kind = "image/jpeg" if block.mime_type == "image/jpg" else block.mime_type
        return encode({"type": "image", "source": {"type": "base64", "media_type": kind, "data": block.data}})
    return None


def _thinking(block: ThinkingContent) -> bytes | None:
    """Thinking goes back as it came; the API takes none without its signature, and none that was changed."""
    if not block.signature:
        return None
    if block.field == OPAQUE:
        return block.signature.encode("utf-8", "replace")
    if block.redacted:
        return encode({"type": "redacted_thinking", "data": block.signature})
    return encode({"type": "thinking", "thinking": block.thinking, "signature": block.signature})


def _input(call: ToolCall) -> dict[str, Any]:
    return call.arguments if call.raw_arguments is None else {"_raw": call.raw_arguments}


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in cast(Sequence[Any], value)]
    return value
