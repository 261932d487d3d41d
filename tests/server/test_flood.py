"""Clients that hold connections without using them: slow heads, slow bodies, and more of them than there is room for.

Server.md 3 and the security of the server: refused, bounded, and logged without secrets.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.server.kit import Client, make_agent, run_listening, run_server
from tests.server.program import run_program

from steersman.server import Server
from steersman.server.http.connections import MOST, find_most

pytestmark = pytest.mark.real_time
SHORT = 0.3
LONG = 60.0


class Raw:
    """A connection whose bytes the test writes itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def is_over(self) -> bool:
        """Whether the server has hung up."""
        return self.reader.at_eof() or self.reader.exception() is not None

    def send(self, text: str) -> None:
        self.writer.write(text.encode())

    async def read_answer(self) -> str:
        """What the server says until it hangs up."""
        try:
            return (await self.reader.read()).decode()
        except ConnectionError:
            return ""


async def connect(client: Client, text: str = "") -> Raw:
    """A connection that has sent this much."""
    where = urlsplit(client.url)
    raw = Raw(*await asyncio.open_connection(where.hostname, where.port))
    raw.send(text)
    return raw


def make_head(client: Client, path: str, method: str = "GET", *more: str) -> str:
    """The head of a request."""
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {client.token}", *more)
    return "\r\n".join(lines) + "\r\n\r\n"


async def close_all(connections: Iterable[Raw]) -> None:
    for raw in connections:
        raw.writer.close()
    for raw in connections:
        with suppress(ConnectionError):
            await raw.writer.wait_closed()


async def test_a_head_that_comes_byte_by_byte_is_cut_off_in_time() -> None:
    """Slowloris: each byte is no new beginning, and other clients are served meanwhile."""
    async with run_listening(Server(make_agent("Yes."), request_seconds=SHORT)) as client:
        slow = [await connect(client) for _ in range(40)]
        idle = [await connect(client) for _ in range(10)]
        head, served = iter(make_head(client, "/" + "x" * 4000)), 0
        while not all(raw.is_over for raw in [*slow, *idle]):
            byte = next(head)
            for raw in slow:
                if not raw.is_over:
                    raw.send(byte)
            status, _ = await client.send("GET", "/healthz")
            served += status == 200
        answers = [await raw.read_answer() for raw in [*slow, *idle]]
        _, metrics = await read_text(client, "/metrics")
        await close_all([*slow, *idle])
    assert set(answers) == {""}
    assert served > 3
    [cut] = re.findall(r"steersman_connections_cut_total (\d+)", metrics)
    assert int(cut) >= 50


