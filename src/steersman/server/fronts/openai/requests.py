"""The bodies that clients of OpenAI's APIs send. Fields that are not named here are ignored."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from steersman.server.fronts.openai.client_tools import list_functions
from steersman.server.fronts.openai.formats import read_schema
from steersman.server.http.access import current_user
from steersman.server.http.bodies import check_part_count, check_schemas
from steersman.server.http.problems import Problem
from steersman.server.live import Approvals, LiveSession
from steersman.server.sessions import Sessions

LONGEST_KEY: Final = 200
"""The most characters of an idempotency key."""


class _Body(msgspec.Struct, frozen=True):
    model: str | None = None
    stream: bool | None = False
    tools: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None
    temperature: float | None = None
    tool_choice: str | dict[str, Any] | None = None
    given_approvals: Approvals | None = msgspec.field(default=None, name="approvals")

    @property
    def approvals(self) -> Approvals:
        """Whether questions wait for an answer from elsewhere, or are denied at once."""
        if self.given_approvals is not None:
            return self.given_approvals
        return "deny" if (self.metadata or {}).get("approvals") == "deny" else "wait"

    def list_tools(self) -> list[dict[str, Any]]:
        """The functions of the client that the agent may call; raises a problem for a choice that cannot be made."""
        check_part_count(len(self.tools or ()))
        check_schemas(self.tools or ())
        functions = list_functions(self.tools or [])
        if self.tool_choice in (None, "auto"):
            return functions
        if self.tool_choice == "none":
            return []
        raise Problem(
            400,
            f"tool_choice is 'auto' or 'none' here, got {self.tool_choice!r:.100}: which tools an agent uses is up to "
            "it. Leave it out, or declare only the function that you want to be called.",
        )


class ResponseBody(_Body, frozen=True):
    """The body of `POST /v1/responses`."""

    input: str | list[dict[str, Any]] = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    max_output_tokens: int | None = None
    background: bool | None = False
    text: dict[str, Any] | None = None

    def read_schema(self) -> dict[str, Any] | None:
        """The schema of the output; raises a problem for a format that cannot be promised."""
        return read_schema("text.format", (self.text or {}).get("format"))

    @property
    def conversation_id(self) -> str | None:
        """The name of the conversation."""
        given = self.conversation
        return str(given.get("id", "")) if isinstance(given, dict) else given


class ChatBody(_Body, frozen=True):
    """The body of `POST /v1/chat/completions`."""

    messages: list[dict[str, Any]] = []
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream_options: dict[str, Any] | None = None
    n: int | None = 1
    response_format: dict[str, Any] | None = None

    def read_schema(self) -> dict[str, Any] | None:
        """The schema of the output; raises a problem for a format that cannot be promised."""
        return read_schema("response_format", self.response_format)


def choose_agent(sessions: Sessions, model: str | None) -> str:
    """The agent that a client means by a model: of several, one by its name; an only one, by any name."""
    names = list(sessions.agents)
    if model in sessions.agents:
        return str(model)
    if model and len(names) > 1:
        raise Problem(404, f"There is no model {model!r:.100}. Models here: {', '.join(map(repr, names))}.")
    return names[0]


def read_time() -> int:
    """Now, as OpenAI's objects say when they were made."""
    return int(time.time())


def make_token(request: web.Request) -> str:
    """The part of an id that is new for each request, and the same for the same idempotency key."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not 0 < len(key) <= LONGEST_KEY:
        raise Problem(400, f"An Idempotency-Key has 1 to {LONGEST_KEY} characters, got {len(key)}.")
    return secrets.token_hex(12) if key is None else hashlib.sha256(key.encode()).hexdigest()[:24]


async def open_fresh(sessions: Sessions, request: web.Request, agent: str, name: str) -> LiveSession:
    """A session of its own for a request; the one of this name for one with an idempotency key."""
    user = current_user.get()
    if "Idempotency-Key" not in request.headers:
        return await sessions.create(user, agent)
    return await sessions.open_named(user, name, agent)


def check_outputs(expected: Sequence[str], outputs: Mapping[str, str]) -> None:
    """Raise a problem unless each call that waits for the client has its result."""
    for id in expected:
        if id not in outputs:
            raise Problem(400, f"There is no tool output for the function call {id!r}: the run waits for it.")
