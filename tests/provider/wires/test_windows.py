"""A window that is too small, on real sockets and in all four protocols: told in words, in bytes, or only by a bill."""

from __future__ import annotations

from typing import Any

import pytest
from tests.loop.test_compaction import history
from tests.loop.toolbox import echo
from tests.provider.wires.protocols import SERVERS

from steersman import Agent, AgentMessage, AssistantMessage, Retry, RunResult, Usage
from steersman.provider.scripted.script import Turn
from steersman.testing import EventCollector, answer, call, check_events
from steersman.testing.servers import Reply, StrictServer
from steersman.types.content import ImageContent, TextContent
from steersman.types.events import CompactionEnded, RetryScheduled
from steersman.types.messages import UserMessage

pytestmark = pytest.mark.real_time

WINDOW = 200_000
SHARED = "input length and `max_tokens` exceed context limit: {} + {} > 200000, decrease input length or `max_tokens`"
OWN_WORDS = {
    "bedrock": (400, "Input is too long for requested model.", "ValidationException"),
    "anthropic": (400, "prompt is too long: 213462 tokens > 200000 maximum", None),
    "google": (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", None),
    "openai": (
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "context_length_exceeded",
    ),
    "responses": (
        400,
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "context_length_exceeded",
    ),
}
OLD, NEW = "b2xk" * 5_000, "bmV3" * 10


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Any:
    """A server of each protocol."""
    with SERVERS[request.param]() as server:
        yield server


def name_of(server: StrictServer) -> str:
    return next(name for name, kind in SERVERS.items() if type(server) is kind)


def most(server: StrictServer, index: int) -> int:
    """How many tokens a request lets the model write."""
    body = server.requests[index]
    match name_of(server):
        case "bedrock":
            return body["inferenceConfig"]["maxTokens"]
        case "google":
            return body["generationConfig"]["maxOutputTokens"]
        case "responses":
            return body["max_output_tokens"]
        case _:
            return body["max_tokens"]


def said(server: StrictServer, index: int) -> list[Any]:
    """The messages of a request as they went over the wire."""
    body = server.requests[index]
    return next(body[name] for name in ("messages", "contents", "input") if name in body)


async def run(
    server: StrictServer,
    prompt: Any = "Go on.",
    *,
    messages: list[AgentMessage] | None = None,
    window: int | None = None,
    **options: Any,
) -> tuple[RunResult, EventCollector]:
    """What comes of a prompt, and all events; they follow the grammar."""
    agent = Agent(
        server.model(context_window=window),
        tools=[echo],
        messages=history(10, 4_000) if messages is None else messages,
        retry=Retry(base_delay=0.0, jitter=0.0),
        context_config=None,  # the server refuses, or bills, what was not kept small before
        **options,
    )
    heard = EventCollector()
    agent.subscribe(heard)
    result = await agent.run(prompt)
    check_events(heard)
    return result, heard


def compactions(heard: EventCollector) -> list[bool]:
    return [event.reduced for event in heard.of(CompactionEnded)]


def last(result: RunResult) -> AssistantMessage:
    message = result.messages[-1]
    assert isinstance(message, AssistantMessage)
    return message


async def test_an_overflow_in_the_servers_own_words_is_compacted_and_answered(server: StrictServer) -> None:
    """failures.md E6"""
    server.say(server.refusal(*OWN_WORDS[name_of(server)]), answer("Fine.", usage=Usage(input=900, output=3)))
    result, heard = await run(server)
    assert (result.end_reason, result.text, compactions(heard)) == ("done", "Fine.", [True])
    assert heard.of(RetryScheduled) == []
    assert len(server.raw[1].body) < len(server.raw[0].body) // 2
    assert (result.usage.input, result.usage.output, result.usage.partial) == (900, 3, False)


async def test_a_second_overflow_is_told_as_the_error_it_is(server: StrictServer) -> None:
    """failures.md E6: compact once, retry once."""
    server.say(*(server.refusal(*OWN_WORDS[name_of(server)]) for _ in range(2)), "never said")
    result, heard = await run(server)
    assert (result.end_reason, compactions(heard), len(server.raw)) == ("error", [True], 2)
    assert last(result).error_kind == "context_overflow"


async def test_too_many_tokens_a_minute_are_waited_for_and_not_compacted(server: StrictServer) -> None:
    """failures.md E6: the negative table comes first."""
    server.say(server.refusal(429, "Too many tokens, please wait before trying again."), "Fine.")
    result, heard = await run(server)
    assert (result.text, compactions(heard), len(heard.of(RetryScheduled))) == ("Fine.", [], 1)
    assert server.raw[0].body == server.raw[1].body


@pytest.mark.parametrize("words", ["max_tokens: must be at least 1", "image exceeds the limit of 5 MB"])
async def test_another_limit_is_not_compacted(server: StrictServer, words: str) -> None:
    """failures.md E6, E5: the same request would be refused again."""
    server.say(server.refusal(400, words), "never said")
    result, heard = await run(server)
    assert (result.end_reason, compactions(heard), len(server.raw)) == ("error", [], 1)
    assert last(result).error_kind == "invalid_request"


async def test_a_bill_for_more_than_the_window_holds_is_an_overflow(server: StrictServer) -> None:
    """failures.md E8: the server cut the request silently and answered what was left of it."""
    blind = Usage(input=3_000, output=5, cache_read=6_000)
    server.say(answer("Blind.", usage=blind), answer("Fine.", usage=Usage(input=900, output=3, cache_read=0)))
    result, heard = await run(server, window=8_000)
    assert (result.end_reason, result.text, heard.text, compactions(heard)) == ("done", "Fine.", "Fine.", [True])
    assert (result.usage.input, result.usage.cache_read, result.usage.output) == (3_900, 6_000, 8)


async def test_it_is_an_error_that_says_so_where_nothing_can_be_freed(server: StrictServer) -> None:
    """failures.md E8, loop.md C5: its words are kept."""
    server.say(answer("Blind.", usage=Usage(input=3_000, output=5, cache_read=6_000)))
    result, heard = await run(server, messages=[], window=8_000)
    assert (result.end_reason, result.error_kind, compactions(heard)) == ("error", "context_overflow", [False])
    assert "Compaction could free nothing more" in result.detail
    assert (result.messages[-1].text, result.usage.input) == ("Blind.", 3_000)


async def test_an_answer_comes_back_where_the_shorter_request_fails(server: StrictServer) -> None:
    """failures.md E8: an answer to a part of the request is better than none."""
    server.say(answer("Blind.", usage=Usage(input=9_000, output=5)), server.refusal(400, "no"))
    result, heard = await run(server, window=8_000)
    assert (result.end_reason, result.text, heard.text, compactions(heard)) == ("done", "Blind.", "Blind.", [True])
    assert (result.usage.input, result.usage.output) == (9_000, 5)


async def test_a_bill_within_the_window_is_none(server: StrictServer) -> None:
    """failures.md E8"""
    server.say(answer("Fine.", usage=Usage(input=2_000, output=5, cache_read=6_000)))
    result, heard = await run(server, window=8_000)
    assert (result.text, compactions(heard), len(server.raw)) == ("Fine.", [], 1)


async def test_a_fallback_is_judged_by_its_own_window(server: StrictServer) -> None:
    """failures.md E8: what is too long for one model is not for the next."""
    with SERVERS["openai"](answer("Fine.", usage=Usage(input=9_000, output=5))) as other:
        server.say(server.refusal(401, "no such key"))
        larger = other.model("larger", context_window=100_000)
        result, heard = await run(server, window=8_000, fallbacks=[larger])
        assert (result.text, compactions(heard), len(other.raw)) == ("Fine.", [], 1)


def full(*blocks: str) -> Turn:
    """An answer that was cut because the request fills the window of 8,000 tokens."""
    return answer(*blocks, stop_reason="length", usage=Usage(input=7_990, output=0))


async def test_no_answer_because_the_window_is_full_is_an_overflow(server: StrictServer) -> None:
    """failures.md E8: a gateway turns the overflow into an answer of no length."""
    server.say(full(), "Fine.")
    result, heard = await run(server, window=8_000)
    assert (result.end_reason, result.text, compactions(heard)) == ("done", "Fine.", [True])


async def test_no_answer_also_after_compaction_is_an_error_that_says_why(server: StrictServer) -> None:
    """failures.md E8"""
    server.say(full(), full(), "never said")
    result, heard = await run(server, window=8_000)
    assert (result.end_reason, compactions(heard), len(server.raw)) == ("error", [True], 2)
    assert last(result).error_kind == "context_overflow"
    assert "no room for an answer" in result.detail


async def test_an_answer_that_was_cut_is_kept_for_what_it_says(server: StrictServer) -> None:
    """failures.md E8"""
    server.say(full("The first half of"))
    result, heard = await run(server, window=8_000)
    assert (result.text, compactions(heard), last(result).stop_reason) == ("The first half of", [], "length")


def pictures(count: int) -> list[AgentMessage]:
    """A conversation over so many pictures."""
    messages: list[AgentMessage] = []
    for number in range(count):
        shown = UserMessage([TextContent(f"Picture {number}"), ImageContent(OLD)])
        messages += [shown, AssistantMessage([TextContent(f"I see {number}.")])]
    return messages


@pytest.mark.parametrize("page", [False, True])
async def test_old_images_are_left_out_of_a_request_that_is_too_large(server: StrictServer, page: bool) -> None:
    """failures.md E9: it is bytes that are too many, and what was said stays."""
    too_large = Reply(413, "<html><h1>413 Request Entity Too Large</h1></html>", {"content-type": "text/html"})
    server.say(too_large if page else server.refusal(413, "Request exceeds the maximum size"), "Fine.")
    prompt = UserMessage([TextContent("And this?"), ImageContent(NEW)])
    result, heard = await run(server, prompt, messages=pictures(6))
    assert (result.end_reason, result.text, compactions(heard)) == ("done", "Fine.", [True])
    first, second = (received.body for received in server.raw)
    assert (first.count(OLD.encode()), second.count(OLD.encode()), second.count(NEW.encode())) == (6, 2, 1)
    assert len(said(server, 0)) == len(said(server, 1))
    assert all(f"Picture {number}".encode() in second for number in range(6))
    assert second.index(b"[image left out]") < second.index(OLD.encode())


async def test_a_limit_of_bytes_told_as_a_bad_request_is_the_same(server: StrictServer) -> None:
    """failures.md E9: Gemini's words and status."""
    server.say(server.refusal(400, "Request payload size exceeds the limit: 20971520 bytes."), "Fine.")
    result, heard = await run(server, messages=pictures(6))
    assert (result.text, compactions(heard), server.raw[1].body.count(OLD.encode())) == ("Fine.", [True], 3)


@pytest.mark.parametrize(
    "words",
    [
        "messages.4.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size "
        "for many-image requests: 2000 pixels",
        "too many images and documents: 6 + 0 > 5",
        "Exceeded maximum number of images (5) allowed in the request.",
    ],
)
async def test_old_images_are_left_out_where_a_server_limits_their_number(server: StrictServer, words: str) -> None:
    """failures.md E9: every later request would fail as well; there is more text than image here."""
    server.say(server.refusal(400, words), "Fine.")
    spoken = [UserMessage([TextContent("word " * 30_000)]), AssistantMessage([TextContent("Yes.")])]
    result, heard = await run(server, messages=[*spoken, *pictures(6)])
    assert (result.end_reason, result.text, compactions(heard)) == ("done", "Fine.", [True])
    first, second = (received.body for received in server.raw)
    assert (first.count(OLD.encode()), second.count(OLD.encode())) == (6, 3)
    assert second.count(b"word word") == first.count(b"word word")


async def test_all_images_are_left_out_for_a_model_that_takes_none(server: StrictServer) -> None:
    """failures.md E9: every later request would fail as well."""
    server.say(server.refusal(400, "This model does not support image input"), "Fine.")
    result, heard = await run(server, messages=pictures(6))
    assert (result.end_reason, result.text, compactions(heard)) == ("done", "Fine.", [True])
    assert [received.body.count(OLD.encode()) for received in server.raw] == [6, 0]


async def test_an_image_just_shown_to_a_model_that_takes_none_is_an_error_once(server: StrictServer) -> None:
    """failures.md E9: the next prompt goes on without it."""
    refusal = server.refusal(400, "unknown variant `image_url`, expected `text`")
    server.say(refusal, refusal, "Fine.")
    shown = UserMessage([TextContent("What is it?"), ImageContent(OLD)])
    agent = Agent(server.model(), retry=Retry(base_delay=0.0, jitter=0.0))
    first = await agent.run([shown])
    assert (first.end_reason, len(server.raw)) == ("error", 1)
    assert "Send no images to this model" in first.detail
    second = await agent.run("Never mind.")
    assert (second.end_reason, second.text, server.raw[2].body.count(OLD.encode())) == ("done", "Fine.", 0)


async def test_too_many_images_just_shown_are_an_error_that_says_so(server: StrictServer) -> None:
    """failures.md E9: shorter texts would not help."""
    server.say(server.refusal(400, "too many images and documents: 6 + 0 > 5"), "never said")
    talk: list[AgentMessage] = [UserMessage([TextContent("word " * 30_000)]), AssistantMessage([TextContent("Yes.")])]
    prompt = UserMessage([TextContent("And these?"), *[ImageContent(NEW)] * 6])
    result, _ = await run(server, prompt, messages=talk)
    assert (result.end_reason, len(server.raw)) == ("error", 1)
    assert "could free nothing more: send fewer or smaller images" in result.detail


async def test_images_that_are_too_large_after_all_are_an_error_that_says_so(server: StrictServer) -> None:
    """failures.md E9"""
    server.say(*(server.refusal(413, "Request exceeds the maximum size") for _ in range(2)), "never said")
    result, _ = await run(server, messages=pictures(6))
    assert (result.end_reason, len(server.raw), last(result).error_kind) == ("error", 2, "context_overflow")
    assert "send fewer or smaller images" in result.detail


async def test_an_image_just_shown_is_never_left_out(server: StrictServer) -> None:
    """failures.md E9"""
    server.say(server.refusal(413, "Request exceeds the maximum size"), "never said")
    result, heard = await run(server, UserMessage([TextContent("What is it?"), ImageContent(OLD)]), messages=[])
    assert (result.end_reason, len(server.raw)) == ("error", 1)
    assert "could free nothing more: send fewer or smaller images" in result.detail
    assert True not in compactions(heard)


async def test_a_request_too_large_for_its_words_is_compacted(server: StrictServer) -> None:
    """failures.md E9"""
    server.say(server.refusal(413, "Request exceeds the maximum size"), "Fine.")
    result, heard = await run(server)
    assert (result.text, compactions(heard)) == ("Fine.", [True])


LONG = answer(call("echo", text="x"), usage=Usage(input=189_000, output=1_000))


async def test_the_answer_is_allowed_what_is_left_of_the_window(server: StrictServer) -> None:
    """failures.md E10: 190k were sent, 32k are wanted, the window has 200k."""
    server.say(LONG, answer("Fine.", usage=Usage(input=190_100, output=3)))
    result, heard = await run(server, window=WINDOW, max_tokens=32_000)
    assert (result.text, compactions(heard)) == ("Fine.", [])
    assert most(server, 0) == 32_000
    assert 9_900 < most(server, 1) < 10_000


async def test_where_hardly_anything_is_left_the_server_is_asked_as_it_was(server: StrictServer) -> None:
    """failures.md E10: an answer of a few words is of no use, and what the server says leads to compaction."""
    server.say(answer(call("echo", text="x"), usage=Usage(input=199_000, output=500)), "Fine.")
    await run(server, window=WINDOW, max_tokens=32_000)
    assert most(server, 1) == 32_000


async def test_after_compaction_there_is_room_again(server: StrictServer) -> None:
    """failures.md E10: a bill from before it speaks of what is no longer sent."""
    server.say(LONG, server.refusal(*OWN_WORDS[name_of(server)]), "Fine.")
    result, heard = await run(server, window=WINDOW, max_tokens=32_000)
    assert (result.text, compactions(heard)) == ("Fine.", [True])
    assert (most(server, 1) < 10_000, most(server, 2)) == (True, 32_000)


@pytest.mark.parametrize(
    "words",
    [
        SHARED.format(190_000, 32_000),
        "This model's maximum context length is 200000 tokens. However, you requested 222000 tokens (190000 in the "
        "messages, 32000 in the completion). Please reduce the length of the messages or completion.",
        "This endpoint's maximum context length is 200,000 tokens. However, you requested about 222,000 tokens "
        "(190,000 of text input, 32,000 in the output).",
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 200000 "
        "tokens and your request has 190000 input tokens (32000 > 200000 - 190000).",
        "You passed 190000 input tokens and requested 32000 output tokens. However, the model's context length is only "
        "200000 tokens.",
    ],
)
async def test_a_server_that_lacks_room_for_the_answer_is_asked_for_a_shorter_one(
    server: StrictServer, words: str
) -> None:
    """failures.md E10: clamp the output, and compact only where that does not help."""
    server.say(server.refusal(400, words), "Fine.")
    result, heard = await run(server, max_tokens=32_000)
    assert (result.end_reason, result.text, compactions(heard)) == ("done", "Fine.", [])
    assert [most(server, index) for index in (0, 1)] == [32_000, 10_000]
    assert said(server, 0) == said(server, 1)
    assert [event.error.kind for event in heard.of(RetryScheduled)] == ["context_overflow"]


async def test_a_shorter_answer_that_does_not_help_is_followed_by_compaction(server: StrictServer) -> None:
    """failures.md E10"""
    server.say(*(server.refusal(400, SHARED.format(190_000, 32_000)) for _ in range(2)), "Fine.")
    result, heard = await run(server, max_tokens=32_000)
    assert (result.text, compactions(heard), len(server.raw)) == ("Fine.", [True], 3)
    assert most(server, 2) == 32_000


async def test_where_a_shorter_answer_would_be_none_it_is_compacted_at_once(server: StrictServer) -> None:
    """failures.md E6, E10: 3,242 tokens are no room to work in."""
    server.say(server.refusal(400, SHARED.format(196_758, 8_192)), "Fine.")
    result, heard = await run(server, max_tokens=8_192)
    assert (result.text, compactions(heard), len(server.raw)) == ("Fine.", [True], 2)


async def test_an_answer_is_cut_by_what_was_sent_and_not_by_what_was_wanted(server: StrictServer) -> None:
    """failures.md E10: a server that stops at the limit and calls it a stop, where the limit is what had room."""
    server.say(LONG, lambda _: answer("As far as it goes", usage=Usage(input=190_000, output=most(server, 1))))
    result, _ = await run(server, window=WINDOW, max_tokens=32_000)
    assert (last(result).stop_reason, last(result).usage.output) == ("length", most(server, 1))


@pytest.mark.parametrize(("output", "reason"), [(8, "stop"), (16, "length")])
async def test_a_limit_the_api_does_not_take_is_not_the_limit_an_answer_is_judged_by(output: int, reason: str) -> None:
    """Responses takes no less than 16 tokens."""
    turn = answer("A whole answer.", usage=Usage(input=10, output=output))
    with SERVERS["responses"](turn) as server:
        result, _ = await run(server, max_tokens=5)
        assert (most(server, 0), last(result).stop_reason) == (16, reason)


async def test_what_a_setting_puts_over_the_limit_is_what_counts(server: StrictServer) -> None:
    name = name_of(server)
    field = {"openai": "max_tokens", "responses": "max_output_tokens"}.get(name, "max_tokens")
    extra: dict[str, Any] = {
        "bedrock": {"inferenceConfig": {"maxTokens": 50}},
        "google": {"generationConfig": {"maxOutputTokens": 50}},
    }.get(name, {field: 50})
    server.say(answer("A whole answer.", usage=Usage(input=10, output=40)))
    agent = Agent(server.model(settings={"extra_body": extra}), max_tokens=20)
    result = await agent.run("Go on.")
    assert (most(server, 0), last(result).stop_reason) == (50, "stop")
