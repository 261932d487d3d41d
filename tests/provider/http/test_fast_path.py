"""The short way of the usual answer, and that every other one still comes to the client's own reader: real sockets."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp import ClientRequest, TCPConnector
from aiohttp.client_proto import ResponseHandler
from tests.pace import hurry
from tests.provider.wires.kit import ASKED, PlainWire, collect_events, stream
from tests.rows import each_row

from steersman.provider.http.client import aclose_http
from steersman.provider.http.exchange import begin_exchange
from steersman.provider.http.pool import supports_fast_path
from steersman.provider.http.sse import MAX_PIECE
from steersman.provider.streaming.normalize import stream_events
from steersman.types.errors import ErrorInfo
from steersman.types.messages import user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent, TextDelta

pytestmark = pytest.mark.real_time

HELD: Mapping[str, Any] = {"connect_timeout": 5, "first_byte_timeout": 5, "idle_timeout": 5}
UNBOUND: Mapping[str, Any] = dict.fromkeys(HELD)
HELLO = b'data: {"t":"hel"}\n\ndata: {"t":"lo"}\n\ndata: [DONE]\n\n'
KIND = b"Content-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODY = b"%x\r\n%s\r\n0\r\n\r\n" % (len(HELLO), HELLO)
USUAL = b"HTTP/1.1 200 OK\r\n" + KIND + CHUNKED + b"\r\n" + BODY
LENGTH = b"Content-Length: %d\r\n" % len(HELLO)

MANY = 5

Answering: TypeAlias = Callable[["Peer"], Awaitable[None]]


class Peer:
    """A connection as a server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def request(self) -> tuple[str, dict[str, str], bytes]:
        """The next request: its first line, its headers, its body."""
        first, _, rest = (await self.reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")
        headers = dict(line.split(": ", 1) for line in rest.split("\r\n") if line)
        return first, headers, await self.reader.readexactly(int(headers["Content-Length"]))

    async def say(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()


class Served:
    """Where a server listens, and how many connections it got."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0

    def model(self, **fields: Any) -> Model:
        return Model("plain", "m", base_url=f"http://127.0.0.1:{self.port}", settings=HELD, **fields)

    async def ask(self, text: str = "Hello?", **fields: Any) -> list[StreamEvent]:
        request = Request("", [user_message(text)])
        return await collect_events(stream, self.model(**fields), request)


@asynccontextmanager
async def serving(answering: Answering) -> AsyncGenerator[Served, None]:
    """A server that answers on each connection in this way."""
    served = Served()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
        try:
            await answering(Peer(reader, writer, served.connections))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left, as it may
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        await aclose_http()
        server.close()


def every(*parts: bytes) -> Answering:
    """Answers every request with these bytes."""

    async def answer(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(*parts)

    return answer


def said(events: list[StreamEvent]) -> str:
    assert isinstance(events[-1], Done), events[-1]
    return events[-1].message.text


def failed(events: list[StreamEvent]) -> ErrorInfo:
    last = events[-1]
    assert isinstance(last, Failed), last
    assert last.error is not None
    return last.error


async def test_a_request_is_written_to_the_letter() -> None:
    got: list[tuple[str, dict[str, str], bytes]] = []

    async def answer(peer: Peer) -> None:
        got.append(await peer.request())
        await peer.say(USUAL)

    async with serving(answer) as served:
        assert said(await served.ask("Grüße", api_key="key", headers={"X-Own": "ö"})) == "hello"
    body = '{"text":["Grüße"]}'.encode()
    headers = {
        "Host": f"127.0.0.1:{served.port}",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "steersman",
        "content-type": "application/json",
        "authorization": "Bearer key",
        "x-own": "ö",
        "Content-Length": str(len(body)),
    }
    assert got == [("POST /ask HTTP/1.1", headers, body)]


async def test_a_header_that_changes_is_in_the_next_request() -> None:
    """Although the head of a request is not built again as long as its headers stay the same."""
    got: list[tuple[str | None, str | None]] = []

    async def answer(peer: Peer) -> None:
        while True:
            _, headers, _ = await peer.request()
            got.append((headers.get("authorization"), headers.get("x-own")))
            await peer.say(USUAL)

    async with serving(answer) as served:
        for key, own in (("a", "1"), ("a", "1"), ("b", "1"), ("b", "2"), ("a", "2")):
            assert said(await served.ask(api_key=key, headers={"X-Own": own})) == "hello"
        assert said(await served.ask()) == "hello"
    assert got == [
        ("Bearer a", "1"), ("Bearer a", "1"), ("Bearer b", "1"), ("Bearer b", "2"), ("Bearer a", "2"), (None, None)
    ]  # fmt: skip
    assert served.connections == 1


ANSWERS = {
    "the usual one": USUAL,
    "small letters": USUAL.lower().replace(b"http/1.1 200 ok", b"HTTP/1.1 200 OK").replace(b"[done]", b"[DONE]"),
    "alive": USUAL.replace(KIND, KIND + b"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n"),
    "extensions and a trailer": USUAL.replace(b"\r\ndata", b";a=b\r\ndata", 1).replace(
        b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n"
    ),
    "a length": b"HTTP/1.1 200 OK\r\n" + KIND + LENGTH + b"\r\n" + HELLO,
    "no reason": USUAL.replace(b"200 OK", b"200"),
    "a word before": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + USUAL,
    "a go-ahead before": b"HTTP/1.1 100 Continue\r\n\r\n" + USUAL,
    "another success": USUAL.replace(b"200 OK", b"201 Created"),
    "said not to be packed": USUAL.replace(KIND, KIND + b"Content-Encoding: identity\r\n"),
    "space before a value": USUAL.replace(b"Encoding: chunked", b"Encoding:   chunked"),
    "no space before a value": USUAL.replace(b"Encoding: chunked", b"Encoding:chunked"),
}


@each_row("name", ANSWERS)
async def test_every_form_of_an_answer_is_read_and_its_connection_used_again(name: str) -> None:
    data = ANSWERS[name]
    async with serving(every(data)) as served:
        assert [said(await served.ask()) for _ in range(3)] == ["hello"] * 3
    assert served.connections == 1


@each_row("name", ANSWERS)
async def test_every_form_of_an_answer_is_read_byte_by_byte(name: str) -> None:
    data = ANSWERS[name]
    async with serving(every(*[data[at : at + 1] for at in range(len(data))])) as served:
        assert [said(await served.ask()) for _ in range(2)] == ["hello"] * 2
    assert served.connections == 1


@pytest.mark.parametrize(
    "data",
    [
        USUAL.replace(KIND, KIND + b"Connection: close\r\n"),
        USUAL.replace(KIND, KIND + b"Connection: keep-alive\r\nConnection: close\r\n"),
        b"HTTP/1.0 200 OK\r\n" + KIND + b"\r\n" + HELLO,
        b"HTTP/1.1 200 OK\r\n" + KIND + b"\r\n" + HELLO,
    ],
    ids=["said to be the last", "said last to be the last", "an old server", "to the end of the connection"],
)
async def test_an_answer_that_ends_its_connection_is_read(data: bytes) -> None:
    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(data)

    async with serving(answer) as served:
        assert [said(await served.ask()) for _ in range(2)] == ["hello"] * 2
    assert served.connections == 2


@each_row(
    "head",
    [
        USUAL.replace(CHUNKED, CHUNKED * 2),
        USUAL.replace(CHUNKED, b"Transfer-Encoding: gzip, chunked\r\n"),
        USUAL.replace(CHUNKED, CHUNKED + LENGTH),
        USUAL.replace(b"\r\n", b"\n", 3),
        USUAL.replace(KIND, KIND + b" folded\r\n"),
        USUAL.replace(KIND, KIND + b"X: a\0b\r\n"),
        USUAL.replace(KIND, b"X: " + b"y" * 40_000 + b"\r\n" + KIND),
        USUAL.replace(b"HTTP/1.1", b"HTTP/1.7"),
        USUAL.replace(b"HTTP/1.1 200", b"HTTP/1.1 20"),
        USUAL.replace(KIND, KIND + b"X: a\nContent-Length: 5\r\n"),
        USUAL.replace(CHUNKED, CHUNKED + b" , gzip\r\n"),
        USUAL.replace(CHUNKED, CHUNKED + b"Transfer-Encoding: gzip\r\n"),
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\n\nnothing of the kind\r\n\r\n",
    ],
    ids=["two codings", "a packing", "chunks and a length", "bare line ends", "a folded line", "a null", "a long head",
         "another version", "half a status", "a length behind a bare line end", "a folded coding", "a second coding",
         "a head without end", "another protocol", "something else", "blank lines"],
)  # fmt: skip
async def test_a_head_that_is_not_as_it_should_be_never_hangs(head: bytes) -> None:
    """Whether it is read or refused is for the client's own reader to say; it ends, and the next one is right."""
    heads = [head, head]

    async def answer(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(heads.pop() if heads else USUAL)

    async with serving(answer) as served:
        first = (await served.ask())[-1]
        # With a header of this kind the client sends the request itself, and reads its answer.
        judged = (await served.ask(headers={"TE": "trailers"}))[-1]
        assert isinstance(first, Done | Failed)
        assert isinstance(judged, type(first))
        if isinstance(first, Done):
            assert first.message.text == "hello"
        else:
            assert failed([first]).kind == failed([judged]).kind
        assert said(await served.ask()) == "hello"


async def test_a_request_given_up_while_the_client_reads_its_head_leaves_no_connection_open() -> None:
    sent, closed = asyncio.Event(), asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 100 Continue\r\n\r\n")
        sent.set()
        await peer.reader.read()
        closed.set()

    async with serving(answer) as served, asyncio.timeout(4):
        task = asyncio.create_task(served.ask())
        await sent.wait()
        # What was sent has come, and has been read, when others have had their turn for a while.
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await closed.wait()


@pytest.mark.parametrize("late", [False, True], ids=["with the answer", "after it"])
async def test_what_comes_behind_an_answer_is_never_the_next_one(*, late: bool) -> None:
    """failures.md F6: a connection on which something came unasked is not used again."""
    forged = USUAL.replace(b"hel", b"bad")
    answered, read, sent = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)

    async def answer(peer: Peer) -> None:
        await peer.request()
        if peer.number <= MANY:
            # None is answered before all have come, each on a connection of its own.
            if peer.number == MANY:
                answered.set()
            await answered.wait()
        await peer.say(USUAL if late else USUAL + forged)
        if late and peer.number <= MANY:
            await read.wait()
            await peer.say(forged)
            sent.release()
        await peer.reader.read()

    async with serving(answer) as served:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(served.ask()) for _ in range(MANY)]
        assert [said(task.result()) for task in tasks] == ["hello"] * MANY
        read.set()
        if late:
            for _ in range(MANY):
                await sent.acquire()
            # What was sent has come when another connection has been there and back.
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
            await reader.readuntil(b"0\r\n\r\n")
            writer.close()
        assert said(await served.ask()) == "hello"
    assert served.connections == MANY + 1 + late


@each_row("usual", [USUAL, b"HTTP/1.1 200 OK\r\n" + KIND + LENGTH + b"\r\n" + HELLO], ids=["chunks", "a length"])
async def test_what_came_unasked_and_was_not_read_yet_is_no_answer(usual: bytes) -> None:
    """failures.md F6: the next request is sent before the event loop has looked at what the server sent too much."""
    peers: list[Peer] = []

    async def answer(peer: Peer) -> None:
        peers.append(peer)
        await every(usual)(peer)

    async with serving(answer) as served:
        assert said(await served.ask()) == "hello"
        # A write is sent at once, and the request is sent without a turn of the event loop between the two.
        peers[0].writer.write(usual.replace(b"hel", b"bad"))
        assert said(await served.ask()) == "hello"
    assert served.connections == 2


@pytest.mark.parametrize("size", [40_000, 700_000])
async def test_an_answer_before_the_end_of_a_request_is_read(size: int) -> None:
    """Also when the server does not read on; and no complaint of the event loop is heard."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def answer(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        body = b'{"error": "too long"}'
        await peer.say(b"HTTP/1.1 413 Too Long\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await peer.reader.read()

    async with serving(answer) as served:
        info = failed(await served.ask("x" * size))
    assert (info.status, info.body) == (413, '{"error": "too long"}')
    assert complaints == []


@pytest.mark.parametrize("data", [USUAL, b"HTTP/1.1 429 Slow\r\nContent-Length: 2\r\n\r\n{}"], ids=["usual", "refused"])
async def test_no_request_waits_behind_the_rest_of_one_that_was_answered_early(data: bytes) -> None:
    """The server answers before it has read a request, and never reads on."""
    listener = socket.create_server(("127.0.0.1", 0))
    # So little room that the request cannot be on its way as a whole.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    left = asyncio.Event()
    connections = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        peer = Peer(reader, writer, connections)
        await peer.request()
        await peer.say(USUAL)
        if connections == 1:
            await reader.readuntil(b"\r\n\r\n")
            await peer.say(data)
            await left.wait()
        writer.close()

    server = await asyncio.start_server(accept, sock=listener, limit=4096)
    served = Served()
    served.port = listener.getsockname()[1]
    try:
        assert said(await served.ask()) == "hello"
        for line in _own_sockets(served.port):
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        early = await served.ask("x" * 900_000)
        assert isinstance(early[-1], Done if data is USUAL else Failed)
        assert said(await served.ask()) == "hello"
    finally:
        left.set()
        await aclose_http()
        server.close()
    assert connections == 2


def _own_sockets(port: int) -> list[socket.socket]:
    """The sockets of this process that are connected to a port."""
    found: list[socket.socket] = []
    for one in gc.get_objects():
        if type(one) is socket.socket and one.family == socket.AF_INET and one.fileno() >= 0:
            try:
                peer = one.getpeername()
            except OSError:
                continue  # a listener
            if peer[1] == port:
                found.append(one)
    return found


@pytest.mark.parametrize("size", [40_000, 700_000])
async def test_a_long_request_arrives_whole(size: int) -> None:
    async def answer(peer: Peer) -> None:
        while True:
            _, _, body = await peer.request()
            await peer.say(USUAL.replace(b"hello"[:3], str(len(body)).encode()[:3]))

    async with serving(answer) as served:
        length = str(len('{"text":[""]}') + size)
        assert [said(await served.ask("x" * size)) for _ in range(2)] == [f"{length[:3]}lo"] * 2
    assert served.connections == 1


async def test_a_reader_that_takes_its_time_is_not_flooded() -> None:
    """failures.md F8: what is not read stays with the server."""
    event = b'data: {"t":"' + b"x" * 10_000 + b'"}\n\n'
    chunk = b"%x\r\n%s\r\n" % (len(event), event)
    count = 3000
    held: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(USUAL.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + chunk * count)
        await begun.wait()
        peer.writer.transport.set_write_buffer_limits(high=len(chunk) * count)
        held.set_result(peer.writer.transport.get_write_buffer_size())
        await peer.say(BODY)

    async with serving(answer) as served:
        events = stream_events(stream, served.model(), ASKED, StreamOptions())
        async for event_ in events:
            if isinstance(event_, TextDelta):
                break
        # Others have their turn meanwhile, as often as they like.
        for _ in range(2000):
            await asyncio.sleep(0)
        begun.set()
        assert await held > len(chunk) * count // 2
        rest = [event async for event in events]
        assert isinstance(rest[-1], Done)
        assert len(rest[-1].message.text) == 10_000 * count + 5


async def test_a_connection_whose_end_was_not_read_is_read_again() -> None:
    """The end of an answer comes behind more than is read ahead; the next answer on that connection still comes."""
    comment = b": " + b"x" * 60_000 + b"\n\n"
    rest = b"%x\r\n%s\r\n" % (len(comment), comment) * 9 + b"0\r\n\r\n"
    read, sent = asyncio.Event(), asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(USUAL.removesuffix(b"0\r\n\r\n"))
        await read.wait()
        await peer.say(rest)
        sent.set()
        await every(USUAL)(peer)

    async with serving(answer) as served:
        seen: list[StreamEvent] = []
        async for event in stream_events(stream, served.model(), ASKED, StreamOptions()):
            seen.append(event)
            if isinstance(event, TextDelta) and not sent.is_set():
                read.set()
                await sent.wait()
                # What was sent has come when all of it has been taken from the socket.
                for _ in range(200):
                    await asyncio.sleep(0)
        assert said(seen) == "hello"
        assert said(await served.ask()) == "hello"
    assert served.connections == 1


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1
        self._next = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._next.cancel()


PACKED = b"Content-Encoding: gzip\r\nConnection: close\r\n"


@each_row("head", [CHUNKED, b"Connection: close\r\n", PACKED], ids=["chunks", "to the end", "packed"])
@each_row("filler", [b"id: 1\n\n", b":\n\n", b"\n", b'data: {"t":"x"}\n\n'])
async def test_the_event_loop_has_a_turn_after_each_piece_of_an_answer(head: bytes, filler: bytes) -> None:
    """However much has come at once, and whatever it is: many thousand events take a while."""
    body = filler * (3_000_000 // len(filler)) + HELLO
    sent = gzip.compress(body, 1) if head == PACKED else body
    if head == CHUNKED:
        sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(sent), sent)

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n" + KIND + head + b"\r\n" + sent)

    async with serving(answer) as served:
        exchange = begin_exchange(PlainWire(), served.model())
        await exchange.send(ASKED, StreamOptions())
        # As much as is read ahead has come.
        for _ in range(500):
            await asyncio.sleep(0)
        turns = Turns()
        pieces: list[bytes] = []
        read: Counter[int] = Counter()
        while piece := await exchange.read():
            pieces.append(piece)
            read[turns.count] += len(piece)
        turns.stop()
        exchange.close()
    assert b"".join(pieces) == body
    # The last piece of one network read, and the first of the next, if that has come meanwhile.
    assert max(read.values()) <= 2 * MAX_PIECE


async def test_others_have_their_turn_while_many_events_are_read() -> None:
    event = b'data: {"t":"x"}\n\n'
    count = 100_000
    body = event * count + HELLO

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n" + KIND + CHUNKED + b"\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

    async with serving(answer) as served:
        turns = Turns()
        events: list[StreamEvent] = []
        seen: Counter[int] = Counter()
        async for one in stream_events(stream, served.model(), ASKED, StreamOptions()):
            seen[turns.count] += 1
            events.append(one)
        turns.stop()
    assert said(events) == "x" * count + "hello"
    assert max(seen.values()) <= 2 * MAX_PIECE // len(event) + 4


async def test_lines_without_an_end_are_an_error_long_before_the_answer_is_too_long() -> None:
    """37 MB of ids in one event: no more than a part of them is read."""
    begun = b"HTTP/1.1 200 OK\r\n" + KIND + b"\r\n" + b"id: 1\n" * 6_200_000

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(begun)

    async with serving(answer) as served:
        info = failed(await served.ask())
        assert (info.kind, "an event of more than 100,000 lines" in info.message) == ("protocol", True)


@each_row("bound", ["idle_timeout", "content_idle_timeout", "total_timeout"])
@each_row(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n" + KIND + CHUNKED,
        b"HTTP/1.1 200 OK\r\n" + KIND + b"Content-Length: 1000\r\n",
        b"HTTP/1.1 200 OK\r\n" + KIND,
        b"HTTP/1.0 200 OK\r\n" + KIND,
    ],
    ids=["chunks", "a length", "to the end of the connection", "an old server"],
)
async def test_an_answer_that_stalls_is_cut_whatever_its_form(head: bytes, bound: str) -> None:
    event = b'data: {"t":"hel"}\n\n'
    begun = head + b"\r\n" + (b"%x\r\n%s\r\n" % (len(event), event) if CHUNKED in head else event)

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(begun if peer.number == 1 else USUAL)
        await peer.reader.read()

    async with serving(answer) as served:
        model = replace(served.model(), settings={**UNBOUND, bound: 60})
        events: list[StreamEvent] = []
        async for event in stream_events(stream, model, ASKED, StreamOptions()):
            events.append(event)
            if isinstance(event, TextDelta):
                hurry()
        hurry(1)
        assert [event.delta for event in events if isinstance(event, TextDelta)] == ["hel"]
        info = failed(events)
        assert (info.kind, bound in info.message) == ("stalled", True)
        assert said(await served.ask()) == "hello"
    assert served.connections == 2


@pytest.mark.parametrize("name", ["connection", "Host", "Transfer-Encoding", "Expect"])
async def test_a_header_that_changes_the_form_of_a_request_is_left_to_the_client(name: str) -> None:
    value = {"connection": "close", "Host": "example.test", "Transfer-Encoding": "gzip", "Expect": "nothing"}[name]
    got: list[dict[str, str]] = []

    async def answer(peer: Peer) -> None:
        first = (await peer.reader.readuntil(b"\r\n\r\n")).decode()
        got.append({line.partition(": ")[0].lower(): line.partition(": ")[2] for line in first.split("\r\n")})
        await peer.say(USUAL)

    async with serving(answer) as served:
        events = await served.ask(headers={name: value})
    assert (said(events), got[0][name.lower()]) == ("hello", value)


@pytest.mark.parametrize("value", ["a\r\nX-Forged: yes", "a\nb", "a\rb", "a\0b"])
async def test_a_header_cannot_bring_another_along(value: str) -> None:
    async with serving(every(USUAL)) as served:
        info = failed(await served.ask(headers={"X-Own": value}))
        assert (info.kind, served.connections) == ("invalid_request", 0)
        assert "Check the headers" in info.message


async def test_a_body_that_breaks_keeps_what_came_before() -> None:
    begun = USUAL.partition(b"\r\n\r\n")[0] + b'\r\n\r\n13\r\ndata: {"t":"hel"}\n\n\r\n'
    read = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(begun)
        await read.wait()
        await peer.say(b"zz\r\nwhat is this\r\n")

    async with serving(answer) as served:
        seen: list[StreamEvent] = []
        async for event in stream_events(stream, served.model(), ASKED, StreamOptions()):
            seen.append(event)
            read.set()
    assert [event.delta for event in seen if isinstance(event, TextDelta)] == ["hel"]
    info = failed(seen)
    assert info.kind == "incomplete"
    assert "the chunks are malformed (Invalid character in chunk size)" in info.message


async def test_connections_closed_in_the_midst_of_an_answer_end_it() -> None:
    begun = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.say(USUAL[:-10])
        await peer.reader.read()

    async with serving(answer) as served:
        events = stream_events(stream, served.model(), ASKED, StreamOptions())
        seen: list[StreamEvent] = []

        async def read() -> None:
            async for event in events:
                seen.append(event)
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        await aclose_http()
        await task
    assert failed(seen).kind == "incomplete"


async def test_an_answer_over_tls_takes_the_same_way(tmp_path: Path) -> None:
    """Two prompts on one connection, by a program that trusts the certificate."""
    import ssl

    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    openssl = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
        "-keyout", str(key), "-out", str(certificate), stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await openssl.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    connections = 0
    event = b'data: {"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    usual = USUAL.partition(b"\r\n\r\n")[0] + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(event), event)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            await every(usual)(Peer(reader, writer, connections))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    program = """
import asyncio, sys
from steersman import Agent, Model

async def main():
    agent = Agent(Model("openai-chat", "m", base_url=sys.argv[1], api_key="key"))
    print((await agent.run("Hello?")).text, (await agent.run("Again?")).text)

asyncio.run(main())
"""
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", program, f"https://localhost:{server.sockets[0].getsockname()[1]}",
            env={**os.environ, "SSL_CERT_FILE": str(certificate)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await child.communicate()
    assert (out, err, child.returncode, connections) == (b"hello hello\n", b"", 0, 1)


def test_only_a_client_that_is_known_lends_its_connections() -> None:
    class Changed:
        def connect(self, request: object) -> None: ...
        def set_response_params(self, *, read_until_eof: bool) -> None: ...

    class Curious:
        def __init__(self, method: str, url: object, *, loop: object, session: object) -> None: ...

    assert supports_fast_path(TCPConnector, ResponseHandler, ClientRequest)
    assert not supports_fast_path(Changed, ResponseHandler, ClientRequest)
    assert not supports_fast_path(TCPConnector, Changed, ClientRequest)
    assert not supports_fast_path(TCPConnector, object, ClientRequest)
    assert not supports_fast_path(TCPConnector, ResponseHandler, Curious)
