"""The calls of A2A and their parameters. Fields that are not named here are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from steersman.server.fronts.json_rpc import INVALID_PARAMS, RpcError
from steersman.server.http.bodies import ClientId

ParamsT = TypeVar("ParamsT")

VERSION: Final = "1.0"
"""The version of the protocol that is spoken."""
VERSION_NOT_SUPPORTED: Final = -32009
Length: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Call(_Struct, frozen=True):
    """A request."""

    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | float | None = None
    params: Any = None


class Message(_Struct, frozen=True):
    """A message of the client."""

    message_id: Annotated[str, msgspec.Meta(min_length=1)]
    parts: list[dict[str, Any]]
    context_id: ClientId = ""
    task_id: str = ""


class Configuration(_Struct, frozen=True):
    """How a client wants its answer."""

    history_length: Length | None = None
    return_immediately: bool = False


class Send(_Struct, frozen=True):
    """The parameters of SendMessage and SendStreamingMessage."""

    message: Message
    configuration: Configuration = Configuration()


class OfTask(_Struct, frozen=True):
    """The parameters of what is about one task."""

    id: str
    history_length: Length | None = None


class Listing(_Struct, frozen=True):
    """The parameters of ListTasks."""

    context_id: str = ""
    status: str | int = ""
    page_size: int | None = None
    page_token: str = ""
    history_length: Length | None = 0
    include_artifacts: bool = False


def read_params(call: Call, kind: type[ParamsT]) -> ParamsT:
    """The parameters of a call."""
    try:
        return msgspec.convert({} if call.params is None else call.params, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"The parameters are not as expected: {error}.") from error


def read_page(token: str) -> int:
    """Where a page of a list begins."""
    if token and not token.isdecimal():
        raise RpcError(INVALID_PARAMS, f"There is no page {token!r:.100}.")
    return int(token or 0)


def check_version(asked: str | None) -> None:
    """Raise an error for another version than this one. A request that names none is one of 0.3, as A2A 3.6.2 says."""
    named = asked or "0.3"
    if named.split(".")[:2] != VERSION.split("."):
        words = f"A2A {named!r:.50}" if asked else "A2A 0.3, which a request without a version speaks,"
        raise RpcError(VERSION_NOT_SUPPORTED, f"{words} is not supported. Send the header A2A-Version: {VERSION}.")
