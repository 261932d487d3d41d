"""The strict servers behind the URLs and the keys of a cloud."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from steersman.testing.servers import OpenAIChatServer, OpenAIResponsesServer, Received, Reply

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
