"""The open connections of one event loop that no request uses, by server; those that wait too long are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from steersman.provider.http.fast_path import FastConnection

KEEPALIVE_SECONDS = 30.0


class IdleConnections:
    """Keeps connections for the next request to the same server."""

    __slots__ = ("_kept", "_loop", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Each with the time at which it was kept; the last one is the newest.
        self._kept: dict[Hashable, list[tuple[float, FastConnection]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, server: Hashable, connection: FastConnection) -> None:
        """Keep a connection for a while."""
        self._kept.setdefault(server, []).append((self._loop.time(), connection))
        if self._timer is None:
            self._timer = self._loop.call_later(KEEPALIVE_SECONDS, self._close_expired)

    def take(self, server: Hashable) -> FastConnection | None:
        """The connection to this server that was used last, if one is still open."""
        kept = self._kept.get(server)
        while kept:
            since, connection = kept.pop()
            if self._loop.time() - since <= KEEPALIVE_SECONDS and connection.can_be_used():
                return connection
            connection.discard()
        return None

    def close(self) -> None:
        """Close all of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for kept in self._kept.values():
            for _, connection in kept:
                connection.discard()
        self._kept.clear()

    def _close_expired(self) -> None:
        self._timer = None
        oldest = self._loop.time() - KEEPALIVE_SECONDS
        for server, kept in list(self._kept.items()):
            for _, connection in [item for item in kept if item[0] <= oldest]:
                connection.discard()
            kept[:] = [item for item in kept if item[0] > oldest]
            if not kept:
                del self._kept[server]
        if self._kept:
            next_at = min(since for kept in self._kept.values() for since, _ in kept) + KEEPALIVE_SECONDS
            self._timer = self._loop.call_at(next_at, self._close_expired)
