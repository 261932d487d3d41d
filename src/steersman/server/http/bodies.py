"""The bodies of requests: the same as the lines of stream-json. Unknown fields are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from aiohttp import web

from steersman.server.http.problems import Problem
from steersman.tools.mcp.value_count import TOO_MANY, has_too_many_values
from steersman.types.messages import AgentMessage
from steersman.types.user_content import read_user_content

BodyT = TypeVar("BodyT", bound=msgspec.Struct)
Content = str | list[dict[str, Any]]
BODY_SECONDS: Final = 30.0
"""How long a body may take to arrive."""
BODY_TIME: Final = web.AppKey("body_time", float)
"""The same for one application."""
MAX_PARTS: Final = 10_000
"""The most messages, parts of messages and tools of one request: each is worked on while all others wait."""
ClientId: TypeAlias = Annotated[str, msgspec.Meta(max_length=1_000)]
"""An id that a client has chosen: those of runs and contexts are in each event of a run."""
MAX_SCHEMA_PARTS: Final = 6_000
"""The most lists and objects in the tools, or in the output format, of one request."""
MAX_SCHEMA_DEPTH: Final = 100
"""How deep they may be nested."""


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class NewSession(_Body, frozen=True):
    """A new session; `agent` is one of the names that the server offers."""

    agent: str | None = None
    title: str | None = None


class Say(_Body, frozen=True):
    """A message of the user. `approvals` says whether questions wait for an answer or are denied at once."""

    content: Content
    approvals: Literal["wait", "deny"] = "wait"

    def to_message(self, sender: str) -> AgentMessage:
        """The content as a message; raises `ValueError` for what cannot be read."""
        check_part_count(len(self.content) if isinstance(self.content, list) else 1)
        return read_user_content(self.content, sender)


class Steer(Say, frozen=True):
    """A message for the run that goes on; `mode` says what becomes of its tool calls."""

    mode: Literal["skip", "cancel", "wait"] | None = None


class Nothing(_Body, frozen=True):
    """No fields."""


class Resume(_Body, frozen=True):
    """Go on from where the conversation is; with `take_over` also if another process has the session."""

    approvals: Literal["wait", "deny"] = "wait"
    take_over: bool = False


class BranchAt(_Body, frozen=True):
    """Go another way from an earlier entry, by its id or its message index."""

    at: str | int
    content: Content | None = None
    tag: str | None = None


class RerunAt(_Body, frozen=True):
    """Repeat an answer, the last one by default."""

    at: str | int | None = None
    tag: str | None = None


class Decision(_Body, frozen=True):
    """The answer to a question; `id` is the `approval_id` of its event."""

    id: str
    reason: str = ""
    remember: bool = False


def check_part_count(count: int) -> None:
    """Raise `ValueError` for more messages, parts and tools than a request may have."""
    if count > MAX_PARTS:
        raise ValueError(
            f"A request has at most {MAX_PARTS:,} messages, parts of messages and tools, got {count:,}. Send fewer of "
            "them, or join short ones."
        )


def check_schemas(schemas: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ValueError` for an output format, or tools, that would take long to compile or are nested deeply."""
    parts: list[tuple[Any, int]] = [(schema, 1) for schema in schemas]
    for count, (part, depth) in enumerate(parts):
        if count > MAX_SCHEMA_PARTS or depth > MAX_SCHEMA_DEPTH:
            raise ValueError(
                f"The tools, or the output format, of a request have at most {MAX_SCHEMA_PARTS:,} lists and objects, "
                f"{MAX_SCHEMA_DEPTH} deep. Send smaller ones."
            )
        inner: list[Any] = [*cast(dict[str, Any], part).values()] if isinstance(part, dict) else part
        parts += [(item, depth + 1) for item in inner if isinstance(item, dict | list)]


async def read_body(request: web.Request, kind: type[BodyT]) -> BodyT:
    """The body of a request; raises a problem if it is malformed."""
    data = await read_bytes(request)
    check_value_count(data)
    if not data:
        data = b"{}"
    elif request.content_type != "application/json":
        raise Problem(415, f"The body must be application/json, got {request.content_type!r:.100}.")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, f"The body is not as expected: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"The body is no valid JSON: {error}.") from error


def check_value_count(data: bytes) -> None:
    """Raise a problem for JSON that would take long to decode; it is counted without decoding it."""
    if has_too_many_values(data):
        raise Problem(413, f"The body has {TOO_MANY}. Send fewer.")


async def read_bytes(request: web.Request) -> bytes:
    """The bytes of a body; raises a problem if they take too long."""
    seconds = request.app.get(BODY_TIME, BODY_SECONDS)
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError as error:
        raise Problem(408, f"The body did not arrive within {seconds:g} seconds.") from error
