"""Server-sent events of the fronts: one line each, and never silent for long (server.md 3)."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import ClientSession, web

from steersman.server.fronts.sse import BEAT, encode_data, keep_alive

pytestmark = pytest.mark.real_time


async def test_a_stream_that_has_nothing_to_say_shows_that_it_is_alive() -> None:
    heard = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async with keep_alive(response, 0.001):
            await heard.wait()
        return response

    app = web.Application()
    app.router.add_get("/", respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http, http.get(f"http://127.0.0.1:{runner.addresses[0][1]}/") as response:
        assert await response.content.readuntil(b"\n\n") == BEAT
        heard.set()
        rest = await response.content.read()
    assert rest.replace(BEAT, b"") == b""
    await runner.cleanup()


def test_data_is_one_line_however_a_client_splits_lines() -> None:
    """The Python client of A2A splits at all that `str.splitlines` does."""
    value = {"text": "one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven\r\neight \u20a8 \u2027 \U0001f600"}
    text = encode_data(value).decode()
    assert len(text.splitlines()) == 1
    assert json.loads(text) == value
