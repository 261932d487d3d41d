"""The events of the Anthropic Messages API that are decoded, and a block while its deltas arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import msgspec

from steersman.provider.wires.open_block import OpenBlock
from steersman.provider.wires.protocol import MOST_TOKENS, decode_count, encode_arguments, parse_call
from steersman.types.content import Content, TextContent, ThinkingContent, ToolCall
from steersman.types.stream import StreamEvent
from steersman.types.usage import Usage

Event = TypeVar("Event")

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


class BlockStart(msgspec.Struct):
    """The event `content_block_start`."""

    index: int = 0
    content_block: Block = msgspec.field(default_factory=Block)


class BlockStop(msgspec.Struct, gc=False):
    """The event `content_block_stop`."""

    index: int = 0


class MessageHead(msgspec.Struct):
    """The message in `message_start`; some gateways send a number as its id."""

    id: str | int | None = None
    usage: dict[str, Any] | None = None
    content: Any = None
    stop_reason: Any = None
    stop_details: Any = None
    container: Any = None


class MessageStart(msgspec.Struct):
    """The event `message_start`."""

    message: MessageHead = msgspec.field(default_factory=MessageHead)


class StopDelta(msgspec.Struct):
    """The stop reason in `message_delta`."""

    stop_reason: Any = None
    stop_details: Any = None
    container: Any = None


class MessageDelta(msgspec.Struct):
    """The event `message_delta`."""

    delta: StopDelta = msgspec.field(default_factory=StopDelta)
    usage: dict[str, Any] | None = None


class AnyEvent(msgspec.Struct):
    """The fields that tell the type of any event."""

    type: str = ""
    error: Any = None


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MOST_TOKENS)] | None


class _OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: _Count = None


class _Counts(msgspec.Struct, gc=False):
    input_tokens: _Count = None
    output_tokens: _Count = None
    cache_read_input_tokens: _Count = None
    cache_creation_input_tokens: _Count = None
    output_tokens_details: _OutputDetails | None = None


def decode_usage(counts: dict[str, Any]) -> Usage:
    """Return the usage; a malformed count is unknown."""
    try:
        known = msgspec.convert(counts, _Counts)
    except msgspec.ValidationError:
        known = _convert_leniently(counts)
    details = known.output_tokens_details
    return Usage(
        known.input_tokens,
        known.output_tokens,
        known.cache_read_input_tokens,
        known.cache_creation_input_tokens,
        None if details is None else details.thinking_tokens,
    )


def _convert_leniently(counts: dict[str, Any]) -> _Counts:
    """Convert counts of which some are malformed: they must not lose the others."""
    *names, more = _Counts.__struct_fields__
    known = {name: decode_count(counts.get(name)) for name in names}
    details: Any = counts.get(more)
    thinking = decode_count(cast(dict[str, Any], details).get("thinking_tokens")) if isinstance(details, dict) else None
    return msgspec.convert({**known, more: {"thinking_tokens": thinking}}, _Counts)


def make_decoder(kind: type[Event]) -> Callable[[str | bytes], Event]:
    """A function that decodes the JSON of an event; unknown fields are skipped."""
    return msgspec.json.Decoder(kind).decode


decode_delta = make_decoder(BlockDelta)

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_lists = msgspec.json.Decoder(list[msgspec.Raw])
_KNOWN = frozenset(("type", "id", "name", "input", "cache_control"))


def split_fields(data: str | bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object, each byte for byte; none if it is no object."""
    try:
        return _fields.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}


