"""What an editor sends: the blocks of a prompt, and the parameters of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from steersman.server.fronts.json_rpc import INVALID_PARAMS, RpcError
from steersman.types.messages import AgentMessage
from steersman.types.user_content import read_user_content


class NamedValue(msgspec.Struct, frozen=True):
    """An environment variable or a header."""

    name: str
    value: str


class ServerOfClient(msgspec.Struct, frozen=True):
    """An MCP server that the client wants the session to have."""

    name: str
    type: str = "stdio"
    command: str = ""
    args: list[str] = []
    env: list[NamedValue] = []
    url: str = ""
    headers: list[NamedValue] = []


class _Params(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Initialize(_Params, frozen=True, rename="camel"):
    """The first request."""

    protocol_version: int


class NewSession(_Params, frozen=True, rename="camel"):
    """A new session in a folder."""

    cwd: str
    mcp_servers: list[ServerOfClient] = []


class OldSession(_Params, frozen=True, rename="camel"):
    """A session to load, resume or fork."""

    session_id: str
    cwd: str
    mcp_servers: list[ServerOfClient] = []


class OneSession(_Params, frozen=True, rename="camel"):
    """An open session."""

    session_id: str


class ListSessions(_Params, frozen=True, rename="camel"):
    """Which sessions to list."""

    cwd: str | None = None
    cursor: str | None = None


class SetMode(_Params, frozen=True, rename="camel"):
    """Another mode."""

    session_id: str
    mode_id: str


class SetOption(_Params, frozen=True, rename="camel"):
    """Another value of an option."""

    session_id: str
    config_id: str
    value: str | bool


class Prompt(_Params, frozen=True, rename="camel"):
    """A message of the user."""

    session_id: str
    prompt: list[dict[str, Any]]


def read_prompt(blocks: Sequence[Mapping[str, Any]]) -> AgentMessage:
    """The blocks of a prompt as a message; raises `RpcError` for what cannot be sent to a model."""
    try:
        return read_user_content([_read_block(block) for block in blocks], "prompt")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RpcError(INVALID_PARAMS, f"The prompt cannot be read: {error}.") from error


def _read_block(block: Mapping[str, Any]) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": block["text"]}
        case "image":
            return {"type": "image", "data": block["data"], "mime_type": block["mimeType"]}
        case "resource_link":
            return {"type": "text", "text": f"[{block['name']}]({block['uri']})"}
        case "resource":
            return _read_resource(block["resource"])
        case kind:
            raise ValueError(f"a block of type {kind!r:.50} is not supported; send text, images or resources")


def _read_resource(resource: Mapping[str, Any]) -> dict[str, Any]:
    uri = str(resource["uri"])
    if isinstance(text := resource.get("text"), str):
        return {"type": "text", "text": f'<resource uri="{uri}">\n{text}\n</resource>'}
    kind = str(resource.get("mimeType") or "")
    if kind.startswith("image/"):
        return {"type": "image", "data": resource["blob"], "mime_type": kind}
    return {"type": "text", "text": f"[{uri}: content of type {kind or 'unknown'}, which is left out]"}
