"""What passes between a client and a strict server: requests as they came, answers as they are scripted and sent."""

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
"""What follows the last byte: the body ends properly, the connection closes inside it, is reset, or falls silent."""

Outcome: TypeAlias = Literal["answered", "broken", "left"]
"""How an exchange went: as scripted, with the scripted fault, or the client went away first."""

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
"""The status with which a scripted error is answered, unless it names its own."""

_PIECES = 4


class DeltaBytes(bytes):
    """A piece of a stream that shows a delta: `after=` in a script counts these."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response: an error, or what is not a stream at all; a body other than text or bytes is sent as JSON."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Delivery:
    """A turn, or the very bytes of a stream, and how it is sent.

    `at` is the number of bytes sent before `ending` happens (all of them where `None`); `head=False` lets it happen
    before the response begins. `chunk` is the number of bytes a write, `pace` the seconds before each write.
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
    """A request as it came; `connection` tells which of the connections, counted from 1, it came on."""

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
        """How the exchange went, once it is over on the server's side."""
        return await asyncio.wrap_future(self.outcome)


ScriptEntry: TypeAlias = TurnLike | bytes | Delivery | Reply
Answer: TypeAlias = ScriptEntry | Callable[[Received], ScriptEntry | Awaitable[ScriptEntry]]
"""One entry of a script: a turn, raw bytes, a delivery, a reply, or a function of the request that gives one."""


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event; anything but text is sent as JSON."""
    text = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + text + b"\n\n"


def split_text(text: str, count: int | None = None) -> list[str]:
    """The text in `count` pieces of nearly equal length, none of them empty."""
    number = min(len(text), _PIECES if count is None else count)
    cuts = [len(text) * index // number for index in range(number + 1)] if number > 0 else [0]
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def encode_arguments(call: ToolCall) -> str:
    """A call's arguments as the model wrote them."""
    return msgspec.json.encode(call.arguments).decode() if call.raw_arguments is None else call.raw_arguments