def split_list(data: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of a JSON array, each byte for byte; none if it is no array."""
    try:
        return _lists.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return []


def extract_block(data: str) -> bytes:
    """Return the JSON of the block in `content_block_start`."""
    return bytes(split_fields(data).get("content_block", b"{}"))


def find_citations(data: str | bytes) -> list[msgspec.Raw]:
    """Return the citations with which a text block starts."""
    return split_list(split_fields(data).get("citations", b""))


def is_usual_call(data: str, block: Block) -> bool:
    """Whether an event starts a call with just the usual fields, as nearly all do; the input follows."""
    return f'{{"type":"tool_use","id":"{block.id}","name":"{block.name}","input":{{}}}}' in data


def find_call_fields(data: bytes) -> str | None:
    """Return the JSON of the fields of a call that are not decoded, such as the `caller` of a programmatic call."""
    more = {name: raw for name, raw in split_fields(data).items() if name not in _KNOWN and bytes(raw) != b"null"}
    caller = more.get("caller")
    if caller is not None and bytes(split_fields(caller).get("type", b"")) == b'"direct"':
        del more["caller"]  # the same as none
    return msgspec.json.encode(more).decode() if more else None


def add_container(block: Content, id: object) -> Content:
    """Add the id of the server's container to a call of the code in it: the result has to name it."""
    if type(block) is not ToolCall or block.signature is None or not isinstance(id, str):
        return block
    fields = {**split_fields(block.signature), "container": id}
    return msgspec.structs.replace(block, signature=msgspec.json.encode(fields).decode())


def _is_text(raw: msgspec.Raw) -> bool:
    return memoryview(raw)[:1].tobytes() == b'"'  # not `bytes(raw)`, which copies all of it


def _join_texts(pieces: Sequence[msgspec.Raw]) -> msgspec.Raw:
    """Join JSON strings, byte for byte."""
    return pieces[0] if len(pieces) == 1 else msgspec.Raw(b'"%b"' % b"".join(bytes(piece)[1:-1] for piece in pieces))


class AnthropicBlock(OpenBlock):
    """A block with what only this API has: citations, input that comes whole, and fields of unknown types."""

    given: Any = None
    raw: bytes = b""
    citations: list[msgspec.Raw] = msgspec.field(default_factory=list)
    # The fields of a block of an unknown type, once a delta has come; the pieces of a text are joined once.
    _fields: dict[str, list[msgspec.Raw]] = msgspec.field(default_factory=dict)

    def close(self) -> Sequence[StreamEvent]:
        """End the block; input that came whole, in `content_block_start`, is shown first."""
        if self.given and self.kind == "tool_use" and not self.held and not "".join(self.parts).strip():
            return (*self.add_text(_encode_input(self.given)), *super().close())
        return super().close()

    def add_fields(self, delta: bytes | msgspec.Raw) -> None:
        """Add a delta of an unknown type to a block of an unknown type; the delta of a compaction holds all of it."""
        given = split_fields(delta)
        known = self._fields = self._fields or {name: [raw] for name, raw in split_fields(self.raw).items()}
        whole = bytes(given.pop("type", b"")) == b'"compaction_delta"'
        for name, raw in given.items():
            if bytes(raw) == b"null" and name in known:
                continue
            if not whole and name in known and _is_text(raw) and _is_text(known[name][0]):
                known[name].append(raw)
            else:
                known[name] = [raw]

    def build_content(self) -> Content:
        """Build the content block."""
        text = "".join(self.parts)
        if self.kind == "text":
            return TextContent(text, msgspec.json.encode(self.citations).decode() if self.citations else None)
        if self.kind == "thinking":
            return ThinkingContent(text, self.signature)
        if self.kind == "redacted_thinking":
            return ThinkingContent("", self.signature, redacted=True)
        if self.kind == "tool_use":
            return parse_call(self.id, self.name, text, self.signature)
        return ThinkingContent("", self._encode_unknown(text), redacted=True, field=OPAQUE)

    def _encode_unknown(self, text: str) -> str:
        """The JSON of a block of an unknown type, with the input that its deltas add up to."""
        if self._fields:
            self.raw = msgspec.json.encode({name: _join_texts(pieces) for name, pieces in self._fields.items()})
        if not text.strip():
            return self.raw.decode()
        try:
            fields = msgspec.json.decode(self.raw)
            fields["input"] = msgspec.json.decode(text)
        except (msgspec.DecodeError, TypeError):
            return self.raw.decode()
        return msgspec.json.encode(fields).decode()


def _encode_input(given: Any) -> str:
    return given if isinstance(given, str) else encode_arguments(given)
