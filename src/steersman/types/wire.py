"""JSON encoding and decoding of messages and events, for files, pipes and servers. Unknown events are kept."""

from __future__ import annotations

from typing import Any, TypeAlias, cast, get_args

import msgspec

from steersman.types.content import replace_surrogates_in_json
from steersman.types.events import AgentEvent, UnknownEvent
from steersman.types.message_dicts import message_from_dict
from steersman.types.messages import AgentMessage, PartialMessage
from steersman.types.stream import StreamEvent

WireValue: TypeAlias = AgentEvent | UnknownEvent | AgentMessage | StreamEvent

_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[AgentEvent] = msgspec.json.Decoder(AgentEvent)
_messages: msgspec.json.Decoder[AgentMessage] = msgspec.json.Decoder(AgentMessage)
_partials: msgspec.json.Decoder[PartialMessage] = msgspec.json.Decoder(PartialMessage)
_stream: msgspec.json.Decoder[StreamEvent] = msgspec.json.Decoder(StreamEvent)
_EVENT_TYPES = frozenset(cast(type[Any], event).type for event in get_args(AgentEvent))
_STREAM_TYPES = frozenset(cast(type[Any], event).type for event in get_args(StreamEvent))


class _Head(msgspec.Struct):
    type: str | None = None
    role: str | None = None


_heads: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)


def encode(value: WireValue) -> bytes:
    """Encode a message or an event as one line of JSON, without the line end."""
    plain = value.fields if type(value) is UnknownEvent else value
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:  # a lone surrogate, such as a delta may end with
        return _encoder.encode(replace_surrogates_in_json(msgspec.to_builtins(plain)))


def decode(data: bytes | str) -> WireValue:
    """Decode a message, event or stream event that `encode` wrote; raise `ValueError` for anything else."""
    try:
        head = _heads.decode(data)
        if head.type is None and head.role is not None:
            return _decode_message(data)
        if head.type in _STREAM_TYPES:
            return _stream.decode(data)
        if head.type in _EVENT_TYPES:
            return _events.decode(data)
        if head.type is not None:
            return _decode_unknown_event(msgspec.json.decode(data))
    except msgspec.DecodeError as error:
        raise ValueError(f"Not a message or an event: {error}.") from error
    raise ValueError("Not a message or an event: it has neither 'role' nor 'type'.")


def _decode_message(data: bytes | str) -> AgentMessage:
    try:
        return _messages.decode(data)
    except msgspec.ValidationError:
        plain = msgspec.json.decode(data)
        if plain["role"] == "assistant" and plain.get("stop_reason", "") is None:
            return _partials.decode(data)
        # Written by hand: the content may be a string, and arguments may still be text.
        return message_from_dict(plain, strict=False)


def _decode_unknown_event(fields: dict[str, Any]) -> UnknownEvent:
    number = fields.get("seq")
    stamp = fields.get("timestamp")
    return UnknownEvent(
        loop_id=str(fields.get("loop_id", "")),
        seq=number if isinstance(number, int) else 0,
        timestamp=float(stamp) if isinstance(stamp, int | float) else 0.0,
        fields=fields,
    )
