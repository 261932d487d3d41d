"""The strict servers behind the URLs and the keys of a cloud."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from steersman.testing.servers import (
    AnthropicServer,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Received,
    Reply,
)

CLASSIC = "2024-10-21"


def sign_in(received: Received) -> Received:
    """The request as OpenAI's own server would get it: an `api-key` becomes a bearer."""
    key = received.headers.get("api-key")
    if key is None or "authorization" in received.headers:
        return received
    return replace(received, headers={**received.headers, "authorization": f"Bearer {key}"})


def check_version(received: Received) -> Reply | None:
    """The classic URLs need an `api-version`, those of the v1 API refuse a dated one."""
    version = received.query.get("api-version", "")
    if received.path.startswith("/openai/v1/"):
        refused = version[:1].isdigit()
    else:
        refused = not version
    return Reply(404, {"error": {"code": "404", "message": "Resource not found"}}) if refused else None


class AzureServer(OpenAIResponsesServer):
    """The Responses API at the URLs of Azure."""

    provider = "azure"
    prefix = ""
    routes = ("/openai/v1/responses", "/openai/responses")

    def validate(self, received: Received) -> Reply | None:
        """Refuse what Azure refuses."""
        return check_version(received) or super().validate(sign_in(received))


class AzureChatServer(OpenAIChatServer):
    """Chat Completions at the URLs of Azure."""

    provider = "azure-chat"
    prefix = ""
    routes: ClassVar[tuple[str, ...]] = (
        "/openai/v1/chat/completions",
        "/openai/deployments/{deployment}/chat/completions",
    )

    def validate(self, received: Received) -> Reply | None:
        """Refuse what Azure refuses."""
        return check_version(received) or super().validate(sign_in(received))


AZURE: dict[str, Any] = {"azure": AzureServer, "azure-chat": AzureChatServer}


PLACE = "/projects/{project}/locations/{location}"


class VertexServer(GoogleServer):
    """The Gemini protocol at the URLs of Vertex AI; express mode takes a key and no project."""

    provider = "vertex"
    prefix = ""
    routes: ClassVar[tuple[str, ...]] = (
        f"/v1beta1{PLACE}/publishers/google/models/{{model}}:streamGenerateContent",
        "/v1beta1/publishers/google/models/{model}:streamGenerateContent",
    )

    def validate(self, received: Received) -> Reply | None:
        """Refuse what Vertex AI refuses."""
        given = received.headers.get("authorization", "")
        if "project" in received.params and given.startswith("Bearer "):
            headers = {**received.headers, "x-goog-api-key": given.removeprefix("Bearer ")}
            return super().validate(replace(received, headers=headers))
        if "project" in received.params or "x-goog-api-key" not in received.headers:
            return self.refusal(401, "API keys are not supported by this API. Expected OAuth2 access token.")
        return super().validate(received)


class VertexClaudeServer(AnthropicServer):
    """The Anthropic protocol at the URLs of Vertex AI: the model is in the URL, the version in the body."""

    provider = "vertex"
    prefix = ""
    routes: ClassVar[tuple[str, ...]] = (f"/v1{PLACE}/publishers/anthropic/models/{{model}}:streamRawPredict",)

    def validate(self, received: Received) -> Reply | None:
        """Refuse what Vertex AI refuses."""
        body = received.json
        if "x-api-key" in received.headers or "model" in body or "anthropic-version" in received.headers:
            return self.refusal(400, "model: Extra inputs are not permitted")
        if body.get("anthropic_version") != "vertex-2023-10-16":
            return self.refusal(400, "anthropic_version: Field required")
        plain = {name: value for name, value in body.items() if name != "anthropic_version"}
        headers = {**received.headers, "anthropic-version": "2023-06-01"}
        return super().validate(replace(received, json={**plain, "model": received.params["model"]}, headers=headers))


VERTEX: dict[str, Any] = {"gemini-3-pro-preview": VertexServer, "claude-sonnet-4-5@20250929": VertexClaudeServer}
