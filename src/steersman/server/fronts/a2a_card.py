"""The agent card of A2A: what there is, where, and how a client proves who it is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from aiohttp import web

from steersman.server.http.api import reply
from steersman.server.sessions import Sessions

CARD: Final = "/.well-known/agent-card.json"
"""Where the agent card is."""


async def show_card(sessions: Sessions, request: web.Request) -> web.Response:
    """The agent card; it needs no token."""
    prefix = request.path.removesuffix(CARD)
    url = f"{request.scheme}://{request.host}{prefix}/a2a"
    name = next(iter(sessions.agents))
    skill = {"id": name, "name": name, "description": f"Talk to the agent {name}.", "tags": ["agent"]}
    card: dict[str, Any] = {
        "name": f"Steersman: {name}",
        "description": "An agent that answers in text and asks before it acts where it has to.",
        "version": _find_version(),
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": ["text/plain", "image/png", "image/jpeg"],
        "defaultOutputModes": ["text/plain"],
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "skills": [skill],
    }
    return reply(card)


def _find_version() -> str:
    try:
        return version("steersman")
    except PackageNotFoundError:
        return "0"
