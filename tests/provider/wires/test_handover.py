"""One conversation with tools, thinking and pictures on all four protocols, handed from each to each of the others."""

from __future__ import annotations

from base64 import b64encode
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace
from tests.rows import each_row

from steersman import Agent, Retry
from steersman.testing import answer, call, cut, error, thinking
from steersman.testing.servers import (
    AnthropicServer,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Received,
    StrictServer,
)
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.content import ImageContent, TextContent, ThinkingContent
from steersman.types.messages import AgentMessage, AssistantMessage, UserMessage
from steersman.types.tools import ToolOutput

pytestmark = pytest.mark.real_time

SERVERS: dict[str, tuple[type[StrictServer], str]] = {
    "anthropic": (AnthropicServer, "claude-sonnet-4-5"),
    "openai": (OpenAIResponsesServer, "gpt-5"),
    "openai-chat": (OpenAIChatServer, "deepseek-reasoner"),
    "google": (GoogleServer, "gemini-3-pro-preview"),
}
PAIRS = [(a, b) for a in SERVERS for b in SERVERS if a != b]
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
SCHEMAS = ("input_schema", "parameters", "parametersJsonSchema")
NOTHING: dict[str, Any] = {}
AT_ONCE = Retry(base_delay=0.0, jitter=0.0, max_attempts=2)


def list_events(args: dict[str, Any], ctx: ToolContext) -> str:
    return f"Nothing for {args['user-id']}."


def look_around(args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
    return ToolOutput([TextContent("The screen."), ImageContent(DOT)])


# A name and a parameter that not every protocol takes, and a schema with what some of them reject.
LIST = Tool(
    "calendar.list/größe",
    "List the events of a calendar.",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "user-id": {"type": ["string", "null"], "minLength": 1},
            "kind": {"const": "all"},
            "page": {"$ref": "#/$defs/Page", "description": "Where to begin."},
        },
        "required": ["user-id"],
        "$defs": {"Page": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}]}},
        "additionalProperties": False,
    },
    list_events,
)
LOOK = Tool(
    "look",
    "Look at the screen.",
    {"type": "object", "properties": {}},
    look_around,
)
_numbers = count(1)
QUESTION = UserMessage([TextContent("What is on the screen, and when?"), ImageContent(DOT)])


def declared(received: Received) -> list[tuple[str, list[str]]]:
    """The names of the tools in a request, and of their parameters."""
    tools = received.json["tools"]
    if "functionDeclarations" in tools[0]:
        tools = tools[0]["functionDeclarations"]
    found: list[tuple[str, list[str]]] = []
    for given in tools:
        tool: dict[str, Any] = given.get("function", given)
        schema: dict[str, Any] = next((tool[key] for key in SCHEMAS if key in tool), NOTHING)
        found.append((tool["name"], [*schema.get("properties", {})]))
    return found


def works(received: Received) -> Any:
    """An answer that thinks, speaks and calls two tools at once, under the names that it was given."""
    (listing, (parameter, *_)), (looking, _) = declared(received)
    # No two servers give the same id.
    first, second = (call(name, id=f"call_{next(_numbers)}") for name in (listing, looking))
    # Gemini signs the first of parallel calls; the others sign their thinking by themselves.
    signature = b64encode(first.id.encode()).decode() if "contents" in received.json else None
    first = replace(first, arguments={parameter: "u1"}, signature=signature)
    return answer(thinking("Both at once."), "Let me see.", first, second)


SEEN = answer(thinking("A dot."), "It is a dot.")


def open_server(name: str, *script: Any) -> StrictServer:
    return SERVERS[name][0](*script)


def agent_on(name: str, server: StrictServer, messages: Any = (), **settings: Any) -> Agent:
    model = server.model(SERVERS[name][1])
    return Agent(
        model,
        tools=[LIST, LOOK],
        system_prompt="Be brief.",
        thinking_level="low",
        retry=AT_ONCE,
        messages=messages,
        **settings,
    )


def thoughts(messages: Any) -> list[str]:
    return [block.thinking for message in messages for block in message.content if isinstance(block, ThinkingContent)]


async def talk(name: str, server: StrictServer, messages: Any, prompt: Any) -> list[AgentMessage]:
    """Another turn of the conversation on this server, which has to take it; all messages after it."""
    agent = agent_on(name, server, messages)
    asked = len(server.requests)
    result = await agent.run(prompt)
    assert (result.end_reason, result.detail, result.text) == ("done", "", "It is a dot.")
    assert len(server.requests) == asked + 2
    outputs = [message.text for message in result.messages if message.role == "tool_result"]
    assert outputs == ["Nothing for u1.", "The screen."]
    return list(agent.messages)


@pytest.mark.parametrize("name", SERVERS)
async def test_the_conversation_runs_on_every_protocol(name: str) -> None:
    async with open_server(name, works, SEEN, works, SEEN) as server:
        messages = await talk(name, server, (), QUESTION)
        assert thoughts(messages) == ["Both at once.", "A dot."]
        await talk(name, server, messages, "Again, please.")


@each_row(("here", "there"), PAIRS)
async def test_the_conversation_is_handed_over_and_back(here: str, there: str) -> None:
    """failures.md D7, A9, C14 and C15: strict servers take it, with the thinking of each kept for each."""
    async with open_server(here, works, SEEN, works, SEEN) as first, open_server(there, works, SEEN) as second:
        messages = await talk(here, first, (), QUESTION)
        messages = await talk(there, second, messages, "And now?")
        messages = await talk(here, first, messages, "And back again?")
    assert {message.provider for message in messages if isinstance(message, AssistantMessage)} == {here, there}
    assert thoughts(messages) == ["Both at once.", "A dot."] * 3


