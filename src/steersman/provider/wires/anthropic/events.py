"""The events of the Anthropic Messages API that are decoded, and a block while its deltas arrive."""

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
"""`ThinkingContent.field` of a block of an unknown type; its JSON is kept in `signature`, byte for byte."""


class Delta(msgspec.Struct, gc=False):
    """What a delta adds to a block of any type."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None


class BlockDelta(msgspec.Struct, gc=False):
    """The event `content_block_delta`."""

    index: int = 0
    delta: Delta = msgspec.field(default_factory=Delta)


class BlockStart(msgspec.Struct):
    """The event `content_block_start`."""

    index: int = 0
    content_block: msgspec.Raw = msgspec.Raw(b"{}")


class Block(msgspec.Struct):
    """The block in `content_block_start`."""

    type: str = ""
    id: str | int | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class BlockStop(msgspec.Struct, gc=False):
    """The event `content_block_stop`."""

    index: int = 0


class MessageHead(msgspec.Struct):
    """The message in `message_start`; some gateways send a number as its id."""

    id: str | int | None = None
    usage: dict[str, Any] | None = None


class MessageStart(msgspec.Struct):
    """The event `message_start`."""

    message: MessageHead = msgspec.field(default_factory=MessageHead)


class StopDelta(msgspec.Struct):
    """The stop reason in `message_delta`."""

    stop_reason: Any = None
    stop_details: dict[str, Any] | None = None


class MessageDelta(msgspec.Struct):
    """The event `message_delta`."""

    delta: StopDelta = msgspec.field(default_factory=StopDelta)
    usage: dict[str, Any] | None = None


class AnyEvent(msgspec.Struct):
    """The fields that tell the type of any event."""

    type: str = ""
    error: Any = None


DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (AnyEvent, MessageStart, BlockStart, Block, BlockDelta, BlockStop, MessageDelta)
}
"""A JSON decoder for each event; unknown fields are skipped."""

decode_delta = DECODERS[BlockDelta].decode


class OpenBlock:
    """A block while its deltas arrive."""

    __slots__ = ("at", "given", "held", "id", "kind", "name", "parts", "raw", "signature")

    def __init__(self, index: int, kind: str) -> None:
        self.at = index
        self.kind = kind
        self.parts: list[str] = []
        # A high surrogate whose low surrogate comes with the next delta.
        self.held = ""
        self.signature: str | None = None
        self.id = ""
        self.name = ""
        self.given: Any = None
        self.raw = b""

    def join_surrogates(self, text: str) -> str:
        """Join a surrogate pair that was split between deltas; a high surrogate at the end is held back."""
        text, self.held = split_trailing_surrogate(self.held + text)
        return escape_lone_surrogates(text) if self.kind == "tool_use" else replace_lone_surrogates(text)

    def build_content(self) -> Content:
        """Build the content block."""
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
        """The JSON of a block of an unknown type, with the input that its deltas add up to."""
        if not text.strip():
            return self.raw.decode()
        try:
            fields = msgspec.json.decode(self.raw)
            fields["input"] = msgspec.json.decode(text)
        except (msgspec.DecodeError, TypeError):
            return self.raw.decode()
        return msgspec.json.encode(fields).decode()
