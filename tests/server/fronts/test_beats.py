"""Signs of life: a stream is never silent for long (server.md 3)."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession, web

from steersman.server.fronts.beats import BEAT, keep_alive

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