@each_row(("here", "there"), PAIRS)
async def test_the_conversation_is_handed_over_between_calls_and_answer(here: str, there: str) -> None:
    """loop.md section 8: the first model fails when the results are in, and the other one goes on in the same turn."""
    failing = error("overloaded")
    async with open_server(here, works, failing, failing) as first, open_server(there, SEEN, "Bye.") as second:
        agent = agent_on(here, first, fallbacks=[second.model(SERVERS[there][1])])
        result = await agent.run(QUESTION)
        assert (result.end_reason, result.text, len(second.requests)) == ("done", "It is a dot.", 1)
        after = await agent_on(there, second, agent.messages).run("Thanks.")
        assert (after.end_reason, after.text) == ("done", "Bye.")


@each_row(("here", "there"), PAIRS)
async def test_a_fallback_gets_its_own_thinking_back(here: str, there: str) -> None:
    """loop.md section 6, failures.md D5, D9 and D12: the first model stays away, and the other one works on."""
    down = error("overloaded")
    async with open_server(here, *[down] * 4) as first, open_server(there, works, SEEN, "Bye.") as second:
        agent = agent_on(here, first, fallbacks=[second.model(SERVERS[there][1])])
        result = await agent.run(QUESTION)
        assert (result.end_reason, result.detail, result.text) == ("done", "", "It is a dot.")
        # Had it been asked alone, it would have been asked the same.
        await agent_on(there, second, agent.messages[:-1]).continue_()
        field = next(name for name in ("messages", "input", "contents") if name in second.requests[1])
        assert second.requests[1][field] == second.requests[2][field]


@each_row(("here", "there"), PAIRS)
async def test_a_broken_answer_is_left_behind(here: str, there: str) -> None:
    """failures.md D8 and A1: an answer cut in its thinking or after it, handed over as it is."""
    broken = cut(thinking("Half a thought"), "and half an answer", after=3)
    async with open_server(here, works, broken, broken) as first, open_server(there, works, SEEN) as second:
        agent = agent_on(here, first)
        assert (await agent.run(QUESTION)).end_reason == "error"
        messages = await talk(there, second, agent.messages, "Try you.")
    assert messages[-1].content[-1] == TextContent("It is a dot.")


@pytest.mark.parametrize("there", [name for name in SERVERS if name != "google"])
@pytest.mark.parametrize("ids", [["call/1 ä", "call|2"], ["x" * 200, "x" * 199 + "y"]], ids=["odd", "long"])
async def test_ids_that_another_protocol_does_not_take_are_written_otherwise(there: str, ids: list[str]) -> None:
    """failures.md A9: Gemini takes any id, the others do not."""

    def odd(received: Received) -> Any:
        (listing, (parameter, *_)), (looking, _) = declared(received)
        return answer(call(listing, {parameter: "u1"}, id=ids[0]), call(looking, id=ids[1]))

    async with open_server("google", odd, SEEN, "Fine.") as first, open_server(there, works, SEEN) as second:
        messages = await talk("google", first, (), QUESTION)
        messages = await talk(there, second, messages, "And now?")
        back = await agent_on("google", first, messages).run("Back?")
    assert (back.end_reason, back.text) == ("done", "Fine.")


@each_row("thinks", [(True, True), (False, True), (True, False)])
@each_row(("here", "there"), [(a, b) for a in SERVERS for b in SERVERS])
async def test_servers_give_no_id_twice_in_one_conversation(here: str, there: str, thinks: tuple[bool, bool]) -> None:
    """One that took another's call or item for its own would refuse what the real ones take; and twice is once more."""
    told: list[list[str]] = []
    for _ in range(2):
        first, second = (
            open_server(name, *[answer(*([thinking("Hm.")] if thought else []), call("look")), "Fine."] * 2)
            for name, thought in zip((here, there), thinks, strict=True)
        )
        messages: Any = ()
        async with first, second:
            for name, server in ((here, first), (there, second)) * 2:
                # The newer models of Gemini want signatures, which these calls do not have.
                model = server.model("gemini-2.5-flash" if name == "google" else SERVERS[name][1])
                agent = Agent(model, tools=[LOOK], thinking_level="low", retry=AT_ONCE, messages=messages)
                result = await agent.run("Look.")
                assert (result.end_reason, result.detail, result.text) == ("done", "", "Fine.")
                messages = agent.messages
        calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
        assert [call.provider_id for call in calls] == [None] * 4
        told.append([call.id for call in calls])
    assert len(set(told[0])) == 4
    assert told[0] == told[1]


@pytest.mark.parametrize("name", SERVERS)
@each_row("content", [[ImageContent(DOT)], [TextContent("A dot."), ImageContent(DOT)], [ImageContent(DOT)] * 2])
async def test_an_answer_that_is_a_picture_is_handed_over(name: str, content: list[Any]) -> None:
    """failures.md A3: no API but Gemini's takes images from the assistant."""
    drawn = AssistantMessage(content, provider="google", model="gemini-2.5-flash-image")
    async with SERVERS[name][0]("Fine.") as server:
        model = server.model(SERVERS[name][1])
        result = await Agent(model, messages=[UserMessage("Draw."), drawn], retry=AT_ONCE).run("What is it?")
    assert (result.end_reason, result.detail, result.text) == ("done", "", "Fine.")
