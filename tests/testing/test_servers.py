"""What the strict servers share, seen by a plain HTTP client."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import aiohttp
import pytest
from tests.provider.wires.kit import PlainServer

from steersman.testing import answer, call, cut, error
from steersman.testing.servers.base import Delivery, Received, Reply, encode_arguments, split_text, sse
from steersman.types.errors import ErrorInfo, RateLimitError
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

KEY = {"authorization": "Bearer test-key"}


async def post(server: PlainServer, body: Any = None, path: str = "/ask") -> tuple[int, bytes]:
    url = server.url + path
    async with aiohttp.ClientSession() as client, client.post(url, json=body or {"text": ["?"]}, headers=KEY) as got:
        return got.status, await got.read()


async def test_a_turn_is_played_for_each_request_and_each_request_is_kept() -> None:
    async with PlainServer(answer("hello", deltas=2), "b") as server:
        assert await post(server) == (200, sse({"t": "he"}) + sse({"t": "llo"}) + sse("[DONE]"))
        assert server.left == 1
        assert await post(server, {"text": ["more"]}) == (200, sse({"t": "b"}) + sse("[DONE]"))

    assert server.requests == [{"text": ["?"]}, {"text": ["more"]}]
    assert [(received.method, received.path) for received in server.raw] == [("POST", "/v1/ask")] * 2
    assert [await received.wait_for_outcome() for received in server.raw] == ["answered", "answered"]


async def test_an_invalid_request_gets_the_words_of_the_api_and_uses_up_no_turn() -> None:
    async with PlainServer("hi", key="another") as server:
        assert await post(server) == (401, b'{"error":"wrong key Bearer test-key"}')
        assert server.left == 1

    async with PlainServer("hi", key="another", strict=False) as server:
        assert (await post(server))[0] == 200


async def test_a_script_that_is_over_says_so_unless_it_repeats() -> None:
    async with PlainServer("a") as server:
        await post(server)
        assert await post(server) == (500, b'{"error":"The script has 1 entries, but this is request number 2."}')
        server.say("b")
    async with PlainServer("a", repeat_last=True) as server:
        assert await post(server) == await post(server)


async def test_an_unknown_path_is_not_found() -> None:
    async with PlainServer("a") as server:
        assert await post(server, path="/nowhere") == (404, b'{"error":"Not found: POST /v1/nowhere"}')


async def test_a_scripted_error_is_a_status_before_the_first_delta_and_an_event_after_it() -> None:
    limit = RateLimitError("slow down", retry_after=3, retryable=True)
    async with PlainServer(
        error("overloaded"), error(limit), error("overloaded", "abcd", after=1), ErrorInfo("quota", "none left")
    ) as server:
        assert (await post(server))[0] == 503
        async with aiohttp.ClientSession() as client, client.post(f"{server.url}/ask", headers=KEY) as got:
            heads = [got.headers[name] for name in ("retry-after", "x-should-retry", "x-request-id")]
            assert (got.status, heads) == (429, ["3", "true", "req-7"])
        assert await post(server) == (200, sse({"t": "a"}) + sse({"error": "scripted error: overloaded"}))
        assert (await post(server))[0] == 402


@pytest.mark.parametrize("chunk", [None, 1, 10])
async def test_a_stream_can_end_anywhere(chunk: int | None) -> None:
    whole = sse({"t": "a"}) + sse({"t": "b"}) + sse("[DONE]")
    async with PlainServer(*(Delivery("ab", at=at, chunk=chunk) for at in range(len(whole) + 1)), cut("ab")) as server:
        for at in range(len(whole) + 1):
            assert await post(server) == (200, whole[:at])
        assert await post(server) == (200, sse({"t": "a"}) + sse({"t": "b"}))


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_connection_can_break_anywhere(ending: Any) -> None:
    async with PlainServer(
        Delivery("ab", at=5, ending=ending),
        Delivery("ab", at=0, ending=ending),
        Delivery("", ending=ending, head=False),
    ) as server:
        for _ in range(3):
            with pytest.raises(aiohttp.ClientError):
                await post(server)
        assert [await received.wait_for_outcome() for received in server.raw] == ["broken"] * 3


async def test_a_turn_may_depend_on_what_was_asked() -> None:
    async def later(received: Received) -> Reply:
        return Reply(201, {"heard": received.json})

    async with PlainServer(lambda received: str(received.json["text"]), later) as server:
        assert b"['?']" in (await post(server))[1].replace(b'"}\n\ndata: {"t":"', b"")
        assert await post(server) == (201, b'{"heard":{"text":["?"]}}')


def test_a_server_can_be_used_without_an_event_loop() -> None:
    with PlainServer("a") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.model("x", context_window=5).context_window == 5
        assert server.model().name == "plain:test-model"


def test_pieces_are_none_of_them_empty() -> None:
    assert split_text("hello", 2) == ["he", "llo"]
    assert split_text("hi", 9) == ["h", "i"]
    assert split_text("") == split_text("x", 0) == []


def test_arguments_are_as_the_model_wrote_them() -> None:
    assert encode_arguments(call("f", a=1)) == '{"a":1}'
    assert encode_arguments(call("f", raw='{"a":')) == '{"a":'


async def test_usage_and_ids_are_filled_in_where_the_script_is_silent() -> None:
    seen: list[Any] = []

    class Seeing(PlainServer):
        def render(self, turn: Any, received: Received) -> Any:
            seen.append(turn)
            return []

    async with Seeing(answer(call("f"), call("g", id="own"), call("h")), "x", usage=Usage(input=1)) as server:
        await post(server)
        await post(server)
    assert [[block.id for block in turn.blocks if hasattr(block, "id")] for turn in seen] == [
        ["call_1", "own", "call_2"],
        [],
    ]
    assert [turn.usage for turn in seen] == [Usage(input=1), Usage(input=1)]


def test_the_test_kit_does_not_load_http() -> None:
    program = "import sys, steersman.testing, steersman.testing.servers; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
