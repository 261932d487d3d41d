"""The Converse API of Amazon Bedrock as a `Wire`, for the models of all makers.

Settings of a model (`get_model(..., settings={...})`):
    base_model   the foundation model behind an ARN that does not name it, such as "anthropic.claude-sonnet-4-5"
    cache        False for no cache points; "5m" or "1h": how long the prompt cache lives; on for Claude and Nova
    thinking     Claude's own `thinking` object, instead of the one made from the thinking level
    extra_body   more fields of the request, such as `guardrailConfig`; objects are merged with ours
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from steersman.provider.wires.bedrock.decode import BedrockDecoder
from steersman.provider.wires.bedrock.encode import encode_request, encode_tools
from steersman.provider.wires.bedrock.errors import classify_response
from steersman.provider.wires.bedrock.frames import CONTENT_TYPE, FrameDecoder, has_prelude
from steersman.provider.wires.protocol import Decoder, HttpRequest
from steersman.types.errors import ProviderError
from steersman.types.model import Model, Request, StreamOptions


class BedrockWire:
    """Encodes requests and decodes answers of the Converse API; the key is a bearer token."""

    name = "bedrock"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        body, limit = encode_request(model, request, options)
        headers = {"accept": CONTENT_TYPE, "content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        headers.update({name.lower(): value for name, value in model.headers.items()})
        return HttpRequest(build_url(model), headers, body, limit)

    def decoder(self, model: Model, request: Request) -> Decoder:
        """Return a new decoder for one answer."""
        return BedrockDecoder(model, encode_tools(request.tools).names)

    def select_reader(self, content_type: str, first: bytes, *, max_event_bytes: int) -> FrameDecoder | None:
        """Return a decoder for the binary framing, if the answer has it."""
        kind = content_type.partition(";")[0].strip().lower()
        return FrameDecoder(max_event_bytes=max_event_bytes) if kind == CONTENT_TYPE or has_prelude(first) else None

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream."""
        return classify_response(model, status, headers, body)


def build_url(model: Model) -> str:
    """Return the URL to post to; colons and slashes in the id of a model are percent-encoded."""
    base = (model.base_url or "").rstrip("/")
    return f"{base}/model/{quote(model.id, safe='')}/converse-stream"


WIRE = BedrockWire()
