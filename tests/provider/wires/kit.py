"""The smallest protocol there is, for tests of what all protocols share: `{"t": text}` events, then `[DONE]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from steersman.provider.http.client import http_stream
from steersman.provider.scripted.script import Turn
from steersman.provider.streaming.batches import Batch
from steersman.provider.streaming.normalize import deliver_deltas, stream_batches
from steersman.provider.wires.protocol import HttpRequest
from steersman.provider.wires.retry_after import classify_status
from steersman.testing.servers.base import DeltaBytes, Received, Reply, StrictServer, split_text, sse
from steersman.types.content import TextContent
from steersman.types.errors import (
    EXCEPTIONS,
    ErrorInfo,
    IncompleteStreamError,
    OverloadedError,
    ProtocolError,
    ProviderError,
)
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import StreamEvent, TextDelta, TextEnd, TextStart


class PlainDecoder:
    """Reads `{"t": text}`, `{"error": words}`, `ping` and `[DONE]`."""

    def __init__(self, model: Model) -> None:
        self.done = False
        self._model = model
        self._parts: list[str] = []

    @property
    def complete(self) -> bool:
        """Only with its terminal event."""
        return self.done

    def feed(self, event: str, data: str) -> Sequence[StreamEvent]:
        if event == "ping":
            return ()
        if data == "[DONE]":
            self.done = True
            return [TextEnd()] if self._parts else ()
        try:
            fields: dict[str, str] = msgspec.json.decode(data, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise ProtocolError(f"Not a plain event: {data[:80]!r}") from error
        if "error" in fields:
            raise OverloadedError(fields["error"])
        self._parts.append(fields["t"])
        delta = TextDelta(fields["t"])
        return [delta] if len(self._parts) > 1 else [TextStart(), delta]

    def finish(self) -> AssistantMessage:
        if not self.done:
            raise IncompleteStreamError("The stream ended before [DONE].")
        model = self._model
        return AssistantMessage([TextContent("".join(self._parts))], model=model.id, provider=model.provider)


class PlainWire:
    """A `Wire`."""

    name = "plain"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        body = msgspec.json.encode({"text": [message.text for message in request.messages]})
        return HttpRequest(f"{model.base_url}/ask", headers, body)

    def decoder(self, model: Model, request: Request) -> PlainDecoder:
        return PlainDecoder(model)

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        text = body.decode("utf-8", "replace")
        if status < 400 and b"error" not in body:
            return ProtocolError(f"Not a stream: {text[:40]}", body=text)
        return EXCEPTIONS[classify_status(status if status >= 400 else 503)](
            f"{status}: {text}", status=status, body=text
        )


class PlainServer(StrictServer):
    """A server of the protocol."""

    provider = "plain"
    routes = ("/v1/ask",)
    prefix = "/v1"

    def validate(self, received: Received) -> Reply | None:
        if self.key is not None and received.headers.get("authorization") != f"Bearer {self.key}":
            return self.refusal(401, f"wrong key {received.headers.get('authorization')}")
        return None

    def render(self, turn: Turn, received: Received) -> Iterable[bytes]:
        for block in turn.blocks:
            assert isinstance(block, TextContent)
            for piece in split_text(block.text, turn.deltas):
                yield DeltaBytes(sse({"t": piece}))

    def render_end(self, turn: Turn, received: Received) -> Iterable[bytes]:
        yield sse("[DONE]")

    def build_error_body(self, status: int, message: str, code: str | None = None) -> Any:
        return {"error": message}

    def render_error(self, info: ErrorInfo) -> bytes:
        return sse({"error": info.message})

    def build_headers(self, received: Received) -> Mapping[str, str]:
        return {"x-request-id": "req-7"}


stream = http_stream(PlainWire())
ASKED = Request("", [user_message("Hello?")])


async def collect_events(stream_fn: StreamFn, model: Model, request: Request = ASKED) -> list[StreamEvent]:
    """All events of an answer, read as a run reads them: it takes the deltas as they arrive."""
    batches = stream_batches(stream_fn, model, request, StreamOptions())
    events: list[StreamEvent] = []

    def take(batch: Batch) -> int:
        events.extend(batch)
        return len(batch)

    deliver_deltas(batches, take)
    async with aclosing(batches):
        async for batch in batches:
            events += batch
    return events
