"""Structured output against the strict servers: each is asked as it takes it, and what it says is checked here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, cast

import msgspec
import pydantic
import pytest
from tests.loop.toolbox import told
from tests.rows import each_row

from steersman import Agent, Retry, UserMessage, tool
from steersman.testing import EventCollector, answer, call, text, thinking
from steersman.testing.servers import (
    AnthropicServer,
    GoogleServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    Received,
    Reply,
    StrictServer,
)
from steersman.types.events import MessageUpdate

pytestmark = pytest.mark.real_time

FINAL = "final_answer"
Way = Literal["schema", "tool", "offered", "words"]


@dataclass
class City:
    """A city."""

    name: str
    people: int


class Town(TypedDict):
    name: str
    people: int


class Village(msgspec.Struct):
    name: str
    people: int = 0


class Hamlet(pydantic.BaseModel):
    name: str
    people: int = pydantic.Field(ge=0, default=0)


class Tree(pydantic.BaseModel):
    name: str
    below: list[Tree] = []


@tool
async def look(at: str) -> str:
    """Look something up."""
    return f"{at} has 126,000 people"


class Server(NamedTuple):
    """A server and a model of it."""

    make: type[StrictServer]
    model: str

    def agent(self, server: StrictServer, **options: Any) -> Agent:
        return Agent(server.model(self.model), retry=Retry(base_delay=0), **options)


SERVERS = {
    "anthropic": Server(AnthropicServer, "claude-sonnet-4-5"),
    "anthropic, older": Server(AnthropicServer, "claude-3-5-haiku-latest"),
    "responses": Server(OpenAIResponsesServer, "gpt-5-mini"),
    "chat": Server(OpenAIChatServer, "qwen3"),
    "google": Server(GoogleServer, "gemini-3-flash-preview"),
    "google, older": Server(GoogleServer, "gemini-2.5-flash"),
}


def declared(body: dict[str, Any]) -> list[str]:
    """The names of the tools of a request, whatever the protocol."""
    names: list[str] = []
    for entry in cast(list[dict[str, Any]], body.get("tools") or []):
        listed = cast(list[dict[str, Any]], entry.get("functionDeclarations") or [entry.get("function") or entry])
        names += [function["name"] for function in listed]
    return names


def part(body: dict[str, Any], name: str) -> dict[str, Any]:
    return cast(dict[str, Any], body.get(name) or {})


def forced(body: dict[str, Any]) -> bool:
    choice: object = body.get("tool_choice") or part(part(body, "toolConfig"), "functionCallingConfig").get("mode")
    return choice in ("required", "ANY", {"type": "any"})


def way(body: dict[str, Any]) -> Way:
    """How a request tells the form of the answer."""
    places = (part(body, "output_config"), part(body, "text"), body, part(body, "generationConfig"))
    schema = any(place.get(key) for place in places for key in ("format", "response_format", "responseJsonSchema"))
    if FINAL in declared(body):
        assert not schema
        return "tool" if forced(body) else "offered"
    return "schema" if schema else "words"


def saying(value: Any) -> Any:
    """An entry of a script: the value, as a text or as a call, as it was asked for."""

    def said(received: Received) -> Any:
        if FINAL in declared(received.json):
            return answer(call(FINAL, value))
        return json.dumps(value)

    return said


ROOTS: dict[str, tuple[Any, Any, Any]] = {
    "dataclass": (City, {"name": "Ulm", "people": 3}, City("Ulm", 3)),
    "TypedDict": (Town, {"name": "Ulm", "people": 3}, {"name": "Ulm", "people": 3}),
    "Struct": (Village, {"name": "Ulm"}, Village("Ulm")),
    "pydantic": (Hamlet, {"name": "Ulm", "people": 3}, Hamlet(name="Ulm", people=3)),
    "recursive": (Tree, {"name": "a", "below": [{"name": "b"}]}, Tree(name="a", below=[Tree(name="b")])),
    "dict": (dict[str, int], {"Ulm": 3}, {"Ulm": 3}),
    "list": (list[City], {"value": [{"name": "Ulm", "people": 3}]}, [City("Ulm", 3)]),
    "union": (City | Hamlet | None, {"value": {"name": "Ulm", "people": 3}}, City("Ulm", 3)),
    "primitive": (int, {"value": 126_000}, 126_000),
    "choice": (Literal["north", "south"], {"value": "south"}, "south"),
}


@each_row("kind", ROOTS)
@each_row("server", SERVERS)
async def test_every_server_is_asked_so_that_it_takes_it_and_the_value_comes_out(server: str, kind: str) -> None:
    """The strict servers refuse a schema they do not take, such as one that is not of an object."""
    output_type, said, value = ROOTS[kind]
    made = SERVERS[server]
    async with made.make(saying(said)) as running:
        result = await made.agent(running, output_type=output_type).run("Which?")
    assert (result.end_reason, result.detail, result.output) == ("done", "", value)
    assert len(running.requests) == 1


WAYS: list[tuple[str, Any, dict[str, Any], Way]] = [
    ("anthropic", City, {}, "schema"),
    ("anthropic", City, {"tools": [look]}, "schema"),
    ("anthropic", City, {"thinking_level": "low"}, "schema"),
    ("anthropic", dict[str, int], {}, "tool"),
    ("anthropic", Tree, {"thinking_level": "low"}, "offered"),
    ("anthropic, older", City, {}, "tool"),
    ("anthropic, older", City, {"tools": [look]}, "tool"),
    ("anthropic, older", City, {"tool_choice": "none", "tools": [look]}, "words"),
    ("anthropic, older", City, {"tool_choice": "required", "tools": [look]}, "words"),
    ("responses", City, {}, "schema"),
    ("responses", City, {"tools": [look]}, "schema"),
    ("responses", dict[str, int], {}, "tool"),
    ("responses", list[City], {}, "schema"),
    ("chat", City, {}, "schema"),
    ("chat", City, {"tools": [look]}, "tool"),
    ("google", City, {}, "schema"),
    ("google", City, {"tools": [look]}, "schema"),
    ("google", City, {"tools": [look], "tool_choice": "required"}, "words"),
    ("google, older", City, {}, "schema"),
    ("google, older", City, {"tools": [look]}, "tool"),
]


@each_row(("server", "output_type", "options", "wanted"), WAYS)
async def test_the_way_is_the_strictest_that_server_and_model_take(
    server: str, output_type: Any, options: dict[str, Any], wanted: Way
) -> None:
    made = SERVERS[server]
    async with made.make("never mind") as running:
        await made.agent(running, output_type=output_type, max_tool_calls=0, **options).run("Which?")
    assert way(running.requests[0]) == wanted


@pytest.mark.parametrize(("settings", "wanted"), [("json_schema", "schema"), ("tool", "tool"), ("none", "words")])
async def test_a_compatible_server_can_be_told_how_to_be_asked(settings: str, wanted: Way) -> None:
    async with OpenAIChatServer(saying({"name": "Ulm", "people": 3})) as running:
        model = running.model("qwen3", settings={"output_format": settings})
        result = await Agent(model, output_type=City).run("Which?")
    assert (way(running.requests[0]), result.output) == (wanted, City("Ulm", 3))


@pytest.mark.parametrize("server", SERVERS)
async def test_tools_are_used_first_and_the_answer_is_no_tool(server: str) -> None:
    """The answer's own tool runs nowhere: there is no execution of it, no result, no gate that is asked."""
    made, asked = SERVERS[server], list[str]()
    script = (answer("Let me see.", call("look", at="Ulm")), saying({"name": "Ulm", "people": 126_000}))
    async with made.make(*script) as running:
        agent = made.agent(
            running,
            output_type=City,
            tools=[look],
            before_tool_execution=lambda call: asked.append(call.name),  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType, reportUnknownLambdaType]  # typed as any callable
        )
        result = await agent.run("How large is Ulm?")
        assert (result.output, result.end_reason) == (City("Ulm", 126_000), "done")
        assert (asked, told(result.messages)) == (
            ["look"],
            [("look", "Ulm has 126,000 people", False, "completed")],
        )
        assert [way(body) for body in running.requests] == [way(running.requests[0])] * 2
        assert json.loads(result.text) == {"name": "Ulm", "people": 126_000}
        # And the conversation can go on.
        running.say(saying({"name": "Bonn", "people": 1}))
        assert (await agent.run("And Bonn?")).output == City("Bonn", 1)


