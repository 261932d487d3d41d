"""An agent and the strict server of the OpenAI Responses API, over a real socket."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from tests.rows import each_row

from steersman import Agent, Retry, tool
from steersman.provider.http.client import aclose_http
from steersman.testing import answer, call, cut, error, stall, text, thinking
from steersman.testing.servers import Delivery, OpenAIResponsesServer, Reply
from steersman.types.content import ImageContent, TextContent, ThinkingContent, ToolCall
from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage, UserMessage
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

AT_ONCE = Retry(base_delay=0)
TWO_CALLS = [*["function_call"] * 2, *["function_call_output"] * 2]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def kinds(body: Any) -> list[str]:
    return [item.get("type") or item["role"] for item in body["input"]]


async def test_a_conversation_with_tools_thinking_and_an_image() -> None:
    words = text("Let me add.", signature="commentary")
    script = (
        answer(thinking("I see.\n\nAdd."), words, call("add", a=1, b=2), call("add", a=3, b=4)),
        answer(thinking(""), "3 and 7."),
        "You are welcome.",
    )
    async with OpenAIResponsesServer(*script) as server:
        agent = Agent(server.model(), tools=[add], system_prompt="Be brief.", thinking_level="low")
        first = await agent.run(UserMessage([TextContent("Add these."), ImageContent("aGk=")]))
        second = await agent.run("Thanks!")
        assert (first.end_reason, first.text) == ("done", "3 and 7.")
        assert (second.end_reason, second.text) == ("done", "You are welcome.")
        assert kinds(server.requests[1]) == ["user", "reasoning", "message", *TWO_CALLS]
        assert kinds(server.requests[2])[-3:] == ["reasoning", "message", "user"]
        assert server.requests[1]["input"][2]["phase"] == "commentary"
        assert server.raw[1].body.startswith(server.raw[0].body.removesuffix(b"]}"))
        assert server.connections == 1
        await aclose_http()


async def test_the_usage_of_all_requests_is_added_up() -> None:
    """failures.md I7."""
    usage = Usage(input=10, output=5, cache_read=100, cache_write=3, reasoning=2)
    async with OpenAIResponsesServer(answer(call("add", a=1, b=2)), "3", usage=usage) as server:
        result = await Agent(server.model(), tools=[add]).run("1 + 2?")
        assert result.usage == usage + usage
        assert result.usage.total == 236
        await aclose_http()


async def test_an_answer_of_a_given_type() -> None:
    @dataclass
    class City:
        name: str
        people: int

    async with OpenAIResponsesServer('{"name": "Oslo", "people": 700000}') as server:
        result = await Agent(server.model(), output_type=City).run("A city?")
        assert result.output == City("Oslo", 700_000)
        form = server.requests[0]["text"]["format"]
        assert (form["type"], form["schema"]["type"]) == ("json_schema", "object")
        await aclose_http()


async def test_a_tool_is_called_by_its_own_name_whatever_the_wire_calls_it() -> None:
    """failures.md C14."""
    called: list[str] = []

    @tool(name="calendar.list")
    def dotted() -> str:
        called.append("calendar.list")
        return "nothing"

    @tool(name="calendar_list")
    def plain() -> str:
        called.append("calendar_list")
        return "nothing"

    def ask(received: Any) -> Any:
        return answer(*(call(entry["name"]) for entry in received.json["tools"]))

    async with OpenAIResponsesServer(ask, "Free all day.") as server:
        result = await Agent(server.model(), tools=[dotted, plain], tool_execution="sequential").run("When?")
        assert result.text == "Free all day."
        assert called == ["calendar.list", "calendar_list"]
        await aclose_http()


async def test_ids_that_are_used_twice_stay_apart() -> None:
    """failures.md A9."""
    again = answer(call("add", a=1, b=2, id="call_0"), call("add", a=3, b=4, id="call_0"))
    async with OpenAIResponsesServer(again, again, "Done.") as server:
        result = await Agent(server.model(), tools=[add]).run("Go")
        assert result.text == "Done."
        ids = [item["call_id"] for item in server.requests[2]["input"] if item.get("type") == "function_call"]
        assert len(ids) == len(set(ids)) == 4
        outputs = [item["output"] for item in server.requests[2]["input"] if item.get("type") == "function_call_output"]
        assert outputs == ["3", "7", "3", "7"]
        await aclose_http()


@each_row(
    "broken",
    [
        error("overloaded"),
        error("rate_limit"),
        error("overloaded", after=2),
        cut(after=1),
        error(ErrorInfo("overloaded", "busy", status=409)),
        Delivery("Hello", at=700, ending="reset"),
        Delivery("Hello", at=700, ending="close"),
        Delivery("Hello", head=False, ending="reset"),
        Reply(200, {"error": {"message": "Rate limit", "type": "tokens", "code": 429}}),
        Reply(503, "<html>busy</html>", {"content-type": "text/html"}),
        Reply(429, {"error": {"message": "slow"}}, {"retry-after": "0"}),
    ],
    ids=str,
)
async def test_what_may_pass_is_asked_again(broken: Any) -> None:
    """failures.md B10, B11, B17, B18, E2."""
    async with OpenAIResponsesServer(broken, "Hello again.") as server:
        result = await Agent(server.model(), retry=AT_ONCE).run("Hi")
        assert (result.end_reason, result.text) == ("done", "Hello again.")
        assert len(server.requests) == 2
        await aclose_http()


@each_row(
    ("broken", "kind"),
    [
        (error("authentication"), "authentication"),
        (error("quota"), "quota"),
        (error("invalid_request"), "invalid_request"),
        (error("refused"), "refused"),
        (Reply(400, {"error": {"message": "No.", "type": "invalid_request_error"}}), "invalid_request"),
        (Reply(404, {"error": {"message": "No such model.", "code": "model_not_found"}}), "invalid_request"),
        (Reply(200, "<html>Sign in</html>", {"content-type": "text/html"}), "protocol"),
        (b"data: nonsense\n\n", "protocol"),
    ],
    ids=str,
)
async def test_what_will_not_pass_is_asked_once(broken: Any, kind: str) -> None:
    """failures.md E5, B10, B13."""
    async with OpenAIResponsesServer(broken, "Never.") as server:
        result = await Agent(server.model(), retry=AT_ONCE).run("Hi")
        last = result.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert (result.end_reason, last.error_kind, len(server.requests)) == ("error", kind, 1)
        assert last.error_message
        await aclose_http()


async def test_a_wrong_key_is_an_error_that_says_what_to_do_and_does_not_show_it() -> None:
    """failures.md L13."""
    async with OpenAIResponsesServer("Hi") as server:
        agent = Agent(server.model(api_key="sk-canary-1234567890"))
        result = await agent.run("Hi")
        assert result.end_reason == "error"
        assert "OPENAI_API_KEY" in result.detail
        assert "canary" not in f"{result!r}{agent!r}"
        await aclose_http()


async def test_a_context_overflow_is_compacted_and_asked_once_more() -> None:
    """failures.md E6."""
    async with OpenAIResponsesServer("One.", "Two.", error("context_overflow"), "Three.") as server:
        agent = Agent(server.model())
        for _ in range(2):
            await agent.run("Tell me " + "more " * 3_000)
        result = await agent.run("And?")
        assert (result.end_reason, result.text, len(server.requests)) == ("done", "Three.", 4)
        assert len(server.raw[3].body) < len(server.raw[2].body)
        await aclose_http()


@pytest.mark.parametrize(
    "refusal",
    [
        answer("I cannot.", stop_reason="refusal"),
        answer(thinking("Hm."), "I cannot.", call("add", a=1, b=2), stop_reason="refusal"),
        answer(stop_reason="refusal", raw_stop_reason="content_filter"),
        answer(thinking("Hm."), stop_reason="refusal", raw_stop_reason="content_filter"),
    ],
)
async def test_a_refusal_ends_the_run_and_the_next_prompt_is_taken(refusal: Any) -> None:
    """failures.md D1, A7: never retried, no tool runs, nothing empty is sent."""
    ran: list[int] = []

    @tool(name="add")
    def watched(a: int, b: int) -> int:
        ran.append(a + b)
        return a + b

    async with OpenAIResponsesServer(refusal, "Hello.") as server:
        agent = Agent(server.model(), tools=[watched], retry=AT_ONCE)
        first = await agent.run("Do harm.")
        last = first.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert (first.end_reason, last.stop_reason, ran) == ("error", "refusal", [])
        assert (await agent.run("Hi")).text == "Hello."
        assert len(server.requests) == 2
        await aclose_http()


@pytest.mark.parametrize("raw", ['{"a": 1, "b"', '{"a": 1, "b": 2}', ""])
async def test_a_call_cut_by_the_limit_is_not_run(raw: str) -> None:
    """failures.md C9."""
    ran: list[int] = []

    @tool(name="add")
    def watched(a: int = 0, b: int = 0) -> int:
        ran.append(a + b)
        return a + b

    async with OpenAIResponsesServer(answer(call("add", raw=raw), stop_reason="length"), "Sorry.") as server:
        result = await Agent(server.model(), tools=[watched]).run("Go")
        assert (result.text, ran) == ("Sorry.", [])
        output = server.requests[1]["input"][-1]["output"]
        assert output.startswith("error: tool ")
        await aclose_http()


async def test_an_abort_after_reasoning_leaves_a_transcript_that_is_taken() -> None:
    """failures.md D8, D11, A1."""
    started = asyncio.Event()
    async with OpenAIResponsesServer(stall(thinking("Hm. Let me think about it."), after=2), "Hello.") as server:
        agent = Agent(server.model())
        agent.subscribe(lambda event: started.set() if event.type == "message_update" else None)
        run = asyncio.create_task(agent.run("Hi"))
        await started.wait()
        agent.abort()
        assert (await run).end_reason == "aborted"
        assert await server.raw[0].wait_for_outcome() == "left"
        assert (await agent.run("Again?")).text == "Hello."
        assert kinds(server.requests[1]) == ["user", "user"]
        await aclose_http()


async def test_thinking_of_another_model_is_not_sent() -> None:
    """failures.md D7: there, and back again."""
    async with OpenAIResponsesServer(answer(thinking("Hm."), "One."), "Two.", "Three.") as server:
        agent = Agent(server.model("gpt-5"))
        await agent.run("1?")
        other = Agent(server.model("gpt-6"))
        other.context.messages = list(agent.context.messages)
        await other.run("2?")
        back = Agent(server.model("gpt-5"))
        back.context.messages = list(other.context.messages)
        await back.run("3?")
        assert kinds(server.requests[1]) == ["user", "message", "user"]
        assert kinds(server.requests[2]) == ["user", "reasoning", "message", "user", "message", "user"]
        await aclose_http()


async def test_a_transcript_of_another_provider_is_taken() -> None:
    """failures.md D7, A9: ids and names of others are written as this API takes them."""
    foreign = [
        UserMessage([TextContent("Hi")]),
        AssistantMessage(
            [
                ThinkingContent("Hm.", "anthropic-signature"),
                TextContent("Let me see.", "gemini-signature"),
                ToolCall("fn.call:1/" + "x" * 90, "my.tool", {"q": [1, None]}, signature="sig"),
                ToolCall("", "other tool", {}),
            ],
            provider="google",
            model="gemini",
        ),
    ]
    async with OpenAIResponsesServer("Fine.") as server:
        agent = Agent(server.model())
        agent.context.messages = foreign
        assert (await agent.run("Go on")).text == "Fine."
        assert kinds(server.requests[0]) == ["user", "message", *TWO_CALLS, "user"]
        await aclose_http()


async def test_a_custom_tool_call_is_answered_as_one() -> None:
    @tool
    def sql(input: str) -> str:
        """Run a query."""
        return f"ran {input}"

    asked = ToolCall("", "sql", {"input": 'SELECT "1"'}, signature="custom_tool_call")
    async with OpenAIResponsesServer(answer(asked), "Done.") as server:
        assert (await Agent(server.model(), tools=[sql]).run("Query")).text == "Done."
        assert server.requests[1]["input"][1]["type"] == "custom_tool_call"
        assert server.requests[1]["input"][2] == {
            "type": "custom_tool_call_output",
            "call_id": "call_1",
            "output": 'ran SELECT "1"',
        }
        await aclose_http()


async def test_many_agents_at_once_do_not_mix() -> None:
    def echo(received: Any) -> str:
        return f"You said {received.json['input'][0]['content'][0]['text']}."

    async with OpenAIResponsesServer(echo, repeat_last=True) as server:
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(Agent(server.model()).run(f"word{n}")) for n in range(30)]
        assert [run.result().text for run in runs] == [f"You said word{n}." for n in range(30)]
        await aclose_http()
