"""One session with an MCP server, opened and closed inside one task of its own.

The SDK's cancel scopes belong to the task that entered them, so no other task may enter or leave one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import mcp_types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from steersman.tools.mcp.errors import McpError, ServerLost
from steersman.tools.mcp.process import ServerProcess
from steersman.tools.mcp.spec import ServerSpec, StdioServer
from steersman.tools.mcp.transports import UNREADABLE, OnRefused, make_http_client, screen_transport, stdio_transport
from steersman.tools.text import strip_invisible
from steersman.tools.threads import call_in_thread
from steersman.types.errors import describe_exception
from steersman.types.secrets import redact

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import ProgressFnT

T = TypeVar("T")

_CLOSE_SECONDS = 6.0
_LEAVE_SECONDS = 1.0
_REFRESH_PAUSE = 0.2
_LISTEN_PAUSE = 1.0
_MAX_LISTEN_PAUSE = 60.0
_MAX_PAGES = 100
_MAX_REASON_LENGTH = 600
_MAX_REDACTED_LENGTH = 16_384
# How the SDK's messages begin when an answer over HTTP broke off.
_BROKEN = ("Connection closed", "SSE stream")
# The value in a message of pydantic. Its middle is left out, so that the end of a key may be there without the rest.
_VALUE = re.compile(r", input_value=.*, input_type=\w+\]")
_RESULT: TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult] = TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)
# Callers get a server's mistakes as errors; the SDK's log of them must not appear on the terminal as well.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_CLIENT_INFO = mcp_types.Implementation(name="steersman", version="0.1.0")


class Connection:
    """A session. `on_change` is awaited when the server's tools may have changed, `on_end` is called at the end."""

    def __init__(
        self,
        spec: ServerSpec,
        *,
        max_bytes: int,
        max_tools: int,
        refused: OnRefused,
        on_change: Callable[[Connection], Awaitable[None]],
        on_end: Callable[[Connection], None],
    ) -> None:
        self._spec = spec
        self._max_bytes = max_bytes
        self._max_tools = max_tools
        self._refused = refused
        self._on_change = on_change
        self._on_end = on_end
        self._client: Client | None = None
        self._process: ServerProcess | None = None
        self._closing = asyncio.Event()
        self._changed = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[None] | None = None
        self._calls = 0
        self._status: int | None = None
        self._doubtful = False
        self._retired = False
        self.dismissed = False
        self.over = False
        self.reason = ""

    @property
    def usable(self) -> bool:
        """Whether it takes new calls."""
        return self._client is not None and not (self.over or self._doubtful or self._closing.is_set())

    # Opening and closing

    async def open(self) -> None:
        """Open the session; `McpError` says why it failed."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        await asyncio.wait([self._task, self._opened], return_when=asyncio.FIRST_COMPLETED)
        if not self._opened.done():
            raise McpError(self.reason)

    async def close(self) -> None:
        """End the session, and the process if it has one, within a few seconds."""
        self.dismissed = True
        self._closing.set()
        if self._task is None:
            return
        if not self._opened.done():
            self._scope.cancel()
        await asyncio.wait([self._task], timeout=_LEAVE_SECONDS if self._process is None else _CLOSE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_LEAVE_SECONDS)

    def retire(self) -> None:
        """Take no more calls, and close once the running ones are over."""
        self._retired = self.dismissed = True
        if self._calls == 0:
            self._closing.set()

    def kill(self) -> None:
        """Kill the process at once, without closing the session."""
        self.dismissed = True
        self._closing.set()
        if self._process is not None:
            self._process.fail("it was stopped")

    async def _run(self) -> None:
        try:
            self._scope.deadline = anyio.current_time() + self._spec.start_timeout
            with self._scope:
                async with AsyncExitStack() as stack:
                    client = await stack.enter_async_context(self._make_client(await self._open_transport(stack)))
                    self._scope.deadline = math.inf
                    await self._serve(client)
            if self._scope.cancelled_caught:
                self.reason = f"it did not start within {self._spec.start_timeout:g}s"
        except asyncio.CancelledError:
            self.reason = "it was stopped"
            raise
        except Exception as error:  # noqa: BLE001  # any failure of the session becomes the reason its callers get
            self.reason = self._describe_failure(error)
        finally:
            self._conclude()

    async def _serve(self, client: Client) -> None:
        self._client = client
        self._opened.set_result(None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._refresh)
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(self._listen, client)
            await self._closing.wait()
            tasks.cancel_scope.cancel()

    def _conclude(self) -> None:
        self.over = True
        reason = self.reason
        if self._process is not None:
            # Redacted before it is cut or put on one line: a part of a key, or one of several lines, is not seen.
            stderr = self._redact(self._process.last_words)
            stderr = strip_invisible(stderr.strip()[-300:], 300, lines=False)
            reason = self._process.failure or reason
            reason = f"{reason}; its last stderr output: {stderr}" if stderr and reason else reason
        elif reason and self._status is not None:
            reason = f"{reason} (HTTP status {self._status})"
        self.reason = self._redact(reason or "it was closed")
        self._on_end(self)

    async def _open_transport(self, stack: AsyncExitStack) -> AbstractAsyncContextManager[TransportStreams]:
        if isinstance(self._spec, StdioServer):
            return stdio_transport(partial(self._start_process, self._spec))
        # In a thread, because it reads the certificates of this machine.
        client = await call_in_thread(make_http_client, self._spec, self._max_bytes, self._note_refusal)
        await stack.enter_async_context(client)
        return streamable_http_client(self._spec.url, http_client=client, max_sse_event_size=self._max_bytes)

    async def _start_process(self, spec: StdioServer) -> ServerProcess:
        self._process = await ServerProcess.start(spec, self._max_bytes, self._closing.set)
        return self._process

    def _make_client(self, transport: AbstractAsyncContextManager[TransportStreams]) -> Client:
        return Client(
            screen_transport(transport, self._max_tools, self._refused),
            message_handler=self._on_message,
            client_info=_CLIENT_INFO,
            cache=None,
        )

    def _note_refusal(self, status: int, in_session: bool) -> None:
        self._status = status
        # The server may have restarted without this session: the next call gets a new one.
        self._doubtful = self._doubtful or (in_session and self._client is not None)

    # Listing and calling tools

    async def _on_message(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._changed.set()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tool list, as newer protocol versions have it."""
        pause = _LISTEN_PAUSE
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._changed.set()
            except SubscriptionLost:
                pass
            except MCPError:
                # The server has no subscriptions, so the list is as current as its last reading.
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_LISTEN_PAUSE)
            self._changed.set()  # changes during the pause were not reported

    async def _refresh(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._on_change(self)
            # Limits how often the tools are listed, however often the server reports changes.
            await asyncio.sleep(_REFRESH_PAUSE)

    async def list_tools(self) -> list[mcp_types.Tool]:
        """List the server's tools, up to the maximum number; all pages together within the time for its start."""
        return await self._await_answer(self._list_pages(), self._spec.start_timeout)

    async def _list_pages(self) -> list[mcp_types.Tool]:
        session = self._require_client().session
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = None if cursor is None else mcp_types.PaginatedRequestParams(cursor=cursor)
            page = await session.list_tools(params=params)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools[: self._max_tools]
            if len(tools) >= self._max_tools:
                break
        self._refused(None, f"its list of tools is longer than {len(tools):,}; the rest is left out")
        return tools[: self._max_tools]

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: ProgressFnT) -> mcp_types.CallToolResult:
        """Call a tool. A cancelled call is cancelled at the server too; `ServerLost` where no answer can come."""
        # Not `session.call_tool`, which runs the server's own regular expressions on its answers.
        request = self._require_client().session.send_request(
            mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name=tool, arguments=arguments)),
            _RESULT,
            progress_callback=on_progress,
        )
        self._calls += 1
        try:
            result = await self._await_answer(request, self._spec.timeout)
        finally:
            self._calls -= 1
            if self._retired and self._calls == 0:
                self._closing.set()
        if isinstance(result, mcp_types.InputRequiredResult) or result.result_type != "complete":
            raise McpError("it asks for input during the call, which is not supported here")
        return result

    def _require_client(self) -> Client:
        if self._client is None or self.over:
            raise McpError(self.reason)
        return self._client

    async def _await_answer(self, request: Awaitable[T], seconds: float) -> T:
        """Await the answer of a request; every failure is an `McpError`. A timeout cancels it at the server too."""
        try:
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError:
            raise McpError(f"it did not answer within {seconds:g}s, and the call was cancelled") from None
        except ValidationError as error:
            # Without the cause, here and below: a traceback would show it with the keys that it quotes.
            raise McpError(f"its answer is not valid MCP ({self._describe_failure(error)})") from None
        except MCPError as error:
            raise await self._to_error(error) from None

    async def _to_error(self, error: MCPError) -> McpError:
        text = self._shorten(error.message)
        if error.message.startswith(UNREADABLE):
            return McpError(text)
        if not self._is_connection_lost(error):
            status = f", HTTP status {self._status}" if self._doubtful else ""
            return McpError(f"it refused: {text} (code {error.code}{status})")
        self._doubtful = True
        # The session likely ends in a moment, and then its reason is known.
        ending = cast(asyncio.Task[None], self._task)
        await asyncio.wait([ending], timeout=0.1 if self._process is None else _LEAVE_SECONDS)
        return ServerLost(self.reason or text)

    def _is_connection_lost(self, error: MCPError) -> bool:
        """Whether the connection is lost. Servers use the same code for errors of their own, and keep running."""
        if error.code != mcp_types.CONNECTION_CLOSED:
            return False
        if self._process is not None:
            return self._process.reason is not None
        return self.over or error.message.startswith(_BROKEN)

    def _redact(self, text: str) -> str:
        return redact(text, *self._spec.secrets)

    def _describe_failure(self, error: BaseException) -> str:
        """Describe the first error of a group in one line."""
        while isinstance(error, BaseExceptionGroup):
            error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
        if isinstance(error, ValidationError):
            return self._shorten(_describe_invalid(error))
        text = str(error) if isinstance(error, McpError | MCPError) else describe_exception(error)
        return self._shorten(text)

    def _shorten(self, text: str) -> str:
        """Put a text on one line. It is redacted before that, as a key may have several lines, and before it is cut."""
        shown = self._redact(_VALUE.sub("]", text[:_MAX_REDACTED_LENGTH]))
        return self._redact(strip_invisible(shown, _MAX_REASON_LENGTH, lines=False))


def _describe_invalid(error: ValidationError) -> str:
    """Describe what is wrong with an answer first, without its value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
