"""Messages and events as JSON and back: one form for files, pipes and servers. What is unknown is kept, not dropped."""

from __future__ import annotations

from typing import Any, TypeAlias, cast, get_args

import msgspec

from steersman.types.content import replace_lone_surrogates
from steersman.types.events import AgentEvent, KnownEvent, UnknownEvent
from steersman.types.messages import AgentMessage, to_message
from steersman.types.stream import StreamEvent

WireValue: TypeAlias = AgentEvent | AgentMessage | StreamEvent

_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[KnownEvent] = msgspec.json.Decoder(KnownEvent)
_messages: msgspec.json.Decoder[AgentMessage] = msgspec.json.Decoder(AgentMessage)
_stream: msgspec.json.Decoder[StreamEvent] = msgspec.json.Decoder(StreamEvent)
_EVENT_TYPES = frozenset(cast(type[Any], event).type for event in get_args(KnownEvent))
_STREAM_TYPES = frozenset(cast(type[Any], event).type for event in get_args(StreamEvent))


class _Head(msgspec.Struct):
    type: str | None = None
    role: str | None = None


_heads: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)


def encode(value: WireValue) -> bytes:
    """One line of JSON without the line end."""
    plain = value.fields if type(value) is UnknownEvent else value
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:  # half a surrogate pair, as a delta may end with
        return _encoder.encode(_replace_in_nested(msgspec.to_builtins(plain)))


def decode(data: bytes | str) -> WireValue:
    """The message, event or stream event that `encode` was given; `ValueError` when it is none."""
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
        # As a person writes it: content that is a string, arguments that are still text.
        return to_message(msgspec.json.decode(data))


def _decode_unknown_event(fields: dict[str, Any]) -> UnknownEvent:
    number = fields.get("seq")
    stamp = fields.get("timestamp")
    return UnknownEvent(
        loop_id=str(fields.get("loop_id", "")),
        seq=number if isinstance(number, int) else 0,
        timestamp=float(stamp) if isinstance(stamp, int | float) else 0.0,
        fields=fields,
    )


def _replace_in_nested(value: Any) -> Any:
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {replace_lone_surrogates(key): _replace_in_nested(item) for key, item in items}
    if isinstance(value, list):
        return [_replace_in_nested(item) for item in cast(list[Any], value)]
    return value
