"""Whole conversations of an `Agent` with the strict Anthropic server."""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from tests.provider.wires.anthropic.kit import begun, called, ended

from steersman import Agent, Retry, tool
from steersman.testing import answer, call, error, text, thinking
from steersman.testing.servers import AnthropicServer, Reply
from steersman.types.content import ImageContent, TextContent, ThinkingContent
from steersman.types.messages import AssistantMessage, UserMessage
from steersman.types.tools import ToolOutput
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
QUICK = Retry(base_delay=0, jitter=0)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def snap(what: str) -> ToolOutput:
    """Take a picture."""
    return ToolOutput([TextContent(what), ImageContent(PNG)])


async def test_a_conversation_with_thinking_tools_and_a_picture() -> None:
    script = [
        answer(thinking("Two sums."), "Let me add.", call("add", a=2, b=3), call("add", a=4, b=5)),
        answer(thinking("And a picture."), call("snap", what="cat")),
        answer("5 and 9, and a cat."),
        "You are welcome.",
    ]
    async with AnthropicServer(*script, usage=Usage(input=7, output=3, cache_read=2, cache_write=1)) as server:
        agent = Agent(
            server.model("claude-sonnet-4-5"), tools=[add, snap], system_prompt="Be brief.", thinking_level="low"
        )
        result = await agent.run(UserMessage([TextContent("Add, and look at this."), ImageContent(PNG)]))
        assert (result.text, result.end_reason) == ("5 and 9, and a cat.", "done")
        again = await agent.run("Thanks.")
    assert again.text == "You are welcome."
    list_price = (21 * 3 + 9 * 15 + 6 * 0.3 + 3 * 3.75) / 1_000_000
    assert result.cost == pytest.approx(list_price)
    assert result.usage == Usage(input=21, output=9, cache_read=6, cache_write=3, cost=result.cost)
    sent = server.requests[-1]
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant"] * 3 + ["user"]
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in sent["messages"][2]["content"]] == ["tool_result", "tool_result"]
    assert sent["messages"][4]["content"][0]["content"][1]["type"] == "image"
    assert server.raw[0].headers["anthropic-version"] == "2023-06-01"


async def test_every_request_begins_with_the_one_before_it() -> None:
    """failures.md I11."""
    script: list[Any] = [answer(thinking(f"{n}"), call("add", a=n, b=n)) for n in range(6)]
    async with AnthropicServer(*script, "Done.") as server:
        await Agent(server.model(), tools=[add], system_prompt="Be brief.", thinking_level="low").run("Count.")
    mark = b',"cache_control":{"type":"ephemeral"}'
    bodies = [received.body.replace(mark, b"") for received in server.raw]
    assert len(bodies) == 7
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before[: before.index(b'],"max_tokens"')])


async def test_hidden_thinking_and_unknown_blocks_go_back_as_they_came() -> None:
    """failures.md D5, D16."""
    opaque = ThinkingContent("", '{"type":"new_thing","x":1}', redacted=True, field="anthropic_block")
    first = answer(
        ThinkingContent("", "ZW5j", redacted=True),
        ThinkingContent("", "c2ln"),
        opaque,
        text("Hm."),
        call("add", a=1, b=1),
    )
    async with AnthropicServer(first, "2.") as server:
        result = await Agent(server.model(), tools=[add], thinking_level="low").run("Go.")
    assert result.text == "2."
    assert server.requests[1]["messages"][1]["content"][:3] == [
        {"type": "redacted_thinking", "data": "ZW5j"},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "new_thing", "x": 1},
    ]


async def test_another_model_gets_no_thinking_that_is_not_its_own() -> None:
    """failures.md D7: there and back again."""
    async with AnthropicServer(answer(thinking("Hm."), "One."), "Two.", "Three.") as server:
        agent = Agent(server.model("claude-sonnet-4-5"), thinking_level="low")
        await agent.run("Go.")
        kinds: list[list[str]] = []
        for id in ("claude-opus-4-5", "claude-sonnet-4-5"):
            other = Agent(server.model(id), thinking_level="low")
            other.context.messages = list(agent.messages)
            assert (await other.run("Go on.")).end_reason == "done"
            kinds.append([block["type"] for block in server.requests[-1]["messages"][1]["content"]])
    assert kinds == [["text"], ["thinking", "text"]]


async def test_an_answer_that_was_cut_runs_nothing_that_was_cut() -> None:
    """failures.md C9."""
    ran: list[str] = []

    @tool
    def remove(path: str = "/") -> str:
        """Remove a file."""
        ran.append(path)
        return "removed"

    first = answer(call("remove", raw='{"path": "/tmp'), stop_reason="length")
    second = begun() + called(0, "t", "remove", "") + ended("max_tokens")
    async with AnthropicServer(first, second, "I see.") as server:
        result = await Agent(server.model(), tools=[remove]).run("Clean up.")
    assert (result.text, ran) == ("I see.", [])
    contents = [request["messages"][-1]["content"][0]["content"][0]["text"] for request in server.requests[1:]]
    assert contents == ["error: tool call was incomplete due to max tokens reached"] * 2
    assert server.requests[1]["messages"][1]["content"][0]["input"] == {"_raw": '{"path": "/tmp'}


