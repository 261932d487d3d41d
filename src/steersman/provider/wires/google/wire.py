"""Gemini's `streamGenerateContent` as a `Wire`: the provider `google`.

The answer is server-sent events, or one JSON array where a proxy drops `alt=sse`: `ArrayDecoder` reads that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from steersman.provider.http.sse import MAX_EVENT_BYTES, Event
from steersman.provider.wires.google.decode import GoogleDecoder
from steersman.provider.wires.google.encode import encode_request
from steersman.provider.wires.google.errors import classify_response
from steersman.provider.wires.google.tools import encode_tools
from steersman.provider.wires.protocol import Decoder, HttpRequest
from steersman.types.errors import ProtocolError, ProviderError
from steersman.types.model import Model, Request, StreamOptions

_MARK = re.compile(rb'"|\\.|[{}]', re.DOTALL)
_BLANK = b" \t\r\n\xef\xbb\xbf"
_QUOTE, _OPEN = ord('"'), ord("{")


class ArrayDecoder:
    """Splits a JSON array into its objects, each as soon as it is complete; used like an `SseDecoder`."""

    __slots__ = ("_at", "_begin", "_depth", "_kept", "_max", "_quoted")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._kept = bytearray()
        self._at = 0
        self._begin = 0
        self._depth = 0
        self._quoted = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the elements that these bytes complete."""
        kept = self._kept
        kept += chunk
        events: list[Event] = []
        for found in _MARK.finditer(kept, self._at):
            self._at = found.end()
            mark = kept[found.start()]
            if mark == _QUOTE:
                self._quoted = not self._quoted
            elif not self._quoted and self._at - found.start() == 1:
                if mark == _OPEN:
                    self._depth += 1
                    if self._depth == 1:
                        self._begin = found.start()
                else:
                    self._depth -= 1
                    if self._depth == 0:
                        events.append(("", kept[self._begin : self._at].decode("utf-8", "replace")))
        self._drop_decoded()
        return events

    def finish(self) -> list[Event]:
        """Return nothing: a truncated element is dropped."""
        return []

    def _drop_decoded(self) -> None:
        """Drop the decoded bytes; an incomplete escape at the end is scanned again."""
        kept = self._kept
        self._at = max(self._at, len(kept) - 1 if kept.endswith(b"\\") else len(kept))
        gone = self._begin if self._depth else self._at
        del kept[:gone]
        self._at -= gone
        self._begin = 0
        if len(kept) > self._max:
            raise ProtocolError(f"The server sent an element of more than {self._max:,} bytes.")


BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

_VERSIONED = re.compile(r"/v\d+\w*$")


class GoogleWire:
    """Encodes requests and decodes answers of the Gemini API."""

    name = "google"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["x-goog-api-key"] = key
        headers |= model.headers
        body, limit = encode_request(model, request, options)
        return HttpRequest(_build_url(model.base_url or BASE_URL, model.id), headers, body, limit)

    def decoder(self, model: Model, request: Request) -> Decoder:
        """Return a new decoder for one answer."""
        return GoogleDecoder(model, encode_tools(request.tools))

    def select_reader(self, content_type: str, first: bytes, *, max_event_bytes: int) -> ArrayDecoder | None:
        """Return a decoder for an answer that comes as a JSON array instead of server-sent events."""
        del content_type
        array = first.lstrip(_BLANK).startswith(b"[")
        return ArrayDecoder(max_event_bytes=max_event_bytes) if array else None

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream."""
        return classify_response(model, status, headers, body)


def build_url(model: Model) -> str:
    """Return the URL for a model; the base URL may leave out the API version, as in Google's own client."""
    return _build_url(model.base_url or BASE_URL, model.id)


@lru_cache(maxsize=64)
def _build_url(base: str, id: str) -> str:
    base = base.rstrip("/")
    if not _VERSIONED.search(base):
        base = f"{base}/v1beta"
    id = id if "/" in id else f"models/{id}"
    return f"{base}/{quote(id, safe='/@:.-_~')}:streamGenerateContent?alt=sse"


WIRE = GoogleWire()
