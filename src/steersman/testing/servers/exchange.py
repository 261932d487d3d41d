"""What passes between a client and a strict server: received requests, script entries, and their encoding."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from steersman.provider.scripted.script import TurnLike
from steersman.types.content import ToolCall
from steersman.types.errors import ErrorKind

Break: TypeAlias = Literal["end", "close", "reset", "stall"]
"""What follows the last byte: the body ends properly, the connection closes or is reset inside it, or it stalls."""

Outcome: TypeAlias = Literal["answered", "broken", "left"]
"""How an exchange went: as scripted, with the scripted fault, or the client disconnected first."""

STATUS: Mapping[ErrorKind, int] = {
    "authentication": 401,
    "quota": 402,
    "rate_limit": 429,
    "overloaded": 503,
    "context_overflow": 400,
    "invalid_request": 400,
    "refused": 400,
    "stalled": 408,
    "network": 502,
    "incomplete": 502,
    "protocol": 500,
    "internal": 500,
}
"""The HTTP status for a scripted error that names none."""

_PIECES = 4


class DeltaBytes(bytes):
    """A piece of a stream that carries a delta: `after=` in a script counts these."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response, such as an error; a body that is neither text nor bytes is sent as JSON."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Delivery:
    """A turn, or the bytes of a stream, and how it is sent.

    `at` is the number of bytes sent before `ending` happens (`None`: all of them); with `head=False` it happens before
    the response begins. `chunk` is the number of bytes per write, `pace` the seconds before each write.
    """

    turn: TurnLike | bytes
    at: int | None = None
    ending: Break = "end"
    chunk: int | None = None
    pace: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 200
    head: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """A received request; `connection` is the number of its connection, counted from 1."""

    method: str
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    json: Any
    connection: int
    outcome: Future[Outcome] = field(default_factory=Future[Outcome], repr=False)

    async def wait_for_outcome(self) -> Outcome:
        """Wait until the exchange is over on the server's side, and return how it went."""
        return await asyncio.wrap_future(self.outcome)


ScriptEntry: TypeAlias = TurnLike | bytes | Delivery | Reply
Answer: TypeAlias = ScriptEntry | Callable[[Received], ScriptEntry | Awaitable[ScriptEntry]]
"""One entry of a script: a turn, raw bytes, a delivery, a reply, or a function of the request that returns one."""


def sse(data: Any, event: str | None = None) -> bytes:
    """Encode one server-sent event; anything but text is sent as JSON."""
    text = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + text + b"\n\n"


def split_text(text: str, count: int | None = None) -> list[str]:
    """Split the text into `count` pieces of nearly equal length, none of them empty."""
    number = min(len(text), _PIECES if count is None else count)
    cuts = [len(text) * index // number for index in range(number + 1)] if number > 0 else [0]
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def encode_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as the model wrote them."""
    return msgspec.json.encode(call.arguments).decode() if call.raw_arguments is None else call.raw_arguments
