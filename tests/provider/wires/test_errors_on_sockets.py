"""Errors of servers over real sockets, in every protocol: what passes is waited for, what stays is told once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.provider.wires.protocols import SERVERS
from tests.provider.wires.speech import MODELS, Call, Text, spoken, talk
from tests.rows import each_row

from steersman import Agent, Retry
from steersman.testing.servers import Reply, StrictServer
from steersman.types.events import AgentEvent, RetryScheduled

pytestmark = pytest.mark.real_time

AT_ONCE = Retry(base_delay=0.0, jitter=0.0)
PAGE = {"content-type": "text/html"}


async def waits(server: StrictServer, retry: Retry = AT_ONCE) -> tuple[str, list[float]]:
    """How a run ended, and the waits before it was asked again."""
    agent = Agent(server.model(), retry=retry)
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    result = await agent.run("Hi.")
    return result.text or result.detail, [event.delay for event in seen if isinstance(event, RetryScheduled)]


def told(name: str, status: int, words: str = "busy", **more: Any) -> Reply:
    """An error in the protocol's own form."""
    body = SERVERS[name]().build_error_body(status, words)
    body.get("error", body).update(more)
    return Reply(status, body)


@pytest.mark.parametrize("name", SERVERS)
async def test_statuses_that_pass_are_asked_again(name: str) -> None:
    """failures.md E2: with an error in the body, with a page of a proxy, and with nothing."""
    statuses = (408, 409, 429, 500, 502, 503, 504, 529)
    for status in statuses:
        script = (told(name, status), Reply(status, "<html>busy</html>", PAGE), Reply(status, b""))
        async with SERVERS[name](*script, "Fine.") as server:
            assert (await waits(server, Retry(max_attempts=4, base_delay=0)))[0] == "Fine.", status
        assert len(server.raw) == 4


@pytest.mark.parametrize("name", SERVERS)
async def test_statuses_that_stay_are_not(name: str) -> None:
    """failures.md E2, E5: one request, whatever is in the body."""
    for status in (400, 401, 403, 404, 422):
        for reply in (told(name, status, "No such thing."), Reply(status, "<html>No.</html>", PAGE)):
            async with SERVERS[name](reply, "Fine.") as server:
                text, seen = await waits(server)
            assert (text != "Fine.", seen, len(server.raw)) == (True, [], 1), (status, reply)


@pytest.mark.parametrize("name", SERVERS)
async def test_the_servers_own_word_on_asking_again_counts(name: str) -> None:
    """failures.md E4."""
    flaky, final = told(name, 400, "flaky"), told(name, 500, "final")
    async with SERVERS[name](Reply(400, flaky.body, {"x-should-retry": "true"}), "Fine.") as server:
        assert await waits(server) == ("Fine.", [0.0])
    async with SERVERS[name](Reply(500, final.body, {"x-should-retry": "false"}), "Fine.") as server:
        text, seen = await waits(server)
    assert ("final" in text, seen, len(server.raw)) == (True, [], 1)


WAITS: list[tuple[dict[str, str], str, dict[str, Any], float]] = [
    ({"retry-after-ms": "20"}, "busy", {}, 0.02),
    ({"retry-after": "0.02"}, "busy", {}, 0.02),
    ({"retry-after": "0"}, "busy", {}, 0.0),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "busy", {}, 0.0),
    ({"retry-after": "NaN"}, "busy", {}, 0.0),
    ({"retry-after": "-3"}, "busy", {}, 0.0),
    ({}, "busy. Please retry in 20ms.", {}, 0.02),
    ({}, "busy", {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.02s"}]}, 0.02),
]


@each_row(("headers", "words", "more", "seconds"), WAITS)
@each_row("name", SERVERS)
async def test_the_wait_that_a_server_asks_for_is_kept(
    name: str, headers: dict[str, str], words: str, more: dict[str, Any], seconds: float
) -> None:
    """failures.md E1."""
    reply = told(name, 429, words, **more)
    async with SERVERS[name](Reply(429, reply.body, headers), "Fine.") as server:
        assert await waits(server) == ("Fine.", [pytest.approx(seconds)])


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wait_that_is_too_long_is_told_at_once(name: str) -> None:
    """failures.md E1."""
    async with SERVERS[name](Reply(429, told(name, 429).body, {"retry-after": "7200"}), "Fine.") as server:
        text, seen = await waits(server)
    assert ("the server asks to wait 7200 s" in text, seen, len(server.raw)) == (True, [], 1)


@each_row("reply", [Reply(413, b""), Reply(413, "<html>Too large</html>", PAGE)], ids=["none", "page"])
@each_row("name", SERVERS)
async def test_a_request_of_too_many_bytes_is_made_smaller_and_sent_once_more(name: str, reply: Reply) -> None:
    """failures.md E9."""
    rounds = [spoken(name, Text("x" * 4_000), Call(f'{{"n":{n}}}', id=f"c{n}")) for n in range(12)]
    got = await talk(name, *rounds, reply, retry=AT_ONCE)
    assert (got.result.end_reason, got.result.detail, got.result.text) == ("done", "", "Fine.")
    assert len(got.server.raw[13].body) < len(got.server.raw[12].body)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_wait_is_cut_short_by_an_abort(name: str) -> None:
    """failures.md E12: and the next prompt is answered."""
    async with SERVERS[name](Reply(429, told(name, 429).body, {"retry-after": "50"}), "Fine.") as server:
        agent = Agent(server.model(MODELS.get(name, "test-model")), retry=AT_ONCE)
        agent.subscribe(lambda event: agent.abort() if event.type == "retry_scheduled" else None)
        async with asyncio.timeout(10):
            result = await agent.run("Hi.")
        assert (result.end_reason, len(server.raw)) == ("aborted", 1)
        assert (await agent.run("Go on.")).text == "Fine."
