"""The servers of this process: one child for one file and its settings, shared, and ended with the last event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import wait
from typing import Any

from steersman.provider.http.pool import session
from steersman.provider.local.serving.process import Child, Settings
from steersman.types.errors import NetworkError, ProviderError

ONCE: Mapping[str, str] = {"connection": "close"}
"""After a stream the server closes its connection, though it says otherwise: none is used twice."""

_lock = threading.Lock()
_servers: dict[Settings, Server] = {}


class Server:
    """A child that answers, what its slots hold, and the event loops that keep it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.child = Child(settings)
        self.url = ""
        self.props: Mapping[str, Any] = {}
        self.held: dict[int, str] = {}
        self.keepers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """The status and the JSON of an answer that is not a stream."""
        return await self._ask("POST", path, body)

    async def get(self, path: str) -> tuple[int, Any]:
        """The status and the JSON of what is asked for."""
        return await self._ask("GET", path, None)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        from aiohttp import ClientError

        headers = {"authorization": f"Bearer {self.child.key}", **ONCE}
        try:
            client = await session()
            async with client.request(method, self.url + path, json=body, headers=headers) as response:
                return response.status, await response.json(content_type=None)
        except (ClientError, OSError, ValueError) as error:
            raise NetworkError(f"The local model does not answer: {error}.", provider="local") from None

    async def judged(self, error: ProviderError) -> ProviderError:
        """The error, or what it comes from where the child has ended."""
        if error.info.kind not in ("network", "incomplete"):
            return error
        # The connection breaks a moment before the process is gone.
        await asyncio.to_thread(wait, [self.child.ended], 1)
        return error if self.child.alive else self.child.broken()


async def serving(settings: Settings) -> Server:
    """The server of these settings, which answers; started if there is none, or none that lives."""
    loop = asyncio.get_running_loop()
    _forget_closed_loops()
    with _lock:
        server = _servers.get(settings)
        if server is None or not server.child.alive:
            server = _servers[settings] = Server(settings)
    if loop not in server.keepers:
        keeper = server.keepers[loop] = _kept(server, loop)
        # Once begun, the generator is known to the loop, which closes it before it ends, and the child with it.
        await anext(keeper)
    ready = asyncio.wrap_future(server.child.ready)
    ready.add_done_callback(lambda future: future.cancelled() or future.exception())
    # Shielded: others may wait for the same child, and who goes away must not take it from them.
    server.url = await asyncio.shield(ready)
    if not server.props:
        status, props = await server.get("/props")
        server.props = props if status == 200 else {"total_slots": settings.parallel}
    return server


async def _kept(server: Server, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if _let_go(server, loop):
            await asyncio.wrap_future(server.child.ended)


def _let_go(server: Server, loop: asyncio.AbstractEventLoop) -> bool:
    """Whether that was the last loop, and the child is ended."""
    with _lock:
        server.keepers.pop(loop, None)
        if server.keepers:
            return False
        if _servers.get(server.settings) is server:
            del _servers[server.settings]
    server.child.close()
    return True


def _forget_closed_loops() -> None:
    """Let go of what loops kept that were closed without a chance to let go of anything."""
    with _lock:
        gone = [(server, loop) for server in _servers.values() for loop in server.keepers if loop.is_closed()]
    for server, loop in gone:
        _let_go(server, loop)


def _close_all() -> None:
    for server in list(_servers.values()):
        server.child.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    # A fork has no say over its parent's children.
    os.register_at_fork(after_in_child=_servers.clear)
