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


class Delta(msgspec.Struct, gc=False):
    """What a delta adds to a block, whichever kind it is."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None


class BlockDelta(msgspec.Struct, gc=False):
    """More of a block."""

    index: int = 0
    delta: Delta = msgspec.field(default_factory=Delta)


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


class MessageHead(msgspec.Struct):
    """The answer as it begins; gateways number what the API names."""

    id: str | int | None = None
    usage: dict[str, Any] | None = None


class MessageStart(msgspec.Struct):
    """The answer begins."""

    message: MessageHead = msgspec.field(default_factory=MessageHead)


class StopDelta(msgspec.Struct):
    """Why the answer ended."""

    stop_reason: Any = None
    stop_details: dict[str, Any] | None = None


class MessageDelta(msgspec.Struct):
    """The answer is about to end."""

    delta: StopDelta = msgspec.field(default_factory=StopDelta)
    usage: dict[str, Any] | None = None


class AnyEvent(msgspec.Struct):
    """An event whose name only its JSON tells."""

    type: str = ""
    error: Any = None


DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (AnyEvent, MessageStart, BlockStart, Block, BlockDelta, BlockStop, MessageDelta)
}
"""What reads each of them; fields it does not know are skipped."""

decode_delta = DECODERS[BlockDelta].decode


class OpenBlock:
    """A block while it arrives."""

    __slots__ = ("at", "given", "held", "id", "kind", "name", "parts", "raw", "signature")

    def __init__(self, index: int, kind: str) -> None:
        self.at = index
        self.kind = kind
        self.parts: list[str] = []
        # The first half of a character that was split between two deltas.
        self.held = ""
        self.signature: str | None = None
        self.id = ""
        self.name = ""
        self.given: Any = None
        self.raw = b""

    def join_surrogates(self, text: str) -> str:
        """The text with a split character joined; a half at its end waits for the next delta."""
        text, self.held = split_trailing_surrogate(self.held + text)
        return escape_lone_surrogates(text) if self.kind == "tool_use" else replace_lone_surrogates(text)

    def build_content(self) -> Content:
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
        return ThinkingContent("", self._encode_unknown(text), redacted=True, field=OPAQUE)

    def _encode_unknown(self, text: str) -> str:
        """The JSON of a block of unknown kind, with the input its deltas spelled."""
        if not text.strip():
            return self.raw.decode()
        try:
            fields = msgspec.json.decode(self.raw)
            fields["input"] = msgspec.json.decode(text)
        except (msgspec.DecodeError, TypeError):
            return self.raw.decode()
        return msgspec.json.encode(fields).decode()
