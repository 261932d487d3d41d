"""The fast path accepts what aiohttp accepts, with the same body, whatever the bytes and cuts: a differential fuzz.

`make fuzz` tries 50,000 new responses against aiohttp's compiled parser, in memory, and some on real sockets, with
aiohttp's parser in Python, and with its strict mode. `make test` tries the same few every time.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest
from aiohttp import ClientTimeout
from tests.conftest import EXAMPLES, SOAK
from tests.provider.http.differential import (
    Bench,
    MemoryConnector,
    PlainResponse,
    Reading,
    Verdict,
    find_differences,
    is_same,
)
from tests.provider.http.responses import cut_at, make_response, split_response
from tests.rows import each_row

from steersman.provider.http.client import aclose_http
from steersman.provider.http.pool import open_pool
from steersman.provider.http.response import Response

pytestmark = [pytest.mark.real_time, *([pytest.mark.fuzz] if SOAK else [])]

SEED = secrets.token_hex(8) if SOAK else "the same every time"
GROUPS = 10
# In all groups together; 50,000 with the default number of examples.
COUNT = 100 * EXAMPLES if SOAK else 2_000
# Each of these is a process of its own.
ASIDE = 10 * EXAMPLES if SOAK else 300
ON_SOCKETS = 4 * EXAMPLES if SOAK else 100
TURNS = 200

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
BODY = b"\r\n5\r\nhello\r\n0\r\n\r\n"


@pytest.mark.parametrize("group", range(GROUPS))
async def test_the_fast_path_accepts_what_aiohttp_accepts(group: int) -> None:
    assert await find_differences(COUNT // GROUPS, f"{SEED} {group}") == []


@pytest.mark.parametrize(
    ("options", "variables"),
    [((), {"AIOHTTP_NO_EXTENSIONS": "1"}), (("-X", "dev"), {})],
    ids=["the parser in Python", "the strict mode"],
)
async def test_it_accepts_what_the_other_parsers_of_aiohttp_accept(
    options: Sequence[str], variables: dict[str, str]
) -> None:
    command = [sys.executable, *options, "-m", "tests.provider.http.differential", str(ASIDE), SEED]
    child = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **variables}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await child.communicate()
    assert (out.strip(), child.returncode) == (b"", 0), (out + err).decode()


REFUSED = {
    "a line without a colon": [HEAD + b"no colon\r\n" + BODY],
    "a space before the colon": [HEAD + b"X : y\r\n" + BODY],
    "a NUL in a value": [HEAD + b"X: a\0b\r\n" + BODY],
    "a bare CR in a value": [HEAD + b"X: a\rb\r\n" + BODY],
    "a bare CR in a head that is not complete": [HEAD + b"X: a\rb"],
    "a trailer without a colon": [HEAD + b"\r\n", b"5\r\nhello\r\n0\r\nno colon\r\n\r\n"],
    "a trailer with a space before its colon": [HEAD + b"\r\n", b"5\r\nhello\r\n0\r\nX : y\r\n\r\n"],
    "a NUL in an extension": [HEAD + b"\r\n", b"5;a\0\r\nhello\r\n0\r\n\r\n"],
    "a size that is none": [HEAD + b"\r\n", b"zz"],
    "a content longer than its size": [HEAD + b"\r\n", b"5\r\nhello", b"w"],
    "a length as well": [HEAD + b"Content-Length: 5\r\n" + BODY],
    "too many lines": [HEAD + b"X: y\r\n" * 130 + BODY],
    "a line that is too long": [HEAD + b"X: " + b"y" * 8200 + b"\r\n" + BODY],
    "garbage together with the whole response": [HEAD + BODY + b"\0"],
}  # fmt: skip


@each_row("case", REFUSED)
async def test_what_aiohttp_refuses_is_refused(case: str) -> None:
    async with MemoryConnector() as connector:
        bench = Bench(connector)
        assert await bench.compare(REFUSED[case]) is None
        assert bench.last is not None
        assert bench.last.state == "refused"


ACCEPTED = {
    "the usual": HEAD + BODY,
    "extensions": HEAD + b'\r\n5;a\r\nhello\r\n0;a="b"\r\n\r\n',
    "a trailer": HEAD + BODY.replace(b"0\r\n", b"0\r\nX: y\r\n"),
    "bare line feeds in the head": HEAD.replace(b"\r\n", b"\n") + BODY,
    "a space behind the size": HEAD + BODY.replace(b"5", b"5 "),
    "bytes above ASCII": HEAD + b"X: \xff\r\n" + BODY,
    "a long extension": HEAD + BODY.replace(b"5", b"5;" + b"e" * 20_000),
    "a folded line": HEAD + b"X: y\r\n folded\r\n" + BODY,
    "many zeros": HEAD + BODY.replace(b"5", b"0" * 40 + b"5"),
}


@each_row("case", ACCEPTED)
async def test_what_aiohttp_accepts_is_accepted_at_every_cut(case: str) -> None:
    wire = ACCEPTED[case]
    places = range(1, len(wire)) if len(wire) < 1000 else [*range(1, 140), 9000, *range(len(wire) - 30, len(wire))]
    async with MemoryConnector() as connector:
        bench = Bench(connector)
        for at in places:
            assert await bench.compare(cut_at(wire, [at])) is None
            assert bench.last is not None
            assert (bench.last.state, bench.last.body) == ("complete", b"hello"), at


async def test_a_body_whose_trailer_is_cut_short_is_what_aiohttp_says() -> None:
    """A trailer that names another coding ends the chunks for aiohttp, so that the end of the connection is the end."""
    async with MemoryConnector() as connector:
        bench = Bench(connector)
        for trailer, state in ((b"Transfer-Encoding: n", "complete"), (b"X: n", "refused")):
            assert await bench.compare([HEAD + b"\r\n5\r\nhello\r\n", b"0\r\n" + trailer]) is None
            assert bench.last is not None
            assert (bench.last.state, bench.last.body) == (state, b"hello")


async def test_a_body_that_aiohttp_refuses_ends_at_once_with_either_reader() -> None:
    """aiohttp's own reader would wait for the rest, although its parser has closed the connection."""
    packed = HEAD + b"Content-Encoding: identity\r\n\r\n5\r\nhello\r\n"
    async with MemoryConnector() as connector:
        bench = Bench(connector)
        assert await bench.compare([packed, b"zz\r\n"]) is None
        assert bench.last is not None
        assert (bench.last.state, bench.last.body) == ("refused", b"hello")


