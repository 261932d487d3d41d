"""The differential fuzz: the same bytes, in the same cuts, to the fast path and to aiohttp alone.

Both read from a transport in memory. `python -m tests.provider.http.differential COUNT SEED` prints the differences.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from aiohttp import BaseConnector, ClientRequest, ClientResponse, ClientTimeout, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from tests.provider.http.responses import make_response, split_response
from yarl import URL

from steersman.provider.http.fast_path import FastConnection
from steersman.provider.http.response import Response

Receive = Callable[[Connection, ClientRequest], Awaitable["Response | PlainResponse"]]
# As many turns of the event loop as it takes until what has arrived was read.
TURNS = 4


class MemoryTransport(asyncio.Transport):
    """The end of a connection whose other end is the test."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._protocol: Any = protocol
        self._waiting: list[bytes] = []
        self._reading = True
        self._closing = False

    def deliver(self, data: bytes) -> None:
        if self._closing:
            return
        if self._reading:
            self._protocol.data_received(data)
        else:
            self._waiting.append(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self.deliver(data)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._lose)

    def abort(self) -> None:
        self.close()

    def _lose(self) -> None:
        self._protocol.connection_lost(None)


class MemoryConnector(BaseConnector):
    """Connects to the test itself."""

    async def _create_connection(self, req: ClientRequest, traces: Any, timeout: ClientTimeout) -> ResponseHandler:
        reader = ResponseHandler(asyncio.get_running_loop())
        reader.connection_made(MemoryTransport(reader))
        return reader


class Verdict(NamedTuple):
    """What a client makes of the bytes so far: `state` is "waiting", "complete" or "refused"."""

    state: str
    status: int | None
    headers: dict[str, str]
    body: bytes


class PlainResponse(NamedTuple):
    """A response as aiohttp gives it, without anything of ours."""

    status: int
    headers: Mapping[str, str]
    content: StreamReader
    held: Connection | ClientResponse

    async def read(self) -> bytes:
        return await self.content.readany()

    def release(self) -> None:
        self.held.release()

    def close(self) -> None:
        self.held.close()


class Reading:
    """One response and the task that reads it."""

    def __init__(self, receiving: Awaitable[Response | PlainResponse]) -> None:
        self._response: Response | PlainResponse | None = None
        self._headers: dict[str, str] = {}
        self._body = b""
        self._task = asyncio.create_task(self._read(receiving))

    async def _read(self, receiving: Awaitable[Response | PlainResponse]) -> None:
        self._response = response = await receiving
        try:
            for name, value in response.headers.items():
                # Older versions of aiohttp leave the space behind a value.
                self._headers.setdefault(name.lower(), value.rstrip(" \t"))
            while data := await self._read_more(response):
                self._body += data
            response.release()
        finally:
            response.close()

    async def _read_more(self, response: Response | PlainResponse) -> bytes:
        """The next bytes; every other part of the body is taken as it arrives."""
        if not isinstance(response, FastConnection):
            return await response.read()
        refused = False

        def take(part: bytes) -> bool:
            nonlocal refused
            refused = not refused
            if not refused:
                self._body += part
            return not refused

        return await response.read(take)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def judge(self, *, closed: bool) -> Verdict:
        # aiohttp's reader waits for a body that its compiled parser has refused, with the connection closed.
        state = "refused" if closed else "waiting"
        if self._task.done():
            state = "complete" if self._task.exception() is None else "refused"
        return Verdict(state, None if self._response is None else self._response.status, self._headers, self._body)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


class Line:
    """A connection in memory, and the client that reads from it."""

    def __init__(self, connection: Connection, receiving: Awaitable[Response | PlainResponse]) -> None:
        assert isinstance(connection.transport, MemoryTransport)
        self.transport = connection.transport
        self.reading = Reading(receiving)
        self._reader: Any = connection.protocol

    def judge(self) -> Verdict:
        return self.reading.judge(closed=self.transport.is_closing())

    @property
    def is_reusable(self) -> bool:
        """Whether the pool would use the connection for another request."""
        return not self.transport.is_closing() and not self._reader.should_close


async def receive_fast(connection: Connection, request: ClientRequest) -> Response:
    ours = FastConnection(connection, lambda one: None if one.is_usable() else one.discard())
    try:
        await ours.send(b"")
        return ours if ours.is_plain else await ours.receive_with_aiohttp(request)
    except BaseException:
        ours.close()
        raise


