"""A server's process as a transport of the SDK: one JSON message a line, and what is no message is passed over.

An answer that cannot be read is a failed one: whoever waits for it hears so at once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.process import ServerProcess
from steersman.tools.mcp.spec import HttpServer

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams


# A server may print a greeting, or the log of a library it uses; one that prints nothing else does not speak MCP.
_MAX_STRAY_LINES = 1_000

UNREADABLE = "its answer is not as MCP has it"
"""How the error begins that stands in for an answer nobody can read."""

_CONNECT_SECONDS = 30.0
_EVENTS = "text/event-stream"
_MAX_END_LENGTH = 400
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*(?P<id>-?[0-9]{1,15}|"[^"\\]{0,100}")'
_ANSWER = rb'"(?:result|error)"\s*:'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:%b\s*,\s*)?%b\s*,\s*(?:%b\s*,\s*)?%b" % (_VERSION, _ID, _VERSION, _ANSWER))
_ANSWER_FIRST = re.compile(rb"\s*\{\s*(?:%b\s*,\s*)?%b" % (_VERSION, _ANSWER))
_ID_LAST = re.compile(rb"%b\s*(?:,\s*%b\s*)?\}\s*\Z" % (_ID, _VERSION))

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectReceiveStream[SessionMessage]


@asynccontextmanager
async def stdio_transport(start: Callable[[], Awaitable[ServerProcess]]) -> AsyncGenerator[TransportStreams, None]:
    """Read and write streams over a process that is started here, and stopped at the end, however the end comes."""
    process = await start()
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process, incoming)
            tasks.start_soon(_write_messages, process, outgoing)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()
    finally:
        for stream in (incoming, read, write, outgoing):
            stream.close()
        # Even where the session was cancelled its process must not outlive it; stopping it takes a bounded time.
        with anyio.CancelScope(shield=True):
            await process.stop()


async def _read_messages(process: ServerProcess, incoming: Incoming) -> None:
    stray = 0
    # Closed at the end: whoever waits for an answer then hears at once that there will be none.
    async with incoming:
        while (line := await process.read_line()) is not None:
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError as error:
                unreadable = _make_error_for(line, error)
                if unreadable is None:
                    stray += 1
                    if stray > _MAX_STRAY_LINES:
                        process.fail("it writes other things than MCP messages to its output")
                    continue
                message = unreadable
            stray = 0
            try:
                await incoming.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def _make_error_for(line: bytes, error: ValueError) -> JSONRPCError | None:
    """An error in place of an answer that cannot be read, so that nobody waits for it; `None` for what is no answer.

    Only the ends of the line are looked at: in its midst, anything may look like an id.
    """
    match = _ID_FIRST.match(line[:_MAX_END_LENGTH]) or (
        _ID_LAST.search(line[-_MAX_END_LENGTH:]) if _ANSWER_FIRST.match(line[:_MAX_END_LENGTH]) else None
    )
    if match is None or b'"jsonrpc"' not in line[:_MAX_END_LENGTH] + line[-_MAX_END_LENGTH:]:
        return None
    id = match["id"].decode("ascii", "replace")
    found = id.strip('"') if id.startswith('"') else int(id)
    details = error.errors(include_url=False, include_input=False) if isinstance(error, ValidationError) else []
    why = f" ({details[0]['msg']})" if details and details[0]["type"] == "json_invalid" else ""
    return JSONRPCError(jsonrpc="2.0", id=found, error=ErrorData(code=PARSE_ERROR, message=f"{UNREADABLE}{why}"))


async def _write_messages(process: ServerProcess, outgoing: Outgoing) -> None:
    async with outgoing:
        async for item in outgoing:
            process.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


class TooLarge(httpx2.StreamError):
    """An answer went on past what one may have."""


def make_http_client(spec: HttpServer, max_bytes: int, on_refusal: Callable[[int, bool], None]) -> httpx2.AsyncClient:
    """A client for one server. `on_refusal(status, in_session)` hears of every message the server would not take."""

    async def check_response(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            # A few bytes could unpack to more than there is room for, and nobody asked for it.
            raise McpError("it sent a packed answer, though it was asked not to")
        if not response.headers.get("content-type", "").lower().startswith(_EVENTS):
            # The events of a stream are bounded one by one, where they are read.
            response.stream = _LimitedStream(response.stream, max_bytes)
        asked = response.request
        if response.status_code >= 400 and asked.method == "POST":
            on_refusal(response.status_code, "mcp-session-id" in asked.headers)

    return httpx2.AsyncClient(
        headers={**spec.headers, "accept-encoding": "identity"},
        # Streams are silent for as long as nothing happens; calls have their own deadline.
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        trust_env=not _is_loopback(urlsplit(spec.url).hostname or ""),
        event_hooks={"response": [check_response]},
    )


class _LimitedStream(httpx2.AsyncByteStream):
    """The bytes of an answer, up to a limit."""

    def __init__(self, stream: object, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise TooLarge(f"the answer has more than {self._limit:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        await self._stream.aclose()


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
