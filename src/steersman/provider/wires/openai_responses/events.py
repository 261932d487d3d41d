"""The events of a Responses stream that are decoded.

Only the fields of a delta are decoded at once; the others stay raw until they are needed. Unknown fields are skipped.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeAlias, cast

import msgspec

from steersman.provider.wires.protocol import encode_arguments, encode_json
from steersman.types.content import escape_lone_surrogates, replace_lone_surrogates
from steersman.types.usage import Usage

_EMPTY = msgspec.Raw()
_NULL = msgspec.Raw(b"null")

Id: TypeAlias = str | int | None
"""An id; some compatible servers send numbers."""


class Part(msgspec.Struct, gc=False):
    """A part of a message or of reasoning."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class OutputItem(msgspec.Struct, gc=False):
    """A message, reasoning, or a call; an item of any other type is kept unchanged."""

    type: str | None = None
    id: Id = None
    status: str | None = None
    call_id: Id = None
    name: str | None = None
    arguments: Any = None
    input: Any = None
    phase: str | None = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None


class Event(msgspec.Struct, gc=False):
    """Any event; some compatible servers leave out indexes, ids and sequence numbers."""

    type: str = ""
    delta: str = ""
    output_index: int | None = None
    item_id: Id = None
    content_index: int | None = None
    summary_index: int | None = None
    text: str | None = None
    refusal: str | None = None
    item: OutputItem | None = None
    arguments: msgspec.Raw = _EMPTY
    response: msgspec.Raw = _EMPTY
    error: msgspec.Raw = _EMPTY
    code: msgspec.Raw = _EMPTY
    message: msgspec.Raw = _EMPTY

    def continues(self, last: Event, *, indexed: bool) -> bool:
        """Whether a delta is for the same part as the last one; where indexes tell items, their ids may differ."""
        return (
            self.type == last.type
            and self.output_index == last.output_index
            and self.content_index == last.content_index
            and self.summary_index == last.summary_index
            and (self.item_id == last.item_id or (self.output_index is not None and indexed))
        )

    def has_place_of(self, data: str) -> bool:
        """Whether the JSON of another event names the same item and the same part of it."""
        part = self.content_index
        return (
            f'"item_id":"{self.item_id}"' in data
            and f'"output_index":{self.output_index},' in data
            and (part is None or f'"content_index":{part},' in data)
        )


class _ItemName(msgspec.Struct):
    type: str | None = None
    id: Id = None


class _UnknownItem(msgspec.Struct):
    item: _ItemName
    type: str = ""
    output_index: int | None = None


class _RawItem(msgspec.Struct):
    item: msgspec.Raw


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Tokens(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: msgspec.Raw = _EMPTY
    output_tokens_details: msgspec.Raw = _EMPTY


_tokens = msgspec.json.Decoder(_Tokens, strict=False)
_details = msgspec.json.Decoder(_Details | None, strict=False)


def decode_usage(raw: msgspec.Raw) -> Usage:
    """Return the usage: input without cached tokens, output including reasoning.

    Malformed usage counts as unknown, so that it does not lose the answer.
    """
    if not is_present(raw):
        return Usage()
    try:
        counts = _tokens.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return Usage()
    into, out = _decode_details(counts.input_tokens_details), _decode_details(counts.output_tokens_details)
    known = counts.input_tokens
    if known is not None:
        known = max(0, known - (into.cached_tokens or 0) - (into.cache_write_tokens or 0))
    return Usage(known, counts.output_tokens, into.cached_tokens, into.cache_write_tokens, out.reasoning_tokens)


_NO_DETAILS = _Details()


def _decode_details(raw: msgspec.Raw) -> _Details:
    try:
        return (_details.decode(raw) if raw else None) or _NO_DETAILS
    except (msgspec.DecodeError, RecursionError):
        return _NO_DETAILS


class _Incomplete(msgspec.Struct):
    reason: Any = None


class Response(msgspec.Struct, gc=False):
    """The response in the terminal event."""

    id: Id = None
    status: str | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None
    output: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = _EMPTY


decode_event = msgspec.json.Decoder(Event).decode
responses: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)
_items: msgspec.json.Decoder[OutputItem] = msgspec.json.Decoder(OutputItem)
_named: msgspec.json.Decoder[_ItemName] = msgspec.json.Decoder(_ItemName)
_unknown: msgspec.json.Decoder[_UnknownItem] = msgspec.json.Decoder(_UnknownItem)
_raw: msgspec.json.Decoder[_RawItem] = msgspec.json.Decoder(_RawItem)

KNOWN_ITEMS = frozenset(("message", "reasoning", "function_call", "custom_tool_call"))
"""The types of items that are decoded; others are only kept."""


def decode_item(raw: msgspec.Raw) -> OutputItem:
    """Decode an item; one of an unknown type may have fields of any type."""
    try:
        return _items.decode(raw)
    except msgspec.ValidationError:
        known = _named.decode(raw)
        if known.type in KNOWN_ITEMS:
            raise
        return OutputItem(known.type, known.id)


def decode_event_of_unknown_item(data: str | bytes) -> Event | None:
    """Decode an event whose item is of an unknown type, and so may have fields of any type; `None` for any other."""
    try:
        found = _unknown.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    name = found.item
    known = name.type in KNOWN_ITEMS
    return None if known else Event(found.type, output_index=found.output_index, item=OutputItem(name.type, name.id))


def extract_item(data: str | bytes) -> bytes:
    """Return the JSON of the item of an event."""
    return bytes(_raw.decode(data).item)


def is_present(raw: msgspec.Raw) -> bool:
    """Whether a field is present and not null."""
    return bool(raw) and raw != _NULL


def decode_type(data: str) -> str:
    """Decode only the type of an event whose other fields are malformed."""
    return _named.decode(data).type or ""


def decode_with_surrogates(data: str) -> tuple[Event, bytes, str]:
    """Decode an event with lone surrogates; also return the JSON without them, and the delta unchanged.

    The other half of a surrogate in the delta may follow.
    """
    plain: object = json.loads(data, parse_constant=_reject_constant)
    delta: object = cast(dict[str, Any], plain).get("delta") if isinstance(plain, dict) else None
    clean = encode_json(_replace_surrogates(plain))
    read = decode_event_of_unknown_item(clean) or decode_event(clean)
    return read, clean, delta if isinstance(delta, str) else ""


def _replace_surrogates(value: Any, field: str = "") -> Any:
    """Replace lone surrogates in a JSON value; in arguments they are escaped."""
    if isinstance(value, str):
        return escape_lone_surrogates(value) if field == "arguments" else replace_lone_surrogates(value)
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        if fields.get("type") == "function_call" and isinstance(fields.get("arguments"), dict):
            fields = {**fields, "arguments": encode_arguments(fields["arguments"])}
        return {replace_lone_surrogates(key): _replace_surrogates(item, key) for key, item in fields.items()}
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in cast(list[Any], value)]
    return value


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def find_whole_text(read: Event) -> str:
    """Return the whole text, refusal or arguments of an event that ends a part."""
    if read.arguments:
        value: object = msgspec.json.decode(read.arguments)
        return value if isinstance(value, str) else "" if value is None else bytes(read.arguments).decode()
    return read.text or read.refusal or ""