@pytest.mark.parametrize("server", SERVERS)
async def test_an_answer_that_does_not_fit_is_asked_for_again_with_the_error(server: str) -> None:
    made = SERVERS[server]
    script = (saying({"name": "Ulm", "people": "many"}), "Ulm, I think.", saying({"name": "Ulm", "people": 3}))
    async with made.make(*script) as running:
        result = await made.agent(running, output_type=City).run("Which?")
    assert (result.output, result.end_reason, len(running.requests)) == (City("Ulm", 3), "done", 3)
    errors = [message.text for message in result.messages if isinstance(message, UserMessage) and message.synthetic]
    assert "people" in errors[0]
    assert errors[1].startswith("That answer does not fit: it is not JSON")


@pytest.mark.parametrize("server", SERVERS)
async def test_after_three_attempts_the_run_is_an_error_that_says_why(server: str) -> None:
    made = SERVERS[server]
    async with made.make(saying({"name": "Ulm"}), repeat_last=True) as running:
        result = await made.agent(running, output_type=City).run("Which?")
    assert (result.has_output, result.end_reason, len(running.requests)) == (False, "error", 3)
    assert result.detail.startswith("The answer did not fit output_type after 3 attempts: ")
    assert "people" in result.detail


def cut_short(value: str) -> Any:
    """An answer that was cut at the token limit."""

    def said(received: Received) -> Any:
        if FINAL in declared(received.json):
            return answer(call(FINAL, raw=value), stop_reason="length")
        return answer(value, stop_reason="length")

    return said


