"""The Anthropic Messages API over real sockets: faults, cuts and cancels at every place there is."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pytest
from tests.pace import hurry
from tests.provider.wires.anthropic.kit import begun, called, delta, ended, event, said, start
from tests.rows import each_row

from steersman import Agent, Retry
from steersman.provider.http.client import http_stream
from steersman.provider.streaming.normalize import stream_events
from steersman.provider.streaming.retry import with_retry
from steersman.provider.wires.anthropic.wire import WIRE, stream_anthropic
from steersman.testing import answer, error, raises, stall, text
from steersman.testing.servers import AnthropicServer, Delivery, Reply
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Request, StreamFn, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent, TextDelta
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

T = TypeVar("T")
ASKED = Request("", [user_message("Hi")])
QUICK = Retry(base_delay=0, jitter=0)


async def events_from(server: AnthropicServer, stream_fn: StreamFn | None = None, **fields: Any) -> list[StreamEvent]:
    stream = stream_events(stream_fn or stream_anthropic(), server.model(**fields), ASKED, StreamOptions())
    return [event async for event in stream]


def failure(events: list[StreamEvent]) -> ErrorInfo:
    last = events[-1]
    assert isinstance(last, Failed), last
    assert last.error is not None
    return last.error


def message_in(events: list[StreamEvent]) -> AssistantMessage:
    last = events[-1]
    assert isinstance(last, Done), last
    return last.message


STREAM = (
    begun()
    + start(0, "text", text="")
    + delta(0, "text_delta", text="Größe ")
    + delta(0, "text_delta", text="🙂")
    + event("content_block_stop", index=0)
    + called(1, "t1", "look", '{"at":', '"x"}')
    + ended("tool_use")
)
WHOLE = len(STREAM) - 2


async def test_retries_that_are_used_up_keep_the_partial_text() -> None:
    at = STREAM.index(b"content_block_stop")
    stream_fn = with_retry(stream_anthropic(), QUICK)
    async with AnthropicServer(Delivery(STREAM, at=at, ending="reset"), repeat_last=True) as server:
        events = await events_from(server, stream_fn)
    last = events[-1]
    assert isinstance(last, Failed)
    assert (last.message.text, len(server.raw)) == ("Größe 🙂", 3)
    assert "after 3 attempts" in (last.message.error_message or "")


@pytest.mark.parametrize("chunk", [1, 2, 7, 1460])
async def test_the_size_of_chunks_makes_no_difference(chunk: int) -> None:
    """failures.md B1."""
    async with AnthropicServer(Delivery(STREAM, chunk=chunk)) as server:
        message = message_in(await events_from(server))
    assert message.content == [TextContent("Größe 🙂"), ToolCall("t1", "look", {"at": "x"})]


async def test_an_answer_ends_with_its_last_event_not_with_the_connection() -> None:
    """failures.md B8."""
    async with AnthropicServer(Delivery(STREAM, ending="stall")) as server:
        async with asyncio.timeout(20):
            assert message_in(await events_from(server)).tool_calls


async def test_the_last_event_needs_no_blank_line() -> None:
    """failures.md B9."""
    async with AnthropicServer(Delivery(STREAM, at=WHOLE)) as server:
        assert message_in(await events_from(server)).tool_calls


@each_row(
    ("said", "kind", "retried"),
    [
        (error("overloaded"), "overloaded", True),
        (error("overloaded", "Hello", after=1), "overloaded", True),
        (error("rate_limit"), "rate_limit", True),
        (error("authentication"), "authentication", False),
        (error("quota"), "quota", False),
        (error("context_overflow"), "context_overflow", False),
        (error("invalid_request"), "invalid_request", False),
        (error("refused"), "refused", False),
        (raises(ConnectionError()), "network", True),
        (Reply(200, {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}), "rate_limit", True),
        (Reply(200, {"error": {"code": 429, "message": "x"}}), "rate_limit", True),
        (Reply(200, "<html>Sign in</html>", {"content-type": "text/html"}), "protocol", False),
        (Reply(502, "<html>Bad gateway</html>", {"content-type": "text/html"}), "overloaded", True),
        (Reply(413, "too large"), "context_overflow", False),
        (Reply(404, {"type": "error", "error": {"type": "not_found_error", "message": "x"}}), "invalid_request", False),
        (begun() + b"data: {oops\n\n", "protocol", False),
        (b"", "incomplete", True),
    ],
)
async def test_a_failure_is_told_by_what_it_is(said: Any, kind: ErrorKind, retried: bool) -> None:
    """failures.md B10, B11, B13, B17, E2."""
    async with AnthropicServer(said) as server:
        events = await events_from(server)
    last = events[-1]
    if kind == "refused":
        assert isinstance(last, Done)
        assert (last.message.stop_reason, last.message.error_kind) == ("refusal", "refused")
        return
    info = failure(events)
    assert (info.kind, info.should_retry, info.provider) == (kind, retried, "anthropic")
    assert "test-key" not in repr(last)


async def test_a_server_that_asks_to_wait_is_waited_for() -> None:
    """failures.md E1, E4."""
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}
    async with AnthropicServer(Reply(429, body, {"retry-after-ms": "1500", "x-should-retry": "true"})) as server:
        info = failure(await events_from(server))
    assert (info.retry_after, info.retryable, info.request_id, info.status) == (1.5, True, "req_01", 429)


async def test_the_same_bad_request_is_sent_once() -> None:
    """failures.md E5."""
    async with AnthropicServer(error("invalid_request"), repeat_last=True) as server:
        failure(await events_from(server, with_retry(stream_anthropic(), QUICK)))
    assert len(server.raw) == 1


@pytest.mark.parametrize("after", [0, 3], ids=["at once", "in the midst"])
async def test_silence_is_cut_off(after: int) -> None:
    """failures.md B14."""
    loop = asyncio.get_running_loop()

    def begin(_: object) -> object:
        loop.call_soon_threadsafe(hurry)
        return stall("Hello there", after=after) if after else Delivery(b"", ending="stall")

    bounds = {"connect_timeout": None, "first_byte_timeout": 60, "idle_timeout": 60}
    async with AnthropicServer(begin) as server:
        info = failure(await events_from(server, settings=bounds))
        assert await server.raw[0].wait_for_outcome() in ("left", "broken")
    assert (info.kind, info.should_retry) == ("stalled", True)


async def test_pings_alone_may_be_cut_off_too() -> None:
    """failures.md B16."""
    pings = Delivery(begun() + event("ping") * 1000, chunk=40, pace=0.005)
    async with AnthropicServer(pings) as server:
        info = failure(await events_from(server, settings={"content_idle_timeout": 0.05}))
    assert info.kind == "stalled"


async def test_a_key_that_a_server_quotes_is_hidden() -> None:
    """failures.md L13."""
    body = {"type": "error", "error": {"type": "authentication_error", "message": "no such key: test-key"}}
    async with AnthropicServer(Reply(401, body)) as server:
        events = await events_from(server)
    assert "no such key: [redacted]" in failure(events).message
    assert "test-key" not in repr(events)


@pytest.mark.parametrize("after", range(6))
async def test_a_stream_left_early_closes_its_connection(after: int) -> None:
    """failures.md F6."""
    async with AnthropicServer(stall("Hello there", after=4)) as server:
        stream = http_stream(WIRE)(server.model(), ASKED, StreamOptions())
        for _ in range(after):
            await anext(stream)
        await stream.aclose()
        assert [await received.wait_for_outcome() for received in server.raw] == (["left"] if after else [])


async def test_two_pauses_are_one_answer() -> None:
    """failures.md D3: sent back as it is, and gone on with."""
    search = start(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "x"})
    found = start(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"encrypted_content": "ZW5j"}])
    stops = event("content_block_stop", index=0) + event("content_block_stop", index=1)
    first = begun() + search + found + stops + ended("pause_turn")
    async with AnthropicServer(strict=False) as server:
        server.say(first, begun() + said(0, "Still.") + ended("pause_turn"), begun() + said(0, "Done.") + ended())
        events = await events_from(server)
    message = message_in(events)
    assert (message.text, message.stop_reason, message.usage.input, message.usage.output) == (
        "Still.Done.",
        "stop",
        30,
        15,
    )
    assert [len(body["messages"]) for body in server.requests] == [1, 2, 2]
    sent = server.requests[2]["messages"][1]
    assert [block["type"] for block in sent["content"]] == ["server_tool_use", "web_search_tool_result", "text"]
    assert sent["content"][1]["content"] == [{"encrypted_content": "ZW5j"}]
    indices = [event.content_index for event in events if isinstance(event, TextDelta)]
    assert indices == [2, 3]


async def test_the_parts_of_a_paused_answer_have_a_token_limit_each() -> None:
    """failures.md D3: two halves of six tokens are no answer that was cut at ten."""
    pause = answer(text("Wait."), raw_stop_reason="pause_turn", usage=Usage(input=1, output=6))
    async with AnthropicServer(pause, answer("Done.", usage=Usage(input=2, output=6))) as server:
        result = await Agent(server.model(), max_tokens=10).run("Hello?")
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.stop_reason, result.usage.total) == ("Wait.Done.", "stop", 15)


async def test_what_a_paused_answer_cost_is_counted_when_the_rest_of_it_fails() -> None:
    """loop.md T8: the answer is asked for anew, and the part that had come was paid for."""
    pause = answer(text("Wait."), raw_stop_reason="pause_turn", usage=Usage(input=100, output=10))
    script = (pause, error("overloaded"), answer("Done.", usage=Usage(input=100, output=20)))
    async with AnthropicServer(*script) as server:
        result = await Agent(server.model(), retry=Retry(base_delay=0)).run("Hello?")
    assert (result.text, result.usage.total, result.usage.partial) == ("Done.", 230, True)


async def test_a_scripted_pause_is_taken_by_the_strict_server() -> None:
    pause = answer(text("Wait."), raw_stop_reason="pause_turn")
    async with AnthropicServer(pause, "Done.") as server:
        assert message_in(await events_from(server)).text == "Wait.Done."


async def test_pauses_without_end_are_an_error() -> None:
    """failures.md D3: bounded."""
    pause = answer(text("Wait."), raw_stop_reason="pause_turn")
    async with AnthropicServer(pause, repeat_last=True) as server:
        events = await events_from(server)
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.message.error_message == "The server paused its answer 17 times without completing it."
    assert len(server.raw) == 17