async def test_the_fast_path_accepts_what_aiohttp_accepts_on_sockets() -> None:
    rng = Random(f"{SEED} sockets")
    async with SocketBench.opened() as bench:
        for _ in range(ON_SOCKETS):
            parts = split_response(rng, make_response(rng))
            ours, theirs = await bench.read_both(parts)
            assert is_same(ours, theirs), (parts, ours, theirs)


class SocketBench:
    """A server that sends given bytes in given cuts, and two clients that read them: ours and aiohttp's own."""

    def __init__(self) -> None:
        self._parts: Sequence[bytes] = []
        self._url = ""
        self._sent = asyncio.Event()

    async def read_both(self, parts: Sequence[bytes]) -> tuple[Verdict, Verdict]:
        self._parts = parts
        return await self._read(self._post_fast()), await self._read(self._post_plainly())

    async def _post_fast(self) -> Response:
        pool = await open_pool()
        return await pool.post(self._url, {}, {}, b"{}", proxy=None, timeout=ClientTimeout(total=None))

    async def _post_plainly(self) -> PlainResponse:
        session = (await open_pool()).session
        answer = await session.post(self._url, data=b"{}", allow_redirects=False)
        return PlainResponse(answer.status, answer.headers, answer.content, answer)

    async def _read(self, receiving: Awaitable[Response | PlainResponse]) -> Verdict:
        self._sent.clear()
        reading = Reading(receiving)
        await self._sent.wait()
        await settle(lambda: reading.is_over)
        verdict = reading.judge(closed=True)
        await reading.stop()
        await aclose_http()
        return verdict

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        for part in self._parts:
            writer.write(part)
            # Both ends are on this loop: what was sent is read before the next part is.
            await settle(lambda: False, turns=5)
        writer.close()
        self._sent.set()

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> AsyncGenerator[SocketBench, None]:
        bench = cls()
        server = await asyncio.start_server(bench.accept, "127.0.0.1", 0)
        bench._url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        try:
            yield bench
        finally:
            server.close()


async def settle(is_over: Callable[[], bool], *, turns: int = TURNS) -> None:
    """Give the event loop turns, until it is over."""
    for _ in range(turns):
        if is_over():
            break
        await asyncio.sleep(0)
