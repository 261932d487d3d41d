"""What the decoder of a protocol makes of bytes, however they came; no sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from steersman.provider.http.sse import EventReader, SseDecoder
from steersman.provider.wires.protocol import Wire, find_feed_all
from steersman.testing import check_stream
from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request, StreamOptions, ToolSpec
from steersman.types.stream import Done, StreamEvent

REQUEST = Request("", [user_message("Hi")])


def chunks(stream: bytes, size: int) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]


class Reading:
    """A protocol, and the model that is asked where a test names no other."""

    def __init__(self, wire: Wire, model: Model, reader: Callable[[], EventReader] = SseDecoder) -> None:
        self.wire = wire
        self.model = model
        self._reader = reader

    def read(
        self, pieces: bytes | Iterable[bytes], *, model: Model | None = None, request: Request = REQUEST
    ) -> tuple[list[StreamEvent], AssistantMessage]:
        """The events and the message of a stream that came in these pieces; raises as the decoder does."""
        reader, decoder = self._reader(), self.wire.decoder(model or self.model, request)
        events: list[StreamEvent] = []
        for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
            find_feed_all(decoder)(reader.feed(piece), events)
            if decoder.done:
                return events, decoder.finish()
        for name, data in reader.finish():
            events += decoder.feed(name, data)
        return events, decoder.finish()

    def cut(self, pieces: Iterable[bytes]) -> tuple[tuple[Any, ...], ...]:
        """The events that come with each piece, and at the end: all that the decoder sees of the pieces."""
        reader = self._reader()
        return *(tuple(reader.feed(piece)) for piece in pieces), tuple(reader.finish())

    def message_of(self, stream: bytes, **more: Any) -> AssistantMessage:
        """The message of a well-formed stream, which is what its deltas said."""
        events, message = self.read(stream, **more)
        if not message.failed:
            assert check_stream([*events, Done(message)]) is message
        return message

    def body_of(
        self,
        *messages: Any,
        model: Model | None = None,
        system: str = "",
        tools: Sequence[ToolSpec] = (),
        options: StreamOptions | None = None,
    ) -> Any:
        """The request body for these messages, parsed."""
        said = [user_message(message) if isinstance(message, str) else message for message in messages]
        request = Request(system, said, tools)
        return msgspec.json.decode(
            self.wire.request(model or self.model, request, options or StreamOptions(), "k").body
        )

    def error_of(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> ErrorInfo:
        """What a response that is no stream means; a body that is no bytes is sent as JSON."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.wire.error(self.model, status, headers or {}, content).info
