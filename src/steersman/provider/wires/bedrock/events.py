"""The events of the Converse API that are decoded, and the blocks of the server's own tools."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Any

import msgspec

from steersman.provider.wires.open_block import OpenBlock
from steersman.types.content import Content, ThinkingContent

OPAQUE = "bedrock_block"
"""`ThinkingContent.field` of a block of the server's own tools; its JSON is kept in `signature`."""


class Input(msgspec.Struct, gc=False):
    """A piece of the input of a call."""

    input: str | None = None


class Reasoning(msgspec.Struct, gc=False, rename="camel"):
    """What a delta adds to reasoning."""

    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class Delta(msgspec.Struct, gc=False, rename="camel"):
    """What a delta adds to a block of any type."""

    text: str | None = None
    tool_use: Input | None = None
    reasoning_content: Reasoning | None = None
    tool_result: list[Any] | None = None


class BlockDelta(msgspec.Struct, gc=False, rename="camel"):
    """The event `contentBlockDelta`."""

    content_block_index: int = 0
    delta: Delta = msgspec.field(default_factory=Delta)


class ToolStart(msgspec.Struct, rename="camel"):
    """The beginning of a call, or of a result of a tool that the server runs."""

    tool_use_id: str | int | None = None
    name: str | None = None
    type: str | None = None
    status: str | None = None


class Start(msgspec.Struct, rename="camel"):
    """What a block begins with."""

    tool_use: ToolStart | None = None
    tool_result: ToolStart | None = None


class BlockStart(msgspec.Struct, rename="camel"):
    """The event `contentBlockStart`."""

    content_block_index: int = 0
    start: Start = msgspec.field(default_factory=Start)


class BlockStop(msgspec.Struct, rename="camel"):
    """The event `contentBlockStop`."""

    content_block_index: int = 0


class MessageStop(msgspec.Struct, rename="camel"):
    """The event `messageStop`."""

    stop_reason: Any = None


class Metadata(msgspec.Struct):
    """The event `metadata`."""

    usage: dict[str, Any] | None = None


DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (BlockDelta, BlockStart, BlockStop, MessageStop, Metadata, Any)
}
"""A JSON decoder for each event; unknown fields are skipped."""

decode_delta = DECODERS[BlockDelta].decode


class RedactedBlock(OpenBlock):
    """Redacted thinking, whose pieces are joined once, at its end."""

    kind: str = "redacted_thinking"
    pieces: list[str] = msgspec.field(default_factory=list)

    def build_content(self) -> Content:
        """Build the block that keeps it for the next request; each piece is encoded on its own."""
        whole = "".join(self.pieces)
        if len(self.pieces) > 1:
            try:
                whole = b64encode(b"".join(map(b64decode, self.pieces))).decode()
            except (Base64Error, ValueError):
                pass
        return ThinkingContent("", whole, redacted=True)


class ServerBlock(OpenBlock):
    """A call of a tool that the server runs itself, or its result."""

    kind: str = "server"
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    results: list[Any] = msgspec.field(default_factory=list)

    def build_content(self) -> Content:
        """Build the block that keeps it for the next request."""
        name, inner = next(iter(self.fields.items()))
        added = {"content": self.results} if name == "toolResult" else {"input": self._parse_input()}
        whole = json.dumps({name: {**inner, **added}})
        return ThinkingContent("", whole, redacted=True, field=OPAQUE)

    def _parse_input(self) -> Any:
        try:
            return json.loads("".join(self.parts) or "{}")
        except ValueError:
            return {}
