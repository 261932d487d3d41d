"""OpenAI's models on Azure: `azure:DEPLOYMENT` over Responses, `azure-chat:DEPLOYMENT` over Chat Completions.

Without an API version, requests go to the v1 API: `{endpoint}/openai/v1/responses`. With a dated version, from
`settings={"api_version": "2024-10-21"}` or `OPENAI_API_VERSION`, they go to the classic URLs, which hold the version,
and for Chat Completions the deployment.
"""

from __future__ import annotations

import os
from dataclasses import replace
from urllib.parse import quote

from steersman.provider.http.client import http_stream
from steersman.provider.streaming.batches import BatchedStreamFn, Batches
from steersman.provider.streaming.output_tool import with_output_tool
from steersman.provider.wires.openai_chat.quirks import choose_output_mode as choose_chat_output
from steersman.provider.wires.openai_chat.wire import OpenAIChat
from steersman.provider.wires.openai_responses.schema import choose_output_mode as choose_responses_output
from steersman.provider.wires.openai_responses.wire import OpenAIResponsesWire
from steersman.provider.wires.protocol import HttpRequest, Wire
from steersman.types.errors import InvalidRequestError
from steersman.types.model import Model, Request, StreamFn, StreamOptions

_VERSION_VARIABLE = "OPENAI_API_VERSION"


class AzureResponsesWire(OpenAIResponsesWire):
    """The Responses API on Azure."""

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        url = build_url(model, "responses")
        return _address(super().request(model, request, options, None), url, key)


class AzureChatWire(OpenAIChat):
    """Chat Completions on Azure."""

    __slots__ = ()

    def request(self, model: Model, request: Request, options: StreamOptions, key: str | None) -> HttpRequest:
        """Encode the request."""
        url = build_url(model, "chat/completions")
        return _address(super().request(model, request, options, None), url, key)


def build_url(model: Model, operation: str) -> str:
    """The URL of an operation for a deployment; raises `InvalidRequestError` if there is no endpoint."""
    if not model.base_url:
        text = (
            f"No endpoint for {model.name!r}. Set AZURE_OPENAI_ENDPOINT, such as "
            "https://NAME.openai.azure.com, or give base_url=..."
        )
        raise InvalidRequestError(text, provider=model.provider)
    base, mark, query = model.base_url.partition("?")
    base = base.rstrip("/").removesuffix(f"/{operation}")
    version = str(model.settings.get("api_version") or "")
    dated = version[:1].isdigit()
    if base.endswith("/v1") or "/deployments/" in base:
        version = "" if dated and base.endswith("/v1") else version
    else:
        base = base if base.endswith("/openai") else f"{base}/openai"
        if not dated:
            base = f"{base}/v1"
        elif operation != "responses":
            base = f"{base}/deployments/{quote(model.id, safe='')}"
    if version and "api-version=" not in query:
        query = f"{query}{'&' if query else ''}api-version={quote(version)}"
        mark = "?"
    return f"{base}/{operation}{mark}{query}"


def _address(call: HttpRequest, url: str, key: str | None) -> HttpRequest:
    """The request with its URL and its key; headers of the model that name a key stay."""
    headers = dict(call.headers)
    if key is not None and not {"api-key", "authorization"} & {name.lower() for name in headers}:
        # A token of Entra ID is a JSON Web Token, with dots between its parts; no API key has one.
        name, value = ("authorization", f"Bearer {key}") if "." in key else ("api-key", key)
        headers[name] = value
    return HttpRequest(url, headers, call.body, call.max_tokens)


def stream_azure() -> StreamFn:
    """The `StreamFn` of the provider `azure`."""
    return with_output_tool(_stream(AzureResponsesWire()), choose_responses_output)


def stream_azure_chat() -> StreamFn:
    """The `StreamFn` of the provider `azure-chat`."""
    return with_output_tool(_stream(AzureChatWire()), choose_chat_output)


def _stream(wire: Wire) -> BatchedStreamFn:
    source = http_stream(wire)

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Batches:
        return source.batches(_add_version(model), request, options)

    return BatchedStreamFn(stream)


def _add_version(model: Model) -> Model:
    """The model with the API version of the environment, if it has none of its own."""
    version = os.environ.get(_VERSION_VARIABLE, "").strip()
    if not version or "api_version" in model.settings:
        return model
    return replace(model, settings={**model.settings, "api_version": version})