async def test_the_same_id_twice_is_told_apart() -> None:
    """failures.md A9."""
    twice = answer(call("add", a=1, b=1, id="call_0"), call("add", a=2, b=2, id="call_0"))
    async with AnthropicServer(twice, answer(call("add", a=3, b=3, id="call_0")), "Done.") as server:
        result = await Agent(server.model(), tools=[add]).run("Go.")
    assert result.text == "Done."
    blocks = [block for message in server.requests[-1]["messages"] for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    assert [block["content"][0]["text"] for block in results] == ["2", "4", "6"]


async def test_a_refusal_ends_the_run_and_is_not_sent_again() -> None:
    """failures.md D1, A7."""
    refused = answer("I will", call("add", a=1, b=1), stop_reason="refusal")
    async with AnthropicServer(refused, "Hello.") as server:
        agent = Agent(server.model(), tools=[add], retry=QUICK)
        result = await agent.run("Do something bad.")
        assert (result.end_reason, result.detail) == ("error", "The model refused to answer.")
        assert (await agent.run("Hello?")).text == "Hello."
    assert len(server.raw) == 2
    assert [message["role"] for message in server.requests[1]["messages"]] == ["user"]


async def test_an_overloaded_server_is_asked_again() -> None:
    """failures.md B11, E2."""
    async with AnthropicServer(error("overloaded"), error("overloaded", "Hel", after=2), "Hello.") as server:
        result = await Agent(server.model(), retry=QUICK).run("Hi")
    assert (result.text, len(server.raw)) == ("Hello.", 3)


@pytest.mark.parametrize(
    "full", [error("context_overflow"), answer("x", raw_stop_reason="model_context_window_exceeded")]
)
async def test_a_full_window_is_compacted_and_asked_once_more(full: Any) -> None:
    """loop.md C5; failures.md E6, D4."""
    long = [answer("x" * 4000, call("add", a=n, b=n)) for n in range(12)]
    async with AnthropicServer(*long, "Done.", full, "Shorter.") as server:
        agent = Agent(server.model(), tools=[add])
        await agent.run("Count.")
        result = await agent.run("And now?")
    assert (result.text, result.end_reason) == ("Shorter.", "done")
    assert len(server.raw[-1].body) < len(server.raw[-2].body)


async def test_no_key_and_a_wrong_key_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with AnthropicServer("Hi") as server:
        result = await Agent(server.model(api_key="wrong-key")).run("Hi")
    assert result.end_reason == "error"
    assert "invalid x-api-key (authentication_error). Check the key" in result.detail
    assert "wrong-key" not in repr(result)
    missing = await Agent("anthropic:claude-sonnet-4-5").run("Hi")
    assert "ANTHROPIC_API_KEY" in missing.detail


async def test_a_page_of_a_proxy_is_no_answer() -> None:
    """failures.md B10."""
    page = Reply(200, "<html>Sign in</html>", {"content-type": "text/html"})
    async with AnthropicServer(page) as server:
        result = await Agent(server.model(), retry=QUICK).run("Hi")
    assert result.end_reason == "error"
    assert result.detail.endswith(
        "answered 200 with 'text/html' instead of a stream of events: '<html>Sign in</html>'. "
        f"Check base_url, and any proxy on the way. Tried: POST {server.url}/v1/messages."
    )


@dataclass
class Ticket:
    """What is to be done."""

    title: str
    hours: int


async def test_the_form_of_an_answer_is_sent_as_a_schema() -> None:
    async with AnthropicServer('{"title": "Login fails", "hours": 2}') as server:
        result = await Agent(server.model("claude-sonnet-4-5"), output_type=Ticket).run("File it.")
    assert result.output == Ticket("Login fails", 2)
    form = server.requests[0]["output_config"]["format"]
    assert (form["type"], sorted(form["schema"]["properties"])) == ("json_schema", ["hours", "title"])


async def test_an_aborted_thinking_is_not_sent_again() -> None:
    """failures.md D8."""
    async with AnthropicServer(answer(thinking("Hm. " * 10), "Yes.", deltas=8), "Fine.") as server:
        agent = Agent(server.model(), thinking_level="low")
        agent.subscribe(lambda event: agent.abort() if event.type == "message_update" else None)
        await agent.run("Go.")
        last = agent.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert last.stop_reason == "aborted"
        other = Agent(server.model(), thinking_level="low")
        other.context.messages = list(agent.messages)
        assert (await other.run("Go on.")).text == "Fine."
    assert [message["role"] for message in server.requests[1]["messages"]] == ["user"]