async def read_text(client: Client, path: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client.http.get(client.url + path, headers=headers) as response:
        return response.status, await response.text()


async def test_an_idle_connection_is_closed_after_its_answer_in_time() -> None:
    async with run_listening(Server(make_agent("Yes."), request_seconds=SHORT)) as client:
        raw = await connect(client, make_head(client, "/healthz") + "GET /hea")
        answer = await raw.read_answer()
        await close_all([raw])
    assert answer.startswith("HTTP/1.1 200 OK")
    assert answer.count("HTTP/1.1") == 1


@pytest.mark.parametrize("path", ["/sessions", "/agui", "/v1/responses", "/v1/chat/completions", "/a2a", "/mcp"])
async def test_a_body_that_never_ends_is_refused_in_time(path: str) -> None:
    """Every route that reads a body, with the answer before the end of the connection."""
    more = ("Content-Length: 1000", "Content-Type: application/json", "Accept: application/json, text/event-stream")
    async with run_listening(Server(make_agent("Yes."), body_seconds=0.05)) as client:
        slow = [await connect(client, make_head(client, path, "POST", *more) + "{") for _ in range(5)]
        lines = {(await raw.reader.readline()).decode() for raw in slow}
        status, _ = await client.send("GET", "/healthz")
        await close_all(slow)
    assert lines == {"HTTP/1.1 408 Request Timeout\r\n"}
    assert status == 200


async def test_without_the_token_no_body_is_waited_for() -> None:
    async with run_listening(Server(make_agent("Yes."), body_seconds=LONG)) as client:
        head = make_head(client, "/sessions", "POST", "Content-Length: 1000").replace(client.token, "wrong")
        raw = await connect(client, head + "{")
        line = await raw.reader.readline()
        await close_all([raw])
    assert line == b"HTTP/1.1 401 Unauthorized\r\n"


async def test_a_connection_without_a_request_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    """When all places are taken, the one that has waited longest goes; it is logged once, without secrets."""
    server = Server(make_agent("Yes."), max_connections=20, request_seconds=LONG)
    async with run_listening(server) as client:
        slow = [await connect(client, make_head(client, "/healthz")[:-3]) for _ in range(100)]
        status, _ = await client.send("GET", "/healthz")
        for raw in slow[:80]:
            assert await raw.read_answer() == ""
        count = len(server.connections)
        for raw in slow:
            raw.send("\n\r\n")
        lines = [await raw.reader.readline() for raw in slow[-5:]]
        await close_all(slow)
    assert status == 200
    assert count == 20
    assert set(lines) == {b"HTTP/1.1 200 OK\r\n"}
    told = [record.getMessage() for record in caplog.records if record.name == "steersman.server"]
    assert told == ["There are 20 connections, the most that are allowed: those without a request are closed first."]
    assert client.token not in caplog.text


async def test_a_connection_too_many_is_refused_with_words_and_the_server_recovers() -> None:
    """All places are taken by watchers, who are not disturbed."""
    server = Server(make_agent("Yes."), max_connections=5, request_seconds=LONG)
    async with run_listening(server) as client:
        id = await client.create()
        await client.http.close()  # it holds a connection
        watchers = [await connect(client, make_head(client, f"/sessions/{id}/events")) for _ in range(5)]
        for raw in watchers:
            assert await raw.reader.readline() == b"HTTP/1.1 200 OK\r\n"
        refused = [await connect(client, make_head(client, "/healthz")) for _ in range(150)]
        answers = [await raw.read_answer() for raw in refused]
        watching = [raw for raw in watchers if not raw.is_over]
        await close_all([watchers.pop(), *refused])
        found = ""
        while "200 OK" not in found:
            late = await connect(client, make_head(client, "/healthz", "GET", "Connection: close"))
            found = await late.read_answer()
            await close_all([late])
        await close_all(watchers)
    told = [answer for answer in answers if answer]
    assert len(watching) == 5
    assert server.connections.refused >= 150
    assert len(told) == 150
    for answer in told:
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 503 Service Unavailable\r\n")
        assert "Retry-After: 5" in head
        assert body.endswith('"detail":"Too many connections."}')


def test_the_most_connections_leave_files_for_other_things() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 16 <= find_most() <= min(MOST, files * 3 // 4)


async def test_a_head_that_cannot_be_read_is_refused_and_the_log_has_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may hold the token, which is in no log at any level (server.md 3)."""
    caplog.set_level(logging.DEBUG)
    async with run_listening(Server(make_agent("Yes."))) as client:
        for head in (
            f"GET /?token={client.token} HTTP/9\r\n\r\n",
            f"\0{client.token}\r\n\r\n",
            "GET / HTTP/1.1\r\n:\r\n",
        ):
            raw = await connect(client, head + f"Authorization: Bearer {client.token}\r\n\r\n")
            answer = await raw.read_answer()
            assert " 400 Bad Request\r\n" in answer
            assert client.token not in answer
            await close_all([raw])
        large = await connect(client, f"GET / HTTP/1.1\r\nX: {client.token}{'x' * 100_000}\r\n\r\n")
        assert "400 Bad Request" in await large.read_answer()
        await close_all([large])
    assert client.token not in caplog.text


async def read_until(raw: Raw, words: bytes) -> None:
    """Read until these words have come."""
    tail = b""
    while words not in tail:
        tail = tail[-len(words) :] + await raw.reader.read(4096)


async def test_a_watcher_that_does_not_read_holds_a_large_record_once() -> None:
    """S4: neither the socket nor the encoding of the response keeps another copy."""
    size = 8 << 20
    async with run_server(make_agent("x" * size)) as client:
        id = await client.create()
        await client.act(id, "prompt", {"content": "Hi"})
        head = make_head(client, f"/sessions/{id}/events")
        reading = await connect(client, head)
        await read_until(reading, b"agent_end")
        tracemalloc.start()
        try:
            raw = await connect(client, head)
            await read_until(raw, b"x" * 1000)  # from here on, the large record is being sent
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await close_all([reading, raw])
    assert held < 2 * size


async def open_many(client: Client, count: int, text: str) -> list[Raw]:
    """So many connections that have sent this much, opened some at a time."""
    found: list[Raw] = []
    while len(found) < count:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(connect(client, text)) for _ in range(100)]
        found += [task.result() for task in tasks]
    return found


async def read_status(raw: Raw) -> str:
    """The status of the answer; empty if the server has hung up."""
    try:
        return (await raw.reader.readline()).decode()[9:12]
    except ConnectionError:
        return ""


def read_memory(pid: int, name: str = "VmRSS") -> int:
    """The megabytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) // 1024


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("files", [18_000, 1024])
async def test_ten_thousand_connections(tmp_path: Path, files: int) -> None:
    """With enough files they are served, with few the rest is refused; memory is bounded, and the server recovers."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 12_000:
        pytest.skip("This process may not open 12,000 files.")
    async with run_program(tmp_path, "ask", files=files) as (program, client):
        pid = program.pid
        id = await client.create()
        before = read_memory(pid)
        watchers = await open_many(client, 5_000, make_head(client, f"/sessions/{id}/events"))
        statuses = Counter([await read_status(raw) for raw in watchers])
        slow = await open_many(client, 5_000, make_head(client, "/healthz")[:-3])
        during = read_memory(pid)
        started = time.monotonic()
        once = make_head(client, "/healthz", "GET", "Connection: close")
        served = Counter([(await send_once(client, once))[9:12] for _ in range(20)])
        seconds = (time.monotonic() - started) / 20
        closed = sum(raw.is_over for raw in slow)
        await close_all([*watchers, *slow])
        await client.http.close()
        text = ""
        while re.search(r"steersman_connections [1-5]\n", text) is None:  # until the server sees that they are gone
            text = await send_once(client, make_head(client, "/metrics", "GET", "Connection: close"))
        again = await send_once(client, make_head(client, "/sessions", "GET", "Connection: close"))
        after, peak = read_memory(pid), read_memory(pid, "VmHWM")
    print(
        f"files={files}: watchers {dict(statuses)}, slow ones closed {closed}; healthz {dict(served)} in "
        f"{seconds * 1000:.1f} ms; memory {before} MB, {during} MB with all, {after} MB afterwards, {peak} MB at most"
    )
    assert again.startswith("HTTP/1.1 200 OK")
    assert peak < 400
    if files > 10_000:
        assert (statuses["200"], served["200"]) == (5_000, 20)
    else:
        assert served["503"] == 20
        assert 700 <= statuses["200"] <= 768


async def send_once(client: Client, text: str) -> str:
    """The answer to one request on a connection of its own."""
    raw = await connect(client, text)
    found = await raw.read_answer()
    await close_all([raw])
    return found
