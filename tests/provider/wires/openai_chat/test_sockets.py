"""Whole runs over real sockets against the strict server: answers, faults, cuts and cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from tests.provider.wires.openai_chat.chat import DONE, chunk, said
from tests.rows import each_row

from steersman import Agent, Retry, RunResult, tool
from steersman.provider.http.client import aclose_http, http_stream
from steersman.provider.wires.openai_chat.wire import WIRE
from steersman.testing import answer, call, cut, error, stall, text, thinking
from steersman.testing.servers import Delivery, OpenAIChatServer, Received, Reply
from steersman.testing.servers.exchange import sse
from steersman.types.content import ImageContent, TextContent, ThinkingContent
from steersman.types.errors import ErrorInfo, ProviderError
from steersman.types.events import AgentEvent
from steersman.types.messages import AssistantMessage, UserMessage, user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamEvent
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

STREAM = http_stream(WIRE)
AT_ONCE = Retry(base_delay=0.0, jitter=0.0)
USAGE = Usage(input=10, output=5, cache_read=3, reasoning=2)
PNG = ImageContent("aGk=", "image/png")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def look() -> list[ImageContent | TextContent]:
    """Look at something."""
    return [TextContent("A picture."), PNG]


def agent_of(model: Model, **settings: Any) -> Agent:
    return Agent(model, tools=[add, look], stream_fn=STREAM, retry=AT_ONCE, **settings)


async def asked(server: OpenAIChatServer, *prompts: Any, **settings: Any) -> tuple[RunResult, list[AgentEvent]]:
    """The result of the last prompt, and all events."""
    agent = agent_of(server.model(), **settings)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    result = None
    for prompt in prompts:
        result = await agent.run(prompt)
    await aclose_http()
    assert result is not None
    return result, events


async def streamed(model: Model, request: Request | None = None, **options: Any) -> list[StreamEvent]:
    """The events of one answer, as the provider gives them."""
    source = STREAM(model, request or Request("", [user_message("Hi.")]), StreamOptions(**options))
    async with aclosing(source):
        return [event async for event in source]


async def test_a_run_with_thinking_calls_and_a_picture_is_taken_by_the_strict_server() -> None:
    script = (
        answer(thinking("Let me add."), text("Adding."), call("add", a=2, b=3), call("look"), usage=USAGE),
        answer("It is 5.", usage=USAGE),
        answer("You are welcome.", usage=USAGE),
    )
    async with OpenAIChatServer(*script) as server:
        result, _ = await asked(server, UserMessage([TextContent("2 + 3?"), PNG]), "Thanks.", system_prompt="Be brief.")
        requests = server.requests
    assert (result.text, result.end_reason, result.usage) == ("You are welcome.", "done", USAGE)
    roles = [message["role"] for message in requests[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "user"]
    assert requests[2]["messages"][2]["reasoning_content"] == "Let me add."


async def test_connections_are_kept_between_turns() -> None:
    async with OpenAIChatServer(answer(call("add", a=1, b=1)), answer(call("add", a=1, b=2)), "Done.") as server:
        result, _ = await asked(server, "Go.")
        assert (result.text, len(server.requests), server.connections) == ("Done.", 3, 1)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text", "reasoning_details"])
async def test_thinking_comes_back_in_the_field_the_server_sent_it_in(field: Any) -> None:
    """failures.md D12: the server refuses calls without the thinking that led to them."""
    async with OpenAIChatServer(answer(thinking("Hm."), call("add", a=1, b=1)), "Two.", reasoning=field) as server:
        result, _ = await asked(server, "1 + 1?")
        assert (result.text, result.end_reason) == ("Two.", "done")


@pytest.mark.parametrize("flavour", ["mistral", "moonshot", "deepseek", "llamacpp"])
async def test_the_demands_of_other_servers_are_met_by_their_presets(flavour: Any) -> None:
    script = (
        answer(call("add", a=1, b=1), call("look")),
        answer(text("Two."), call("add", a=1, b=2)),
        "Three.",
        "Yes.",
    )
    async with OpenAIChatServer(*script, flavour=flavour) as server:
        model = Model(flavour, "m", base_url=server.url, api_key=server.key)
        agent = agent_of(model, max_tokens=50)
        assert (await agent.run("1 + 1?")).text == "Three."
        assert (await agent.run("Sure?")).text == "Yes."
        await aclose_http()


async def test_a_conversation_of_another_provider_goes_on_at_deepseek_with_thinking() -> None:
    """failures.md D12: it takes no answer without reasoning, also of another model, and an empty one is none."""
    async with OpenAIChatServer(answer(call("add", a=1, b=1, id="x")), "Two.") as first:
        there = agent_of(first.model())
        await there.run("1 + 1?")
    script = (answer(thinking("Hm."), call("add", a=1, b=2)), answer(thinking("Well."), "Three."), "Yes.")
    async with OpenAIChatServer(*script, flavour="deepseek") as server:
        model = Model("deepseek", "m", base_url=server.url, api_key=server.key)
        agent = agent_of(model, messages=there.messages, thinking_level="low")
        assert (await agent.run("1 + 2?")).text == "Three."
        assert (await agent.run("Sure?")).text == "Yes."
        await aclose_http()
    answers = [message for message in server.requests[-1]["messages"] if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in answers] == [" ", " ", "Hm.", "Well."]


@each_row("index", [True, False])
@each_row("whole", [True, False])
@each_row("size", [1, 7, 4096])
async def test_calls_are_read_however_they_are_numbered_and_cut(index: bool, whole: bool, size: int) -> None:
    """failures.md C1, C2."""
    script = (answer(call("add", a=1, b=1), call("add", a=2, b=2)), "Done.")
    async with OpenAIChatServer(*script, index=index, whole=whole, chunk=size) as server:
        result, _ = await asked(server, "Go.")
    results = [message.text for message in result.messages if message.role == "tool_result"]
    assert (results, result.text) == (["2", "4"], "Done.")


async def test_a_call_id_used_twice_is_unique_on_the_wire() -> None:
    """failures.md A9."""
    script = (
        answer(call("add", a=1, b=1, id="call_0"), call("add", a=2, b=2, id="call_0")),
        answer(call("add", a=3, b=3, id="call_0")),
        "Done.",
    )
    async with OpenAIChatServer(*script) as server:
        result, _ = await asked(server, "Go.")
        assert (result.text, [message.text for message in result.messages if message.role == "tool_result"]) == (
            "Done.",
            ["2", "4", "6"],
        )


async def test_what_cannot_be_read_goes_back_as_an_object() -> None:
    """failures.md C7, C9."""
    async with OpenAIChatServer(answer(call("add", raw='{"a": 1')), answer(call("add", raw="[1]")), "Done.") as server:
        result, _ = await asked(server, "Go.")
        assert result.text == "Done."
    assert next(message.text for message in result.messages if message.role == "tool_result") == (
        "error: tool call was incomplete due to max tokens reached"
    )


async def test_done_is_the_end_even_if_the_connection_stays_open() -> None:
    """failures.md B8: it does not wait for the idle timeout."""
    stream = said("Hello.") + chunk(None, "stop") + DONE
    async with OpenAIChatServer(Delivery(stream, ending="stall")) as server:
        async with asyncio.timeout(5):
            result, _ = await asked(server, "Hi.")
        assert (result.text, await server.raw[0].wait_for_outcome()) == ("Hello.", "left")


async def test_pings_behind_a_finish_reason_do_not_keep_the_answer_back() -> None:
    """failures.md B8: more may follow, such as the usage, but not for ever."""
    pings = b": ping\n\n" * 5_000
    async with OpenAIChatServer(Delivery(said("Hello.") + chunk(None, "stop") + pings, chunk=400, pace=0.1)) as server:
        async with asyncio.timeout(5):
            result, _ = await asked(server, "Hi.")
        assert (result.text, result.end_reason, len(server.requests)) == ("Hello.", "done", 1)


@pytest.mark.parametrize("end", [b"", DONE, DONE.rstrip(), DONE.rstrip(b"\n") + b"\r\n\r\n"], ids=range(4))
async def test_a_finish_reason_and_the_end_make_an_answer(end: bytes) -> None:
    """failures.md B8, B9."""
    async with OpenAIChatServer(said("Hello.") + chunk(None, "stop") + end) as server:
        result, _ = await asked(server, "Hi.")
        assert (result.text, result.end_reason, len(server.requests)) == ("Hello.", "done", 1)


async def test_a_cut_that_is_not_retried_keeps_what_was_said() -> None:
    """failures.md B18."""
    stream = said("Hel", "lo ", "the")
    async with OpenAIChatServer(*[Delivery(stream, ending="close")] * 3) as server:
        result, _ = await asked(server, "Hi.")
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (result.end_reason, last.stop_reason, last.text) == ("error", "error", "Hello the")
    assert last.error_kind in ("incomplete", "network")


@each_row(
    "failure",
    [
        error("overloaded"),
        error("rate_limit"),
        error("overloaded", "Hello", after=2),
        cut("Hello", after=2),
        ConnectionResetError(),
        Reply(200, {"error": {"message": "slow down", "code": 429}}),
        Reply(529, b""),
        Reply(503, b"<html></html>", {"content-type": "text/html"}),
        Delivery(said("Hel") + sse({"error": {"message": "busy", "type": "server_error"}})),
        Reply(400, {"error": {"message": "flaky"}}, {"x-should-retry": "true"}),
    ],
    ids=range(10),
)
async def test_what_may_pass_is_asked_again(failure: Any) -> None:
    """failures.md B10, B11, E2, E4."""
    async with OpenAIChatServer(failure, "Fine.") as server:
        result, _ = await asked(server, "Hi.")
        assert (result.text, result.end_reason, len(server.requests)) == ("Fine.", "done", 2)


@each_row(
    ("failure", "kind"),
    [
        (error("authentication"), "authentication"),
        (error("quota"), "quota"),
        (error("invalid_request"), "invalid_request"),
        (error("refused"), "refused"),
        (Reply(200, b"<html>Log in</html>", {"content-type": "text/html"}), "protocol"),
        (Reply(200, b"<html>Log in</html>", {"content-type": "text/event-stream"}), "protocol"),
        (Reply(500, {"error": {"message": "no"}}, {"x-should-retry": "false"}), "overloaded"),
        (said("Hel") + b"data: {garbage\n\n", "protocol"),
        (answer("Hel", raw_stop_reason="eos"), "protocol"),
    ],
    ids=range(9),
)
async def test_what_will_not_pass_is_asked_once(failure: Any, kind: str) -> None:
    """failures.md B13, D2, E5."""
    async with OpenAIChatServer(failure, "Fine.") as server:
        result, _ = await asked(server, "Hi.")
        last = result.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert (result.end_reason, last.error_kind, len(server.requests)) == ("error", kind, 1)


async def test_a_refusal_ends_the_run_and_its_calls_never_run() -> None:
    """failures.md D1."""
    ran: list[int] = []

    @tool
    def act() -> str:
        """Act."""
        ran.append(1)
        return "done"

    async with OpenAIChatServer(answer(text("I"), call("act"), stop_reason="refusal"), "Next.") as server:
        agent = Agent(server.model(), tools=[act], stream_fn=STREAM, retry=AT_ONCE)
        first = await agent.run("Do it.")
        second = await agent.run("Then something else.")
        await aclose_http()
    assert (first.end_reason, ran, second.text) == ("error", [], "Next.")


async def test_a_wrong_key_is_named_and_not_shown() -> None:
    async with OpenAIChatServer("Hi.", key="right") as server:
        agent = agent_of(server.model(api_key="sk-canary-123456"))
        events: list[AgentEvent] = []
        agent.subscribe(events.append)
        result = await agent.run("Hi.")
        await aclose_http()
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.error_kind, "openai-chat:test-model" in (last.error_message or "")) == ("authentication", True)
    assert "canary" not in f"{result!r}{events!r}{agent!r}"


async def test_an_overflow_is_compacted_and_asked_again() -> None:
    """failures.md E6; loop.md C5."""
    long = answer(text("Reading."), call("look"))
    async with OpenAIChatServer(*[long] * 12, "First.", error("context_overflow"), "Second.") as server:
        agent = agent_of(server.model())
        await agent.run("Look twelve times.")
        result = await agent.run("And?")
        await aclose_http()
        assert (result.text, result.end_reason, len(server.requests)) == ("Second.", "done", 15)
        assert len(server.raw[14].body) < len(server.raw[13].body)


async def test_usage_is_asked_for_and_read() -> None:
    async with OpenAIChatServer(answer("Hi.", usage=USAGE)) as server:
        events = await streamed(server.model())
    assert isinstance(events[-1], Done)
    assert events[-1].message.usage == USAGE


async def test_a_name_the_server_would_not_take_is_used_on_neither_side() -> None:
    """failures.md C14."""

    @tool(name="calendar.list")
    def listed() -> str:
        """List."""
        return "nothing"

    def turn(received: Received) -> Any:
        return answer(call(received.json["tools"][0]["function"]["name"]))

    async with OpenAIChatServer(turn, "Free.") as server:
        result = await Agent(server.model(), tools=[listed], stream_fn=STREAM).run("Today?")
        await aclose_http()
        assert server.requests[0]["tools"][0]["function"]["name"] != "calendar.list"
    assert (result.text, [message.tool_name for message in result.messages if message.role == "tool_result"]) == (
        "Free.",
        ["calendar.list"],
    )


@each_row("after", range(1, 30, 2))
async def test_after_an_abort_the_next_prompt_is_taken(after: int) -> None:
    """failures.md A1: at any event, with calls, thinking and results under way."""
    script = answer(thinking("Hm."), text("Adding."), call("add", a=1, b=2), call("add", a=3, b=4), deltas=3, pace=0.0)
    async with OpenAIChatServer(script, script, "Fine.", "Fine.") as server:
        agent = agent_of(server.model())
        seen = 0

        def stop(event: AgentEvent) -> None:
            nonlocal seen
            seen += 1
            if seen == after:
                agent.abort()

        watch = agent.subscribe(stop)
        first = await agent.run("Go.")
        agent.unsubscribe(watch)
        second = await agent.run("Again.")
        await aclose_http()
        assert first.end_reason == "aborted"
        assert second.end_reason == "done", second.detail
        assert second.text == "Fine."


async def test_a_failure_carries_what_is_known_about_it() -> None:
    async with OpenAIChatServer(error(ErrorInfo("rate_limit", "Slow down.", retry_after=7))) as server:
        with pytest.raises(ProviderError) as caught:
            await streamed(server.model())
        await aclose_http()
    info = caught.value.info
    assert (info.kind, info.status, info.retry_after, info.request_id, info.provider) == (
        "rate_limit",
        429,
        7.0,
        "req_1",
        "openai-chat",
    )


Hook = Callable[[AgentEvent], None]


async def test_a_stall_can_be_cancelled_and_the_server_sees_it() -> None:
    """failures.md B14."""
    async with OpenAIChatServer(stall("Hello", after=1), "Fine.") as server:
        agent = agent_of(server.model())
        stop: Hook = lambda event: agent.abort() if event.type == "message_update" else None  # noqa: E731
        watch = agent.subscribe(stop)
        result = await agent.run("Hi.")
        agent.unsubscribe(watch)
        async with asyncio.timeout(5):
            assert await server.raw[0].wait_for_outcome() == "left"
        assert (result.end_reason, (await agent.run("Again.")).text) == ("aborted", "Fine.")
        await aclose_http()


async def test_a_thought_that_was_cut_is_never_sent_back() -> None:
    """failures.md D8."""
    async with OpenAIChatServer(
        cut(thinking("Let me"), after=2), cut(thinking("Let me"), after=2), cut(thinking("Let me"), after=2), "Fine."
    ) as server:
        agent = agent_of(server.model())
        first = await agent.run("Hi.")
        assert [type(block) for block in first.messages[-1].content] == [ThinkingContent]
        assert (await agent.run("Again.")).text == "Fine."
        assert all("reasoning_content" not in message for message in server.requests[-1]["messages"])
        await aclose_http()
