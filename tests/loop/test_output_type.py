from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, cast

import msgspec
import pydantic
import pytest
from tests.loop.toolbox import agent_of, echo, texts
from tests.rows import each_row

from steersman import Agent, UserMessage
from steersman.testing import ScriptedModel, answer, call, error, stall


@dataclass
class City:
    """A city."""

    name: str
    people: int = 0


class Town(TypedDict):
    name: str
    people: int


class Village(msgspec.Struct):
    name: str
    people: int = 0


class Hamlet(pydantic.BaseModel):
    name: str
    people: int = 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (City, City("Ulm", 3)),
        (Town, {"name": "Ulm", "people": 3}),
        (Village, Village("Ulm", 3)),
        (Hamlet, Hamlet(name="Ulm", people=3)),
        (dict[str, Any], {"name": "Ulm", "people": 3}),
    ],
    ids=["dataclass", "TypedDict", "Struct", "pydantic", "dict"],
)
async def test_the_output_is_one_of_the_type_asked_for(kind: Any, value: Any) -> None:
    """loop.md T11"""
    agent, _ = agent_of(ScriptedModel('{"name": "Ulm", "people": 3}'), output_type=kind)
    result = await agent.run("Which city?")
    assert (result.output, result.end_reason) == (value, "done")


async def test_the_model_is_told_the_schema_in_the_request_and_in_the_system_prompt() -> None:
    script = ScriptedModel('{"name": "Ulm"}')
    agent, _ = agent_of(script, output_type=City, system_prompt="Be brief.")
    result = await agent.run("Which city?")
    request, options = script.requests[0]
    assert options.output_schema is not None
    assert options.output_schema["required"] == ["name"]
    assert request.system_prompt.startswith("Be brief.\n\nAnswer with one JSON value that fits this JSON Schema")
    assert result.output == City("Ulm")


@pytest.mark.parametrize("text", ['```json\n{"name": "Ulm"}\n```', '```\n{"name": "Ulm"}\n```', '  {"name": "Ulm"}\n'])
async def test_an_answer_in_a_fence_or_with_blanks_is_read(text: str) -> None:
    agent, _ = agent_of(ScriptedModel(text), output_type=City)
    assert (await agent.run("Which city?")).output == City("Ulm")


async def test_an_answer_that_does_not_fit_is_asked_for_again_with_the_error() -> None:
    """loop.md T11"""
    script = ScriptedModel("Ulm, I think.", '{"name": "Ulm", "people": "many"}', '{"name": "Ulm", "people": 3}')
    agent, _ = agent_of(script, output_type=City)
    result = await agent.run("Which city?")
    assert (result.output, result.end_reason, script.asked) == (City("Ulm", 3), "done", 3)
    asked = [message for message in result.messages if isinstance(message, UserMessage) and message.synthetic]
    assert len(asked) == 2
    assert asked[0].text.startswith("That answer does not fit: it is not JSON")
    assert "people" in asked[1].text


async def test_after_too_many_answers_that_do_not_fit_the_run_ends_as_an_error() -> None:
    """loop.md R8: never an empty success."""
    script = ScriptedModel("no", repeat_last=True)
    agent, _ = agent_of(script, output_type=City)
    result = await agent.run("Which city?")
    assert (result.has_output, result.end_reason, script.asked) == (False, "error", 3)
    assert "The answer did not fit output_type after 3 attempts: it is not JSON" in result.detail


async def test_only_the_last_answer_is_read() -> None:
    """loop.md T11"""
    script = ScriptedModel(answer("Let me look.", call("echo", text="Ulm")), '{"name": "Ulm"}')
    agent, _ = agent_of(script, [echo], output_type=City)
    result = await agent.run("Which city?")
    assert (result.output, script.asked) == (City("Ulm"), 2)


async def test_what_the_user_adds_meanwhile_is_heard_before_the_output_is_read() -> None:
    """loop.md T11"""
    script = ScriptedModel(answer('{"name": "Ulm"}', pace=1), '{"name": "Bonn"}')

    agent, _ = agent_of(script, output_type=City)
    agent.subscribe(lambda event: agent.steer("a bigger one", key="once") if event.type == "message_update" else None)
    result = await agent.run("Which city?")
    assert result.output == City("Bonn")
    assert [text for role, text in texts(result.messages) if role == "user"] == ["Which city?", "a bigger one"]


@pytest.mark.parametrize(
    "turn", [error("authentication"), answer("x", stop_reason="refusal")], ids=["error", "refusal"]
)
async def test_a_failed_run_has_no_output(turn: Any) -> None:
    """loop.md T9"""
    agent, _ = agent_of(ScriptedModel(turn), output_type=City)
    result = await agent.run("Which city?")
    assert (result.has_output, result.end_reason) == (False, "error")


async def test_the_output_of_one_run_is_not_that_of_the_next() -> None:
    script = ScriptedModel('{"name": "Ulm"}', error("authentication"), "no", '{"name": "Bonn"}')
    agent, _ = agent_of(script, output_type=City)
    results = [await agent.run("Which city?") for _ in range(3)]
    assert [result.output if result.has_output else None for result in results] == [City("Ulm"), None, City("Bonn")]


