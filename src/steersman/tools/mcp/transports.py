"""Transports for the SDK: a server's process (one JSON message a line), and an HTTP client with bounded answers.

Lines that are no messages are skipped. A malformed answer becomes an error, so that its caller does not wait for it.
A server's lists are screened before the SDK parses them: malformed tools are dropped, and lists are bounded.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import ip_address
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from steersman.tools.mcp.errors import McpError
from steersman.tools.mcp.process import ServerProcess
from steersman.tools.mcp.spec import HttpServer
from steersman.tools.mcp.value_count import TOO_MANY, ValueCount, has_too_many_values
from steersman.tools.text import strip_invisible

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams


_MAX_BLOCKS = 1_000
# The other fields of a block, such as annotations and icons, are ignored; there may be thousands of them.
_BLOCK = ("type", "text", "data", "mimeType", "name", "uri", "description", "resource")

OnRefused = Callable[[str | None, str], None]


@asynccontextmanager
async def screen_transport(
    transport: AbstractAsyncContextManager[TransportStreams], most: int, refused: OnRefused
) -> AsyncGenerator[TransportStreams, None]:
    """Wrap a transport: drop malformed tools and those beyond `most`, and call `refused(tool, why)` for them."""
    async with transport as (read, write):
        yield _ScreenedStream(read, most, refused), write


class _ScreenedStream:
    """A read stream that screens each message."""

    __slots__ = ("_most", "_read", "_refused")

    def __init__(self, read: ReadStream[SessionMessage | Exception], most: int, refused: OnRefused) -> None:
        self._read = read
        self._most = most
        self._refused = refused

    @property
    def last_context(self) -> Any:
        """The context that the SDK's own streams keep for a message."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._screen(await self._read.receive())

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> ReadStream[SessionMessage | Exception]:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._screen(await self._read.__anext__())

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._read.__aexit__(exc_type, exc_val, exc_tb)

    def _screen(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCResponse):
            result = message.result
            if isinstance(result.get("tools"), list):
                result["tools"] = self._filter_tools(cast(list[Any], result["tools"]))
            if isinstance(result.get("content"), list):
                result["content"] = _limit_blocks(cast(list[Any], result["content"]))
        return item

    def _filter_tools(self, tools: list[Any]) -> list[dict[str, Any]]:
        if len(tools) > self._most:
            self._refused(None, f"it lists {len(tools):,} tools; only the first {self._most:,} are looked at")
        kept: list[dict[str, Any]] = []
        for tool in tools[: self._most]:
            problem = _find_problem(tool)
            if problem is None:
                # Titles, hints, icons and output schemas are not used, so errors in them do not matter.
                kept.append({key: tool[key] for key in ("name", "description", "inputSchema") if key in tool})
            else:
                self._refused(_read_name(tool), problem)
        return kept


def _limit_blocks(blocks: list[Any]) -> list[Any]:
    """Limit the number of blocks of a result, and keep only the fields that are used."""
    kept: list[Any] = [
        {key: block[key] for key in _BLOCK if key in block} if isinstance(block, dict) else block
        for block in blocks[:_MAX_BLOCKS]
    ]
    if len(blocks) > _MAX_BLOCKS:
        kept.append(
            {"type": "text", "text": f"[{len(blocks) - _MAX_BLOCKS:,} more blocks were sent; they are left out]"}
        )
    return kept


def _read_name(tool: Any) -> str | None:
    name: Any = cast(dict[str, Any], tool).get("name") if isinstance(tool, dict) else None
    return strip_invisible(name, 128, lines=False) if isinstance(name, str) else None


def _find_problem(tool: Any) -> str | None:
    """Say why this is not a tool, by its structure; `None` where it may be one."""
    if not isinstance(tool, dict):
        return "it is not an object"
    found = cast(dict[str, Any], tool)
    if not isinstance(found.get("name"), str):
        return "it has no name"
    if not isinstance(found.get("description") or "", str):
        return "its description is not a text"
    return _find_schema_problem(found.get("inputSchema"))


