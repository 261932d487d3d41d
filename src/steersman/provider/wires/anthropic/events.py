"""The events of the Anthropic Messages API, as far as they matter here, and a block while its deltas arrive."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.types.content import (
    Content,
    TextContent,
    ThinkingContent,
    escape_lone_surrogates,
    parse_tool_call,
    replace_lone_surrogates,
    split_trailing_surrogate,
)

OPAQUE = "anthropic_block"
"""`ThinkingContent.field` of a block that only the server understands; its JSON is in `signature`, byte for byte."""


class Piece(msgspec.Struct, gc=False):
    """What a delta adds to a block, whichever kind it is."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None


class BlockDelta(msgspec.Struct, gc=False):
    """More of a block."""

    index: int = 0
    delta: Piece = msgspec.field(default_factory=Piece)


class BlockStart(msgspec.Struct):
    """A block begins."""

    index: int = 0
    content_block: msgspec.Raw = msgspec.Raw(b"{}")


class Block(msgspec.Struct):
    """A block as it begins."""

    type: str = ""
    id: str | int | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class BlockStop(msgspec.Struct, gc=False):
    """A block is complete."""

    index: int = 0


class Begun(msgspec.Struct):
    """The answer as it begins; gateways number what the API names."""

    id: str | int | None = None
    usage: dict[str, Any] | None = None


class MessageStart(msgspec.Struct):
    """The answer begins."""

    message: Begun = msgspec.field(default_factory=Begun)


class Stop(msgspec.Struct):
    """Why the answer ended."""

    stop_reason: Any = None
    stop_details: dict[str, Any] | None = None


class MessageDelta(msgspec.Struct):
    """The answer is about to end."""

    delta: Stop = msgspec.field(default_factory=Stop)
    usage: dict[str, Any] | None = None


class Named(msgspec.Struct):
    """An event whose name only its JSON tells."""

    type: str = ""
    error: Any = None


READERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (Named, MessageStart, BlockStart, Block, BlockDelta, BlockStop, MessageDelta)
}
"""What reads each of them; fields it does not know are skipped."""

read_delta = READERS[BlockDelta].decode


class Growing:
    """A block while it arrives."""

    __slots__ = ("at", "given", "half", "id", "kind", "name", "parts", "raw", "signature")

    def __init__(self, at: int, kind: str) -> None:
        self.at = at
        self.kind = kind
        self.parts: list[str] = []
        # The first half of a character that was split between two deltas.
        self.half = ""
        self.signature: str | None = None
        self.id = ""
        self.name = ""
        self.given: Any = None
        self.raw = b""

    def whole(self, text: str) -> str:
        """The text with a split character joined; a half at its end waits for the next delta."""
        text, self.half = split_trailing_surrogate(self.half + text)
        return escape_lone_surrogates(text) if self.kind == "tool_use" else replace_lone_surrogates(text)

    def content(self) -> Content:
        """The block as it is kept."""
        text = "".join(self.parts)
        if self.kind == "text":
            return TextContent(text)
        if self.kind == "thinking":
            return ThinkingContent(text, self.signature)
        if self.kind == "redacted_thinking":
            return ThinkingContent("", self.signature, redacted=True)
        if self.kind == "tool_use":
            return parse_tool_call(self.id, self.name, text)
        return ThinkingContent("", self._opaque(text), redacted=True, field=OPAQUE)

    def _opaque(self, text: str) -> str:
        """The JSON of a block of unknown kind, with the input its deltas spelled."""
        if not text.strip():
            return self.raw.decode()
        try:
            fields = msgspec.json.decode(self.raw)
            fields["input"] = msgspec.json.decode(text)
        except (msgspec.DecodeError, TypeError):
            return self.raw.decode()
        return msgspec.json.encode(fields).decode()
