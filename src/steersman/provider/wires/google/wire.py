"""Gemini's `streamGenerateContent`: the provider `google`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from steersman.provider.wires.google.array import ArrayDecoder
from steersman.provider.wires.google.decode import GoogleDecoder
from steersman.provider.wires.google.encode import body_of
from steersman.provider.wires.google.errors import response_error
from steersman.provider.wires.google.tools import toolset
from steersman.provider.wires.protocol import Decoder, HttpRequest
from steersman.types.errors import ProviderError
from steersman.types.model import Model, Request, StreamOptions

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

_VERSIONED = re.compile(r"/v\d+\w*$")


class GoogleWire:
    """The protocol of the Gemini API."""

    name = "google"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """The request as bytes."""
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["x-goog-api-key"] = key
        headers |= model.headers
        body, most = body_of(model, request, options)
        return HttpRequest(address(model), headers, body, most)

    def decoder(self, model: Model, request: Request) -> Decoder:
        """A fresh decoder for one answer."""
        return GoogleDecoder(model, toolset(request.tools))

    def array(self, *, max_event_bytes: int) -> ArrayDecoder:
        """Reads the chunks of an answer that came as a JSON array, as when a proxy drops `alt=sse`."""
        return ArrayDecoder(max_event_bytes=max_event_bytes)

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What a response that is not a stream means."""
        return response_error(model, status, headers, body)


def address(model: Model) -> str:
    """Where the model is asked; a base address may leave out the version, as Google's own client does."""
    base = (model.base_url or BASE_URL).rstrip("/")
    if not _VERSIONED.search(base):
        base = f"{base}/v1beta"
    id = model.id if "/" in model.id else f"models/{model.id}"
    return f"{base}/{quote(id, safe='/@:.-_~')}:streamGenerateContent?alt=sse"


WIRE = GoogleWire()