def _find_schema_problem(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return "it has no schema for its arguments"
    found = cast(dict[str, Any], schema)
    properties: Any = found.get("properties", {})
    required: Any = found.get("required", [])
    if found.get("type") != "object":
        return "its schema is not of type 'object'"
    if not isinstance(properties, dict) or not all(
        isinstance(item, dict | bool) for item in cast(dict[str, Any], properties).values()
    ):
        return "the properties in its schema are not schemas"
    if not isinstance(required, list) or not all(isinstance(item, str) for item in cast(list[Any], required)):
        return "'required' in its schema is not a list of names"
    return None if isinstance(found.get("$schema", ""), str) else "'$schema' in its schema is not a text"


# A server may print a greeting, or the log of a library; one that prints more lines than this does not serve MCP.
_MAX_STRAY_LINES = 1_000

UNREADABLE = "its answer is not valid MCP"
"""How the error that replaces a malformed answer begins."""

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
    """Start a process and open streams over it; the process is stopped at the end in any case."""
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
        # Shielded: the process must not outlive a cancelled session, and stopping it takes a bounded time.
        with anyio.CancelScope(shield=True):
            await process.stop()


async def _read_messages(process: ServerProcess, incoming: Incoming) -> None:
    stray = 0
    # Closed at the end, so that waiting requests fail at once.
    async with incoming:
        while (line := await process.read_line()) is not None:
            if not line.strip():
                continue
            try:
                if has_too_many_values(line):
                    raise ValueError(TOO_MANY)
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError as error:
                unreadable = _make_error_for(line, error)
                if unreadable is None:
                    stray += 1
                    if stray > _MAX_STRAY_LINES:
                        process.fail("it writes other things than MCP messages to stdout")
                    continue
                message = unreadable
            stray = 0
            try:
                await incoming.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def _make_error_for(line: bytes, error: ValueError) -> JSONRPCError | None:
    """Make the error that replaces a malformed answer; `None` for a line that is no answer.

    Only the ends of the line are searched for the id: anything inside an answer may look like one.
    """
    match = _ID_FIRST.match(line[:_MAX_END_LENGTH]) or (
        _ID_LAST.search(line[-_MAX_END_LENGTH:]) if _ANSWER_FIRST.match(line[:_MAX_END_LENGTH]) else None
    )
    if match is None or b'"jsonrpc"' not in line[:_MAX_END_LENGTH] + line[-_MAX_END_LENGTH:]:
        return None
    id = match["id"].decode("ascii", "replace")
    found = id.strip('"') if id.startswith('"') else int(id)
    why = _explain_unreadable(error)
    return JSONRPCError(jsonrpc="2.0", id=found, error=ErrorData(code=PARSE_ERROR, message=f"{UNREADABLE}{why}"))


def _explain_unreadable(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return f" ({error})"
    details = error.errors(include_url=False, include_input=False)
    return f" ({details[0]['msg']})" if details and details[0]["type"] == "json_invalid" else ""


async def _write_messages(process: ServerProcess, outgoing: Outgoing) -> None:
    async with outgoing:
        async for item in outgoing:
            process.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


class TooLarge(httpx2.StreamError):
    """An answer is larger than the limit."""


def make_http_client(spec: HttpServer, max_bytes: int, on_refusal: Callable[[int, bool], None]) -> httpx2.AsyncClient:
    """Make the client for one server. `on_refusal(status, in_session)` is called for every rejected message."""

    async def check_response(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            # A few compressed bytes could expand beyond any limit, and the request did not accept an encoding.
            raise McpError("it sent an answer with a content-encoding, though the request asked for none")
        # The size of an event is limited where the stream is read.
        is_stream = response.headers.get("content-type", "").lower().startswith(_EVENTS)
        response.stream = _LimitedStream(response.stream, None if is_stream else max_bytes)
        request = response.request
        if response.status_code >= 400 and request.method == "POST":
            on_refusal(response.status_code, "mcp-session-id" in request.headers)

    return httpx2.AsyncClient(
        headers={**spec.headers, "accept-encoding": "identity"},
        # No read timeout: streams are silent as long as nothing happens, and calls have their own deadline.
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        trust_env=not _is_loopback(urlsplit(spec.url).hostname or ""),
        event_hooks={"response": [check_response]},
    )


class _LimitedStream(httpx2.AsyncByteStream):
    """The bytes of an answer, limited in number; without a limit, a stream of events. Its values are limited too."""

    def __init__(self, stream: object, limit: int | None) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        size, counted = 0, ValueCount(events=self._limit is None)
        async for chunk in self._stream:
            size += len(chunk)
            counted.add(chunk)
            if self._limit is not None and size > self._limit:
                raise TooLarge(f"the answer has more than {self._limit:,} bytes")
            if counted.is_over:
                raise (httpx2.SSEError if self._limit is None else TooLarge)(f"the answer has {TOO_MANY}")
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