@each_row("value", ['{"name": "Ulm", "peo', '{"value": 12}'], ids=["broken", "whole by chance"])
@each_row("server", SERVERS)
async def test_an_answer_that_was_cut_is_never_taken(server: str, value: str) -> None:
    """failures.md C9: 12 may be the beginning of 126000."""
    made = SERVERS[server]
    async with made.make(cut_short(value), saying({"value": 126_000})) as running:
        result = await made.agent(running, output_type=int).run("How many?")
    assert (result.output, len(running.requests)) == (126_000, 2)
    (asked,) = [message.text for message in result.messages if isinstance(message, UserMessage) and message.synthetic]
    assert asked.startswith("That answer does not fit: it was cut at the token limit")


@pytest.mark.parametrize("server", SERVERS)
async def test_a_refusal_is_an_error_and_not_asked_again(server: str) -> None:
    """failures.md D1."""
    made = SERVERS[server]
    async with made.make(answer("I will not.", stop_reason="refusal")) as running:
        result = await made.agent(running, output_type=City).run("Which?")
    assert (result.has_output, result.end_reason, result.error_kind, len(running.requests)) == (
        False,
        "error",
        "refused",
        1,
    )


@pytest.mark.parametrize("server", ["anthropic, older", "google, older", "chat"])
async def test_what_is_said_beside_the_answer_is_shown_and_does_not_spoil_it(server: str) -> None:
    made = SERVERS[server]
    said = answer(text("Here it is."), call(FINAL, {"name": "Ulm", "people": 3}))
    async with made.make(said) as running:
        agent = made.agent(running, output_type=City, tools=[look])
        heard = EventCollector()
        agent.subscribe(heard)
        result = await agent.run("Which?")
    assert result.output == City("Ulm", 3)
    assert {event.delta.type for event in heard.of(MessageUpdate)} == {"text_start", "text_delta", "text_end"}
    assert result.text.startswith("Here it is.{")


@pytest.mark.parametrize("server", ["anthropic, older", "google, older", "chat"])
async def test_an_answer_beside_ordinary_calls_waits_for_their_results(server: str) -> None:
    made = SERVERS[server]
    early = answer(call("look", at="Ulm"), call(FINAL, {"name": "Ulm", "people": 1}))
    async with made.make(early, saying({"name": "Ulm", "people": 126_000})) as running:
        result = await made.agent(running, output_type=City, tools=[look]).run("Which?")
    assert (result.output, len(running.requests)) == (City("Ulm", 126_000), 2)


@pytest.mark.parametrize(
    ("server", "kind"), [("anthropic", Tree), ("anthropic, older", City), ("responses", dict[str, Any]), ("chat", City)]
)
async def test_a_model_that_thinks_before_it_answers_by_the_tool_is_understood_and_can_go_on(
    server: str, kind: Any
) -> None:
    """failures.md D5, D11: what it thought goes back with the text that the call has become."""
    made = SERVERS[server]
    first = answer(thinking("Hm."), call("look", at="Ulm"))
    last = answer(thinking("So."), call(FINAL, {"name": "Ulm"} if kind is Tree else {"name": "Ulm", "people": 3}))
    async with made.make(first, last, "thanks", last) as running:
        agent = made.agent(running, output_type=kind, tools=[look], thinking_level="low")
        result = await agent.run("Which?")
        assert (result.end_reason, result.detail) == ("done", "")
        again = await agent.run("Again?")
    assert (again.end_reason, again.detail, again.output) == ("done", "", result.output)
    assert way(running.requests[0]) == ("offered" if made.make is AnthropicServer else "tool")


