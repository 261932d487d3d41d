"""Connections that wait for the next request: kept for a while, in virtual time, over a transport in memory."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import BaseConnector, ClientRequest, ClientTimeout
from tests.provider.http.differential import MemoryConnector, MemoryTransport
from yarl import URL

from steersman.provider.http.fast_path import FastConnection
from steersman.provider.http.pool import KEEPALIVE_SECONDS, IdleConnections

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"


class Client:
    """A client of one server whose other end is the test."""

    def __init__(self, connector: BaseConnector) -> None:
        self._connector = connector
        self._request = ClientRequest("POST", URL("http://127.0.0.1/"), loop=asyncio.get_running_loop())
        self.idle = IdleConnections()
        self.opened: list[MemoryTransport] = []

    async def ask(self) -> MemoryTransport:
        """Send a request, have it answered, and give the transport that it was sent on."""
        connection = self.idle.take("server")
        if connection is None:
            opened = await self._connector.connect(self._request, [], ClientTimeout(total=None))
            assert isinstance(opened.transport, MemoryTransport)
            self.opened.append(opened.transport)
            connection = FastConnection(opened, partial(self.idle.keep, "server"))
        transport = next(one for one in self.opened if one.get_protocol() is connection)
        sending = connection.send(b"")
        transport.deliver(ANSWER)
        await sending
        assert connection.read_nowait() == b"hi"
        connection.release()
        return transport


async def test_a_connection_is_used_again_until_it_has_waited_too_long() -> None:
    async with MemoryConnector() as connector:
        client = Client(connector)
        first = await client.ask()
        await asyncio.sleep(KEEPALIVE_SECONDS - 1)
        assert await client.ask() is first
        await asyncio.sleep(KEEPALIVE_SECONDS - 1)
        assert (await client.ask(), first.is_closing()) == (first, False)
        await asyncio.sleep(KEEPALIVE_SECONDS + 1)
        assert first.is_closing()
        assert await client.ask() is not first
        client.idle.close()


async def test_only_the_connections_that_wait_too_long_are_closed() -> None:
    async with MemoryConnector() as connector:
        client = Client(connector)
        older = await client.ask()
        kept = client.idle.take("server")
        newer = await client.ask()
        assert kept is not None
        client.idle.keep("server", kept)
        await asyncio.sleep(20)
        # The last one that was kept is the first to be used again.
        assert await client.ask() is older
        await asyncio.sleep(20)
        assert (older.is_closing(), newer.is_closing()) == (False, True)
        client.idle.close()
        assert older.is_closing()


async def test_what_comes_unasked_closes_a_connection_that_waits() -> None:
    async with MemoryConnector() as connector:
        client = Client(connector)
        first = await client.ask()
        first.deliver(ANSWER)
        assert first.is_closing()
        assert await client.ask() is not first
        client.idle.close()
