"""The OpenAI Responses API as a `Wire`: `openai:gpt-...`, and every compatible server.

Settings of a model (`get_model(..., settings={...})`):
    extra_body   more fields of the request body, which override the usual ones; `None` removes a field, `tools` are
                 added to those of the request
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from steersman.provider.wires.openai_responses.decode import OpenAIResponsesDecoder
from steersman.provider.wires.openai_responses.encode import encode_request, encode_tools, find_extra_tools
from steersman.provider.wires.openai_responses.errors import classify_response
from steersman.provider.wires.protocol import Decoder, HttpRequest
from steersman.types.errors import ProviderError
from steersman.types.model import Model, Request, StreamOptions

BASE_URL = "https://api.openai.com/v1"


class OpenAIResponsesWire:
    """Encodes requests and decodes answers of the OpenAI Responses API."""

    name = "openai"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        body, limit = encode_request(model, request, options)
        return HttpRequest(build_url(model.base_url or BASE_URL), _build_headers(model, key), body, limit)

    def decoder(self, model: Model, request: Request) -> Decoder:
        """Return a new decoder for one answer."""
        tools, extra = encode_tools(request.tools), find_extra_tools(model)
        return OpenAIResponsesDecoder(model, tools.names, tools.known | extra if extra else tools.known)

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream."""
        return classify_response(model, status, headers, body)


@lru_cache(maxsize=64)
def build_url(base: str) -> str:
    """Return the URL to post to; a base URL may be the whole URL already."""
    base = base.rstrip("/")
    return base if base.endswith("/responses") else f"{base}/responses"


def _build_headers(model: Model, key: str | None) -> dict[str, str]:
    headers = {"accept": "text/event-stream", "content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    if model.headers:
        headers.update({name.lower(): value for name, value in model.headers.items()})
    return headers


WIRE = OpenAIResponsesWire()
"""The wire; it holds no state."""