async def test_a_tool_of_the_same_name_stays_what_it_is() -> None:
    @tool
    async def final_answer(words: str) -> str:
        """Write the final answer into the minutes."""
        return f"written: {words}"

    script = (answer(call(FINAL, words="hello")), answer(call(f"{FINAL}_2", name="Ulm", people=3)))
    async with AnthropicServer(*script) as running:
        agent = Agent(running.model("claude-3-5-haiku-latest"), output_type=City, tools=[final_answer])
        result = await agent.run("Which?")
    assert told(result.messages) == [(FINAL, "written: hello", False, "completed")]
    assert result.output == City("Ulm", 3)
    assert declared(running.requests[0]) == [FINAL, f"{FINAL}_2"]


REFUSALS: list[tuple[str, Sequence[str]]] = [
    ("This model does not support response format `json_schema`.", ["schema", "tool"]),
    ("'response_format' of type json_schema is not supported with this model.", ["schema", "tool"]),
]


@pytest.mark.parametrize(("words", "wanted"), REFUSALS)
async def test_a_server_without_a_json_mode_is_asked_with_a_tool_and_remembered(
    words: str, wanted: Sequence[str]
) -> None:
    def particular(received: Received) -> Any:
        if way(received.json) == "schema":
            return Reply(400, {"error": {"message": words, "type": "invalid_request_error"}})
        return answer(call(FINAL, {"name": "Ulm", "people": 3}))

    async with OpenAIChatServer(particular, repeat_last=True) as running:
        agent = Agent(running.model("old-model"), output_type=City, retry=Retry(base_delay=0))
        results = [await agent.run("Which?"), await agent.run("Again?")]
    assert [result.output for result in results] == [City("Ulm", 3)] * 2
    assert [way(body) for body in running.requests] == [*wanted, "tool"]


async def test_a_server_without_tools_either_is_told_in_words() -> None:
    def plain(received: Received) -> Any:
        if way(received.json) == "schema":
            return Reply(400, {"error": {"message": "Unknown parameter: 'response_format'."}})
        if way(received.json) == "tool":
            return Reply(400, {"error": {"message": "gemma does not support tools"}})
        return '```json\n{"name": "Ulm", "people": 3}\n```'

    async with OpenAIChatServer(plain, repeat_last=True) as running:
        agent = Agent(running.model("gemma"), output_type=City, retry=Retry(base_delay=0))
        result = await agent.run("Which?")
        assert (result.output, (await agent.run("Again?")).output) == (City("Ulm", 3), City("Ulm", 3))
    assert [way(body) for body in running.requests] == ["schema", "tool", "words", "words"]
    assert "JSON Schema" in running.requests[-1]["messages"][0]["content"]


async def test_another_refusal_is_not_taken_for_one_of_the_form() -> None:
    """failures.md E5: the same request is not sent again in another way when its form was not the fault."""
    fault = Reply(400, {"error": {"message": "Invalid 'messages[0].content'.", "type": "invalid_request_error"}})
    async with OpenAIChatServer(fault, repeat_last=True) as running:
        result = await Agent(running.model("qwen3"), output_type=City).run("Which?")
    assert (result.end_reason, result.error_kind, len(running.requests)) == ("error", "invalid_request", 1)


async def test_a_fallback_model_is_asked_in_its_own_way() -> None:
    broken = Reply(401, {"type": "error", "error": {"type": "authentication_error", "message": "no"}})
    async with AnthropicServer(broken) as first, OpenAIChatServer(saying({"name": "Ulm", "people": 3})) as second:
        agent = Agent(
            first.model("claude-sonnet-4-5"), output_type=City, tools=[look], fallbacks=[second.model("qwen3")]
        )
        result = await agent.run("Which?")
    assert (way(first.requests[0]), way(second.requests[0]), result.output) == ("schema", "tool", City("Ulm", 3))
