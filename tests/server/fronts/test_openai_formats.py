"""Structured output over OpenAI's APIs: their own clients parse the value, and no other text is in their way."""

from __future__ import annotations

from typing import Any

import pytest
from openai import APIStatusError, BadRequestError
from pydantic import BaseModel
from tests.server.fronts.openai_kit import make_sdk, run_server
from tests.server.kit import make_agent

from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call, thinking

pytestmark = pytest.mark.real_time


class Weather(BaseModel):
    """What is asked for."""

    city: str
    degrees: int


GOOD = '{"city": "Oslo", "degrees": 7}'
SCHEMA = Weather.model_json_schema()
GO: Any = [{"role": "user", "content": "Go."}]


def make_meteorologist(*last: Any) -> Any:
    """It speaks, calls a tool of its own, answers with what does not fit, and then with these answers."""
    first = answer(thinking("Hm."), "I am looking.", call("look"))
    return make_agent(first, "Seven degrees.", *last, tools=[make_look()])


def make_look() -> Any:
    @tool
    def look() -> str:
        """Look at the thermometer."""
        return "7"

    return look


async def test_a_completion_is_parsed_into_the_type_that_was_asked_for() -> None:
    """Section 5: a schema holds for the last answer of a run; what was said on the way to it is not told."""
    async with run_server(make_meteorologist(GOOD)) as client:
        found = await make_sdk(client).chat.completions.parse(model="x", messages=GO, response_format=Weather)
    assert found.choices[0].message.parsed == Weather(city="Oslo", degrees=7)
    assert found.choices[0].finish_reason == "stop"


async def test_a_streamed_completion_is_parsed_as_well() -> None:
    async with run_server(make_meteorologist(GOOD)) as client:
        sdk = make_sdk(client)
        async with sdk.chat.completions.stream(model="x", messages=GO, response_format=Weather) as stream:
            async for _ in stream:
                pass
            found = await stream.get_final_completion()
    assert found.choices[0].message.parsed == Weather(city="Oslo", degrees=7)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_is_parsed_and_says_its_format(streamed: bool) -> None:
    async with run_server(make_meteorologist(GOOD)) as client:
        sdk = make_sdk(client)
        if streamed:
            async with sdk.responses.stream(model="x", input="Go.", text_format=Weather) as stream:
                async for _ in stream:
                    pass
                found = await stream.get_final_response()
        else:
            found = await sdk.responses.parse(model="x", input="Go.", text_format=Weather)
        again = await sdk.responses.retrieve(found.id)
    assert found.output_parsed == Weather(city="Oslo", degrees=7)
    assert again.output_text == found.output_text
    assert again.text is not None
    assert again.text.format is not None
    assert again.text.format.type == "json_schema"


async def test_the_next_request_has_no_schema_any_more() -> None:
    """The format is of one request, as its tools are."""
    async with run_server(make_meteorologist(GOOD, "Fine.")) as client:
        sdk = make_sdk(client)
        first = await sdk.responses.parse(model="x", input="Go.", text_format=Weather, conversation="c-1")
        then = await sdk.responses.create(model="x", input="And?", conversation="c-1")
    assert first.output_parsed is not None
    assert then.output_text == "Fine."


async def test_an_answer_that_never_fits_is_an_error() -> None:
    """No text that is not of the schema reaches a client that parses it."""
    async with run_server(make_meteorologist("Still seven.", "Seven!")) as client:
        sdk = make_sdk(client)
        with pytest.raises(APIStatusError, match="did not fit"):
            await sdk.chat.completions.parse(model="x", messages=GO, response_format=Weather)


async def test_an_agent_with_a_type_of_its_own_keeps_it() -> None:
    def own() -> Agent[Any]:
        kind: Any = SCHEMA
        return Agent(ScriptedModel(GOOD).model, output_type=kind)

    async with run_server(own) as client:
        sdk = make_sdk(client)
        with pytest.raises(BadRequestError, match="output type of its own"):
            await sdk.chat.completions.parse(model="x", messages=GO, response_format=Weather)
        found = await sdk.chat.completions.create(model="x", messages=GO)
    assert Weather.model_validate_json(found.choices[0].message.content or "") == Weather(city="Oslo", degrees=7)


async def test_regular_expressions_of_a_client_are_not_run() -> None:
    """With thirty letters this one takes minutes, in which nobody else is answered."""
    inner = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}, "required": ["x"]}
    format: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": inner}}
    value = '{"x": "aaaaaaaa!"}'
    async with run_server(make_agent(value, value, value)) as client:
        sdk = make_sdk(client)
        found = await sdk.chat.completions.create(model="x", messages=GO, response_format=format)
        text: Any = {"format": {"type": "json_schema", "name": "x", "schema": inner}}
        again = await sdk.responses.create(model="x", input="Go.", text=text)
    assert found.choices[0].message.content == again.output_text == '{"x":"aaaaaaaa!"}'


FAULTS: list[Any] = [
    {"type": "json_object"},
    {"type": "json_schema"},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}},
    {"type": "grammar"},
]


@pytest.mark.parametrize("format", FAULTS)
async def test_a_format_that_cannot_be_promised_is_refused(format: Any) -> None:
    """A silent ignore would let a client parse text as JSON; nothing is started."""
    async with run_server(make_agent("One.")) as client:
        with pytest.raises(BadRequestError, match="response_format"):
            await make_sdk(client).chat.completions.create(model="x", messages=GO, response_format=format)
        text: Any = {"format": format}
        with pytest.raises(BadRequestError, match=r"text\.format"):
            await make_sdk(client).responses.create(model="x", input="Go.", text=text)
        _, listed = await client.send("GET", "/sessions")
    assert listed["sessions"] == []
