"""What a wire protocol is: a way to write a request and a way to read its answer. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from steersman.types.errors import ProviderError
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import StreamEvent

T = TypeVar("T")
Result = TypeVar("Result")

_MOST = 1024


def memoize_by_identity(work_out: Callable[[T], Result]) -> Callable[[T], Result]:
    """The same function of an object that never changes; it is asked once for each."""
    known: dict[int, tuple[T, Result]] = {}

    def of(thing: T) -> Result:
        found = known.get(id(thing))
        # Kept beside its result, a thing stays alive, and no other can come to have its identity.
        if found is not None:
            return found[1]
        result = work_out(thing)
        if len(known) >= _MOST:
            known.clear()
        known[id(thing)] = (thing, result)
        return result

    return of


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST, ready to send; `headers` hold the key and are never shown.

    `max_tokens` is how many tokens it lets the model write, where it says so.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    max_tokens: int | None = None


class Decoder(Protocol):
    """Reads one answer, event by event."""

    @property
    def done(self) -> bool:
        """Whether the terminal event has come: nothing after it matters, and nobody waits for the end of the stream."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the answer is whole, though its terminal event may still follow: `finish` would give it."""
        ...

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        """What one server-sent event means; raises a `ProviderError` for an error event or something unreadable.

        `event` is the event's name, "" where the server gave none. Never gives `Done`: that is `finish`.
        """
        ...

    def finish(self) -> AssistantMessage:
        """The whole answer, after the terminal event or at a clean end of the stream.

        Raises `IncompleteStreamError` when the answer is not complete.
        """
        ...


def feed_all(decoder: Decoder, events: Sequence[tuple[str, str]], out: list[StreamEvent]) -> None:
    """Feed events up to the terminal one, and add what they mean to `out`; a decoder may have a quicker way."""
    quicker: Callable[[Any, Any], None] | None = getattr(decoder, "feed_all", None)
    if quicker is not None:
        return quicker(events, out)
    for name, data in events:
        out += decoder.feed(name, data)
        if decoder.done:
            return None
    return None


class Wire(Protocol):
    """A protocol such as Anthropic Messages."""

    name: str

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """The request as bytes; what was encoded for an earlier turn of the same conversation is not encoded again."""
        ...

    def decoder(self, model: Model, request: Request) -> Decoder:
        """A fresh decoder for one answer; the request tells which names were sanitised."""
        ...

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What a response that is not a stream means: an HTTP error, a JSON error inside a 200, a page of HTML."""
        ...
