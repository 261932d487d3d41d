"""Watchers whose connection breaks at any byte, over real sockets: they come back and miss nothing (S1, S2)."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.server.kit import Client, check_order, run_server
from tests.server.streams import STREAMS, Stream

from steersman.session import MemoryStore

pytestmark = pytest.mark.real_time
Found = list[tuple[str, bytes]]
# So many watchers of one run, each of which leaves at another byte; more than the backlog of a socket would wait.
WATCHERS = 100
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Reader:
    """Reads the events of a response with its head and its chunks, as far as the bytes have come."""

    events: Found = field(default_factory=lambda: Found())
    size: int = 0
    _raw: bytes = b""
    _body: bytes = b""
    _has_head: bool = False
    _left: int = 0

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        self._raw += data
        if not self._has_head:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 200 "), head
            assert b"Transfer-Encoding: chunked" in head
            self._has_head, self._raw = True, rest
        while self._read_chunk():
            pass
        *frames, self._body = self._body.split(b"\n\n")
        for frame in frames:
            if not frame.startswith(b":"):
                first, _, second = frame.partition(b"\n")
                assert first.startswith(b"id: "), frame
                assert second.startswith(b"data: "), frame
                self.events.append((first[4:].decode(), second[6:]))

    def _read_chunk(self) -> bool:
        """Take what is there of a chunk; whether there may be more."""
        if self._left > 2:
            taken = self._raw[: self._left - 2]
            self._body += taken
            self._raw = self._raw[len(taken) :]
            self._left -= len(taken)
        if 0 < self._left <= 2:
            gone = min(self._left, len(self._raw))
            self._raw, self._left = self._raw[gone:], self._left - gone
        if self._left == 0:
            line, found, rest = self._raw.partition(b"\r\n")
            if not found:
                return False
            self._raw, self._left = rest, int(line, 16) + 2
        return bool(self._raw)


def count_ends(events: Found) -> int:
    """How many runs have ended, without those of sub-agents, whose ends are no records."""
    return sum("." not in position and data.startswith(b'{"type":"agent_end"') for position, data in events)


async def watch(
    client: Client, id: str, *, after: str = "", ends: int, most: int | None = None, way: int = 0
) -> Reader:
    """Read the events after a position, until so many runs have ended or so many bytes have come, and hang up.

    `way` is how: the position in the header or in the query, and a connection that is closed or reset.
    """
    where = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    query, header = (f"?after={after}", "") if way & 1 and after else ("", f"Last-Event-ID: {after}\r\n")
    head = f"GET /sessions/{id}/events{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {client.token}\r\n"
    writer.write(f"{head}{header if after else ''}\r\n".encode())
    found = Reader()
    try:
        while (most is None or found.size < most) and count_ends(found.events) < ends:
            data = await reader.read(65536 if most is None else most - found.size)
            assert data, "the server hung up"
            found.feed(data)
    finally:
        if way & 2:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.close()
    return found


@dataclass
class Counts:
    """What a campaign has seen. `in_mid_run` are the watchers that came back while the run went on."""

    size: int = 0
    watchers: int = 0
    connections: int = 0
    in_mid_run: int = 0
    is_over: bool = False


async def leave_and_return(client: Client, stream: Stream, id: str, most: int, counts: Counts) -> Found:
    """The events of a watcher that leaves after so many bytes and comes back with the last position it has seen."""
    counts.watchers += 1
    first = (await watch(client, id, ends=stream.runs, most=most, way=most)).events
    counts.connections += 1
    ends = count_ends(first)
    if ends == stream.runs:
        return first
    counts.in_mid_run += not counts.is_over
    after = first[-1][0] if first else ""
    second = await watch(client, id, after=after, ends=stream.runs - ends, way=most >> 1)
    counts.connections += 1
    return first + second.events


def join_deltas(events: Sequence[tuple[str, bytes]]) -> list[tuple[str, Any]]:
    """The events with neighbouring deltas of one block joined, as a watcher that is behind gets them (S4)."""
    joined: list[tuple[str, Any]] = []
    for position, data in events:
        event = json.loads(data)
        delta = event.get("delta", {})
        if event["type"] == "message_update" and "delta" in delta and joined and _belong(joined[-1], position, delta):
            before = joined[-1][1]["delta"]["delta"]
            event["delta"] = {**delta, "delta": before + delta["delta"]}
            joined.pop()
        joined.append((position, event))
    return joined


def _belong(last: tuple[str, Any], position: str, delta: Any) -> bool:
    before = last[1].get("delta", {})
    names = ("type", "content_index")
    same = "delta" in before and all(before.get(name) == delta.get(name) for name in names)
    return same and last[0].partition(".")[0] == position.partition(".")[0]


def check_union(found: Found, whole: Found) -> None:
    """Nothing twice, nothing missing, and the order is kept."""
    if found != whole:
        assert join_deltas(found) == join_deltas(whole)


def keep_records(events: Found) -> Found:
    """The events that are in the log."""
    return [(position, data) for position, data in events if "." not in position]


async def play(client: Client, other: Client, stream: Stream, places: Sequence[int], counts: Counts) -> int:
    """One run with a watcher for each of these numbers of bytes; returns the bytes of the whole stream.

    `other` is another server on the same store, as after a restart: it knows the records and nothing else.
    """
    id = await client.create()
    counts.is_over = False
    # One watcher stays to the end, so that the session is not closed as idle, which would forget its deltas.
    async with client.watch(id), asyncio.TaskGroup() as group:
        stays = group.create_task(watch(client, id, ends=stream.runs))
        leave = [group.create_task(leave_and_return(client, stream, id, most, counts)) for most in places]
        await stream.play(client, id)
        whole = (await stays).events
        counts.is_over = True
    check_order([(position, json.loads(data)) for position, data in whole])
    assert (await watch(other, id, ends=stream.runs)).events == keep_records(whole)
    for task in leave:
        check_union(task.result(), whole)
    counts.size = max(counts.size, stays.result().size)
    return stays.result().size


async def come_back_elsewhere(client: Client, other: Client, stream: Stream, counts: Counts) -> None:
    """After a restart, what comes after each position is the rest of the log."""
    id = await client.create()
    async with asyncio.TaskGroup() as group:
        stays = group.create_task(watch(client, id, ends=stream.runs))
        await stream.play(client, id)
    whole = stays.result().events
    for at, (position, _) in enumerate(whole[:-1]):
        ends = count_ends(whole[at + 1 :])
        rest = await watch(other, id, after=position, ends=ends, way=at)
        assert rest.events == keep_records(whole[at + 1 :])
        counts.connections += 1


@pytest.mark.parametrize("stream", [STREAMS[1], STREAMS[6]], ids=lambda stream: stream.name)
async def test_a_watcher_that_leaves_at_a_byte_misses_nothing(stream: Stream) -> None:
    """S2: what was seen and what comes after it are the log, also on another server with the same store."""
    store, counts = MemoryStore(), Counts()
    async with run_server(stream.agent, store=store) as client, run_server(stream.agent, store=store) as other:
        size = await play(client, other, stream, [], counts)
        await play(client, other, stream, range(0, size, max(size // 40, 1)), counts)
        await come_back_elsewhere(client, other, stream, counts)
    assert counts.watchers >= 40


@pytest.mark.soak
@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
async def test_a_watcher_may_leave_at_every_byte(stream: Stream, record_property: Any) -> None:
    """S2: the same for every byte of twenty streams, with the head and the chunks of HTTP."""
    store, counts = MemoryStore(), Counts()
    async with run_server(stream.agent, store=store) as client, run_server(stream.agent, store=store) as other:
        # Times and ids make the stream a little longer or shorter from run to run.
        size = await play(client, other, stream, [], counts) + 64
        start = 0
        while start < size:
            size = max(size, await play(client, other, stream, range(start, start + WATCHERS), counts) + 1)
            start += WATCHERS
        await come_back_elsewhere(client, other, stream, counts)
    print(f"{stream.name}: {counts}")
    assert counts.watchers >= counts.size


async def test_a_client_that_hangs_up_at_once_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """A connection that is reset before its answer is written is not logged as an error, and is counted."""
    async with run_server(STREAMS[0].agent) as client:
        id = await client.create()
        for _ in range(60):
            await watch(client, id, ends=1, most=0, way=2)
        _, shown = await client.send("GET", f"/sessions/{id}")
    assert shown["status"] == "idle"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