async def receive_plainly(connection: Connection, _: ClientRequest) -> PlainResponse:
    """Receive a response as aiohttp's `ClientResponse.start` does."""
    reader = connection.protocol
    assert reader is not None
    reader.set_response_params(read_until_eof=True)
    try:
        while True:
            message, content = await reader.read()
            if not 100 <= message.code < 200 or message.code == 101:
                return PlainResponse(message.code, message.headers, content, connection)
    except BaseException:
        connection.close()
        raise


class Difference(NamedTuple):
    """Bytes that the two clients do not treat alike."""

    parts: Sequence[bytes]
    when: str
    ours: Verdict
    theirs: Verdict

    def __str__(self) -> str:
        return f"{self.when} {list(self.parts)!r}:\n  ours   {self.ours}\n  theirs {self.theirs}"


def is_same(ours: Verdict, theirs: Verdict) -> bool:
    """Whether two verdicts agree; a body that is refused may have been read to different places."""
    if ours.state == "refused" == theirs.state:
        return (ours.status, ours.headers) == (theirs.status, theirs.headers) and (
            ours.body.startswith(theirs.body) or theirs.body.startswith(ours.body)
        )
    return ours == theirs


class Bench:
    """Compares the two clients, response by response; `last` is the verdict on the last one."""

    def __init__(self, connector: BaseConnector) -> None:
        self._connector = connector
        self._request = ClientRequest("POST", URL("http://127.0.0.1/"), loop=asyncio.get_running_loop())
        self.last: Verdict | None = None

    async def compare(self, parts: Sequence[bytes]) -> Difference | None:
        """The difference that these bytes make, if any: before the connection is closed, or once it is."""
        ours, theirs = await self._open(receive_fast), await self._open(receive_plainly)
        await self._settle()
        for part in parts:
            ours.transport.deliver(part)
            theirs.transport.deliver(part)
            await self._settle()
        before = ours.judge(), theirs.judge()
        kept = ours.is_reusable and not theirs.is_reusable
        ours.transport.close()
        theirs.transport.close()
        await self._settle()
        after = ours.judge(), theirs.judge()
        over = ours.reading.is_over
        await ours.reading.stop()
        await theirs.reading.stop()
        self.last = after[0]
        checks = (
            (is_same(*before), "before the end", before),
            (is_same(*after), "after the end", after),
            (over, "waits without end", after),
            (before[0].state != "complete" or not kept, "keeps the connection", before),
        )
        return next((Difference(parts, when, *verdicts) for good, when, verdicts in checks if not good), None)

    async def _open(self, receive: Receive) -> Line:
        connection = await self._connector.connect(self._request, [], ClientTimeout(total=None))
        return Line(connection, receive(connection, self._request))

    async def _settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


async def reduce_difference(bench: Bench, found: Difference) -> Difference:
    """A smaller difference: with fewer cuts, and with spans of bytes left out."""
    number = 0
    while number + 1 < len(found.parts):
        joined = found.parts[number] + found.parts[number + 1]
        smaller = await bench.compare([*found.parts[:number], joined, *found.parts[number + 2 :]])
        found, number = (found, number + 1) if smaller is None else (smaller, number)
    for span in (4096, 512, 64, 8, 1):
        number, at = 0, 0
        while number < len(found.parts):
            part = found.parts[number]
            shorter = part[:at] + part[at + span :]
            smaller = await bench.compare([*found.parts[:number], shorter, *found.parts[number + 1 :]])
            found, at = (found, at + span) if smaller is None else (smaller, at)
            if at >= len(found.parts[number]):
                number, at = number + 1, 0
    return found


async def find_differences(count: int, seed: str) -> list[str]:
    """Compare so many responses; the differences, at most a few, each made small."""
    rng = Random(seed)
    found: list[str] = []
    async with MemoryConnector() as connector:
        bench = Bench(connector)
        for _ in range(count):
            difference = await bench.compare(split_response(rng, make_response(rng)))
            if difference is not None:
                found.append(str(await reduce_difference(bench, difference)))
                if len(found) == 5:
                    break
    return found


if __name__ == "__main__":
    lines = asyncio.run(find_differences(int(sys.argv[1]), sys.argv[2]))
    print("\n".join(lines))
    sys.exit(bool(lines))
