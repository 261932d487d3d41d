"""A server's process as a transport of the SDK: one JSON message a line, and what is no message is passed over."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from steersman.tools.mcp.process import ServerProcess

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

# A server may print a greeting, or the log of a library it uses; one that prints nothing else does not speak MCP.
_MOST_STRAY_LINES = 1_000

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
            tasks.start_soon(_read, process, incoming)
            tasks.start_soon(_write, process, outgoing)
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


async def _read(process: ServerProcess, incoming: Incoming) -> None:
    stray = 0
    # Closed at the end: whoever waits for an answer then hears at once that there will be none.
    async with incoming:
        while (line := await process.line()) is not None:
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                stray += 1
                if stray > _MOST_STRAY_LINES:
                    process.fail("it writes other things than MCP messages to its output")
                continue
            stray = 0
            try:
                await incoming.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def _write(process: ServerProcess, outgoing: Outgoing) -> None:
    async with outgoing:
        async for item in outgoing:
            process.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
