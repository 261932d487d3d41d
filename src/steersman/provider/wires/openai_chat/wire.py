"""OpenAI Chat Completions, which nearly every model server speaks in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from steersman.provider.wires.openai_chat.decode import ChatDecoder
from steersman.provider.wires.openai_chat.encode import body_of, tool_set
from steersman.provider.wires.openai_chat.errors import response_error
from steersman.provider.wires.openai_chat.quirks import OPENAI_URL, PRESETS, quirks_of
from steersman.provider.wires.protocol import HttpRequest
from steersman.types.errors import ProviderError
from steersman.types.model import Model, Request, StreamOptions


class OpenAIChat:
    """The protocol; the model's provider and settings tell how its server departs from it."""

    __slots__ = ()

    name = "openai-chat"

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """The request as bytes; a local server may need no key."""
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        headers.update(model.headers)
        body, most = body_of(model, request, options, quirks_of(model), tool_set(request.tools))
        return HttpRequest(_address(_base(model)), headers, body, most)

    def decoder(self, model: Model, request: Request) -> ChatDecoder:
        """A fresh decoder for one answer."""
        return ChatDecoder(model, quirks_of(model), tool_set(request.tools))

    def error(self, model: Model, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What a response that is not a stream means."""
        return response_error(model, status, headers, body)


WIRE = OpenAIChat()


def _base(model: Model) -> str:
    if model.base_url:
        return model.base_url
    preset = PRESETS.get(model.provider)
    return OPENAI_URL if preset is None else preset.base_url


@lru_cache(maxsize=64)
def _address(base: str) -> str:
    """Where to post: a base address may have a query, or be the whole address already."""
    path, mark, query = base.partition("?")
    path = path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path = f"{path}/chat/completions"
    return f"{path}{mark}{query}"
