"""The interface of a wire protocol: it encodes a request and decodes the answer. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from steersman.types.errors import ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import StreamEvent


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST request, ready to send; `headers` hold the key and never appear in `repr`.

    `max_tokens` is the limit on output tokens that the body sets, if it sets one.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    max_tokens: int | None = None


class Decoder(Protocol):
    """Decodes one answer, event by event."""

    @property
    def done(self) -> bool:
        """Whether the terminal event has arrived; the rest of the stream is not read."""
        ...

    @property
    def complete(self) -> bool:
        """Whether `finish` would return the answer; the terminal event may still be missing."""
        ...

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """Decode one server-sent event; raises a `ProviderError` for an error event or malformed data.

        `event` is the name of the event, "" if the server sent none. Never returns `Done`: `finish` builds the message.
        """
        ...

    def finish(self) -> AssistantMessage:
        """Return the whole answer, after the terminal event or at a clean end of the stream.

        Raises `IncompleteStreamError` when the answer is not complete.
        """
        ...


def feed_all(decoder: Decoder, events: Sequence[tuple[str, str]], out: list[StreamEvent]) -> None:
    """Feed events up to the terminal one and append the results to `out`; a decoder may have a faster `feed_all`."""
    faster: Callable[[Any, Any], None] | None = getattr(decoder, "feed_all", None)
    if faster is not None:
        return faster(events, out)
    for name, data in events:
        out += decoder.feed(name, data)
        if decoder.done:
            return None
    return None


class Wire(Protocol):
    """A protocol such as Anthropic Messages."""

    name: str

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request; messages encoded for an earlier turn of the same conversation are not encoded again."""
        ...

    def decoder(self, model: Model, request: Request) -> Decoder:
        """Return a new decoder for one answer; the request says which tool names were changed for the provider."""
        ...

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream: an HTTP error, a JSON error with status 200, an HTML page."""
        ...