async def test_an_aborted_run_has_no_output() -> None:
    agent, _ = agent_of(ScriptedModel(stall('{"name": "Ulm"}')), output_type=City)
    agent.subscribe(lambda event: agent.abort() if event.type == "message_update" else None)
    result = await agent.run("Which city?")
    assert (result.has_output, result.end_reason) == (False, "aborted")


def test_a_type_that_has_no_schema_is_refused_where_it_is_given() -> None:
    with pytest.raises((TypeError, ValueError)):
        Agent(ScriptedModel("x").model, output_type=cast(Any, object()))


@each_row(
    ("kind", "text", "value"),
    [
        (list[City], '{"value": [{"name": "Ulm"}]}', [City("Ulm")]),
        (list[City], '[{"name": "Ulm"}]', [City("Ulm")]),
        (int, '{"value": 3}', 3),
        (int, "3", 3),
        (str, '{"value": "Ulm"}', "Ulm"),
        (bool, '{"value": false}', False),
        (City | Village, '{"value": {"name": "Ulm", "people": 3}}', City("Ulm", 3)),
        (City | list[int], '{"value": [1, 2]}', [1, 2]),
        (dict[str, int] | None, '{"value": {"value": 1}}', {"value": 1}),
        (dict[str, int] | None, '{"value": 1}', {"value": 1}),
        (tuple[int, str], '{"value": [1, "a"]}', (1, "a")),
    ],
)
async def test_a_type_that_is_no_object_stands_in_one_and_is_taken_bare_too(kind: Any, text: str, value: Any) -> None:
    """Providers promise to keep to a schema only where it is of an object."""
    script = ScriptedModel(text)
    agent, _ = agent_of(script, output_type=kind)
    result = await agent.run("Which?")
    assert (result.output, result.end_reason) == (value, "done")
    schema = script.requests[0][1].output_schema
    assert schema is not None
    assert (schema["type"], schema["required"]) == ("object", ["value"])


async def test_definitions_stay_where_references_look_for_them() -> None:
    @dataclass
    class Node:
        name: str
        below: list[Node]

    Node.__annotations__["below"] = list[Node]
    agent, _ = agent_of(script := ScriptedModel('{"value": [{"name": "a", "below": []}]}'), output_type=list[Node])
    assert (await agent.run("Which?")).output == [Node("a", [])]
    schema = script.requests[0][1].output_schema
    assert schema is not None
    assert [*schema["$defs"]] == ["Node"]
    assert "$defs" not in schema["properties"]["value"]


@pytest.mark.parametrize("text", ['{"name": "Ulm"}', '{"name": "U'], ids=["whole by chance", "broken"])
async def test_an_answer_that_was_cut_is_never_the_output(text: str) -> None:
    """failures.md C9"""
    script = ScriptedModel(answer(text, stop_reason="length"), '{"name": "Ulm", "people": 3}')
    agent, _ = agent_of(script, output_type=City)
    result = await agent.run("Which city?")
    assert (result.output, script.asked) == (City("Ulm", 3), 2)
    assert [text for role, text in texts(result.messages) if role == "user"][1] == (
        "That answer does not fit: it was cut at the token limit; give a shorter one. "
        "Answer again with one JSON value that fits the schema."
    )


@pytest.mark.parametrize("text", ["[" * 20_000, '{"name": "\\ud83d"}', '{"name": NaN}', "```", "", " "])
async def test_hostile_json_is_asked_for_again(text: str) -> None:
    """failures.md C12, C18, A7"""
    script = ScriptedModel(answer(text), '{"name": "Ulm"}')
    agent, _ = agent_of(script, output_type=City)
    result = await agent.run("Which city?")
    assert (result.end_reason, result.output) == ("done", City("Ulm"))


async def test_the_value_may_be_the_last_thing_said() -> None:
    script = ScriptedModel(answer("Here you are:", '{"name": "Ulm"}'))
    agent, _ = agent_of(script, output_type=City)
    assert (await agent.run("Which city?")).output == City("Ulm")


async def test_a_follow_up_is_answered_in_the_form_too_and_its_answer_is_the_output() -> None:
    script = ScriptedModel("no", '{"name": "Ulm"}', "no", "no", '{"name": "Bonn"}')
    agent, _ = agent_of(script, output_type=City)
    agent.follow_up("And another?")
    result = await agent.run("Which city?")
    # Each answer has its own attempts.
    assert (result.output, result.end_reason, script.asked) == (City("Bonn"), "done", 5)


async def test_the_output_of_an_earlier_answer_is_not_that_of_a_run_that_failed_later() -> None:
    script = ScriptedModel('{"name": "Ulm"}', error("authentication"))
    agent, _ = agent_of(script, output_type=City)
    agent.follow_up("And another?")
    result = await agent.run("Which city?")
    assert (result.has_output, result.end_reason) == (False, "error")


async def test_the_form_is_asked_for_whatever_becomes_of_the_system_prompt() -> None:
    script = ScriptedModel('{"name": "Ulm"}', repeat_last=True)
    agent, _ = agent_of(script, output_type=City, system_prompt="Be brief.")
    assert agent.context.system_prompt == "Be brief."
    agent.context.system_prompt = "Be long."
    await agent.run("Which city?")
    assert script.requests[0][0].system_prompt.startswith("Be long.\n\nAnswer with one JSON value that fits")
