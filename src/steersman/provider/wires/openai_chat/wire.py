"""OpenAI Chat Completions as a `Wire`; nearly every model server implements it, each with its own quirks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from steersman.provider.wires.openai_chat.blocks import Blocks
from steersman.provider.wires.openai_chat.decode import OpenAIChatDecoder
from steersman.provider.wires.openai_chat.encode import encode_request, encode_tools
from steersman.provider.wires.openai_chat.errors import classify_response
from steersman.provider.wires.openai_chat.quirks import CHAT_PRESETS, OPENAI_URL, find_quirks
from steersman.provider.wires.openai_chat.thinking import TagSplitter
from steersman.provider.wires.protocol import HttpRequest
from steersman.types.errors import ProviderError
from steersman.types.model import Model, Request, StreamOptions


class OpenAIChat:
    """Encodes requests and decodes answers; the model's provider and settings select the quirks of its server."""

    __slots__ = ()

    name = "openai-chat"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request; a local server may need no key."""
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        headers.update(model.headers)
        body, limit = encode_request(model, request, options, find_quirks(model), encode_tools(request.tools))
        return HttpRequest(build_url(_find_base_url(model)), headers, body, limit)

    def decoder(self, model: Model, request: Request) -> OpenAIChatDecoder:
        """Return a new decoder for one answer."""
        quirks = find_quirks(model)
        tags = TagSplitter() if quirks.think_tags else None
        return OpenAIChatDecoder(model, quirks, Blocks(encode_tools(request.tools), tags))

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Classify a response that is not a stream."""
        return classify_response(model, status, headers, body)


WIRE = OpenAIChat()


def _find_base_url(model: Model) -> str:
    if model.base_url:
        return model.base_url
    preset = CHAT_PRESETS.get(model.provider)
    return OPENAI_URL if preset is None else preset.base_url


@lru_cache(maxsize=64)
def build_url(base: str) -> str:
    """Return the URL to post to; a base URL may have a query, or be the whole URL already."""
    path, mark, query = base.partition("?")
    path = path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path = f"{path}/chat/completions"
    return f"{path}{mark}{query}"
