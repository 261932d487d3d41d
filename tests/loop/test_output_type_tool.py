"""The answer as the call of a tool made for it: seen from outside a text, that streams, breaks and is checked so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, echo, texts

from steersman import Agent, Model, Request, Retry, StreamOptions, ToolCall
from steersman.provider.streaming.output_tool import FINAL_TOOL_NAME, OutputMode, with_output_tool
from steersman.testing import EventCollector, ScriptedModel, answer, call, cut, error, stall
from steersman.types.events import MessageUpdate
from steersman.types.messages import AssistantMessage
from steersman.types.stream import Done, StreamStart, ToolCallEnd, ToolCallStart


@dataclass
class City:
    """A city."""

    name: str
    people: int = 0


def by_tool(model: Model, request: Request, options: StreamOptions) -> OutputMode:
    del model, request, options
    return "tool"


def tool_only(script: ScriptedModel) -> Any:
    """The script as a server that can be held to a form only by a tool."""
    return with_output_tool(script, by_tool)


def asking(script: ScriptedModel, **options: Any) -> tuple[Agent, EventCollector]:
    return agent_of(script, output_type=City, stream_fn=tool_only(script), **options)


def kinds(heard: EventCollector) -> list[str]:
    """The types of the deltas, each once where several follow one another."""
    found: list[str] = []
    for event in heard.of(MessageUpdate):
        if not found or found[-1] != event.delta.type:
            found.append(event.delta.type)
    return found


async def test_the_call_streams_as_text_and_is_the_text_of_the_message() -> None:
    script = ScriptedModel(answer(call(FINAL_TOOL_NAME, name="Ulm", people=3), deltas=5))
    agent, heard = asking(script)
    result = await agent.run("Which city?")
    assert (result.output, result.text) == (City("Ulm", 3), '{"name":"Ulm","people":3}')
    assert kinds(heard) == ["text_start", "text_delta", "text_end"]
    assert heard.text == result.text
    assert [message.stop_reason for message in result.messages if isinstance(message, AssistantMessage)] == ["stop"]


async def test_the_model_must_call_it_and_is_told_the_schema_as_its_parameters() -> None:
    script = ScriptedModel(answer(call(FINAL_TOOL_NAME, name="Ulm")))
    agent, _ = asking(script, tools=[echo])
    await agent.run("Which city?")
    request, options = script.requests[0]
    assert [tool.name for tool in request.tools] == ["echo", FINAL_TOOL_NAME]
    assert request.tools[1].parameters == {
        "type": "object",
        "description": "A city.",
        "properties": {"name": {"type": "string"}, "people": {"type": "integer", "default": 0}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert (options.tool_choice, options.output_schema) == ("required", None)


async def test_it_is_the_same_tool_in_every_turn_and_run() -> None:
    """failures.md I11: a server that keeps the beginning of a request finds it again."""
    script = ScriptedModel(
        answer(call("echo", text="x")),
        answer(call(FINAL_TOOL_NAME, name="Ulm")),
        answer(call(FINAL_TOOL_NAME, name="B")),
    )
    agent, _ = asking(script, tools=[echo])
    await agent.run("Which city?")
    await agent.run("Another?")
    assert len({id(request.tools[-1]) for request, _ in script.requests}) == 1


async def test_the_transcript_goes_on_with_a_text() -> None:
    script = ScriptedModel(
        answer(call(FINAL_TOOL_NAME, name="Ulm", people="many")), answer(call(FINAL_TOOL_NAME, name="Ulm", people=3))
    )
    agent, _ = asking(script)
    result = await agent.run("Which city?")
    assert result.output == City("Ulm", 3)
    assert [role for role, _ in texts(result.messages)] == ["user", "assistant", "user", "assistant"]
    assert [message.text for message in script.requests[1][0].messages[1:2]] == ['{"name":"Ulm","people":"many"}']


async def test_a_stream_cut_in_the_middle_of_the_call_is_asked_again_and_nothing_is_doubled() -> None:
    """failures.md B18."""
    script = ScriptedModel(cut(call(FINAL_TOOL_NAME, name="Ulm"), after=2), answer(call(FINAL_TOOL_NAME, name="Bonn")))
    agent, heard = asking(script, retry=Retry(jitter=0))
    result = await agent.run("Which city?")
    assert (result.output, result.text) == (City("Bonn"), '{"name":"Bonn"}')
    assert kinds(heard) == ["text_start", "text_delta", "reset", "text_start", "text_delta", "text_end"]


async def test_what_was_shown_of_a_failed_answer_stays_in_its_message() -> None:
    script = ScriptedModel(error("authentication", call(FINAL_TOOL_NAME, name="Ulm", people=3), after=2, deltas=4))
    agent, _ = asking(script)
    result = await agent.run("Which city?")
    assert (result.end_reason, result.error_kind, result.has_output) == ("error", "authentication", False)
    assert result.text
    assert '{"name":"Ulm","people":3}'.startswith(result.text)


async def test_what_was_shown_before_it_stays_too() -> None:
    written = '{"name":"Ulm","people":3}'
    script = ScriptedModel(
        error("authentication", "Here:", call(FINAL_TOOL_NAME, name="Ulm", people=3), after=6, deltas=4)
    )
    agent, heard = asking(script)
    result = await agent.run("Which city?")
    assert (result.end_reason, result.text) == ("error", f"Here:{written[:12]}")
    assert heard.text == result.text


async def test_a_call_that_breaks_off_was_cut_whatever_the_server_says() -> None:
    """failures.md C9"""
    script = ScriptedModel(
        answer(call(FINAL_TOOL_NAME, raw='{"name": "Ulm"')), answer(call(FINAL_TOOL_NAME, name="Bonn"))
    )
    agent, _ = asking(script)
    result = await agent.run("Which city?")
    first = next(message for message in result.messages if isinstance(message, AssistantMessage))
    assert first.stop_reason == "length"
    assert "it was cut at the token limit" in result.messages[2].text


async def test_an_abort_in_the_middle_of_the_call_leaves_no_output() -> None:
    script = ScriptedModel(stall(call(FINAL_TOOL_NAME, name="Ulm"), after=2))
    agent, _ = asking(script)
    agent.subscribe(lambda event: agent.abort() if event.type == "message_update" else None)
    result = await agent.run("Which city?")
    assert (result.has_output, result.end_reason, script.streaming) == (False, "aborted", 0)


@pytest.mark.parametrize(
    ("raw", "value"), [('{"name": "Ulm"', None), ('["Ulm"]', None), ('"Ulm"', None), ('{"name":"Ulm"}', City("Ulm"))]
)
async def test_arguments_that_are_not_an_object_are_asked_for_again(raw: str, value: Any) -> None:
    """failures.md C7, C9"""
    script = ScriptedModel(answer(call(FINAL_TOOL_NAME, raw=raw)), answer(call(FINAL_TOOL_NAME, name="Bonn")))
    agent, _ = asking(script)
    result = await agent.run("Which city?")
    assert (result.output, script.asked) == ((City("Bonn"), 2) if value is None else (value, 1))


async def test_the_last_of_two_answers_counts() -> None:
    script = ScriptedModel(answer(call(FINAL_TOOL_NAME, name="Ulm"), call(FINAL_TOOL_NAME, name="Bonn")))
    agent, _ = asking(script)
    assert (await agent.run("Which city?")).output == City("Bonn")


async def test_a_stream_that_gives_the_arguments_only_with_the_end_is_shown_whole() -> None:
    made = ToolCall("c", FINAL_TOOL_NAME, {"name": "Ulm"})

    async def whole(model: Model, request: Request, options: StreamOptions) -> Any:
        del model, request, options
        yield StreamStart()
        yield ToolCallStart(0, "c", FINAL_TOOL_NAME)
        yield ToolCallEnd(0, made)
        yield Done(AssistantMessage([made], stop_reason="tool_use"))

    agent, heard = agent_of(ScriptedModel(), output_type=City, stream_fn=with_output_tool(whole, by_tool))
    result = await agent.run("Which city?")
    assert (result.output, heard.text) == (City("Ulm"), '{"name":"Ulm"}')


async def test_a_request_without_a_form_passes_untouched() -> None:
    script = ScriptedModel("Hello.")
    agent, _ = agent_of(script, [echo], stream_fn=tool_only(script))
    assert (await agent.run("Hi")).text == "Hello."
    assert [tool.name for tool in script.requests[0][0].tools] == ["echo"]


async def test_a_last_answer_without_tools_is_asked_for_without_this_one_too() -> None:
    """loop.md T3: with wrap_up tools are declared and not allowed."""
    from steersman import ExecutionLimits

    script = ScriptedModel(answer(call("echo", text="x")), "That is all.")
    agent, _ = asking(script, tools=[echo], limits=ExecutionLimits(max_turns=1, wrap_up=True))
    result = await agent.run("Which city?")
    assert (result.end_reason, result.has_output, result.text) == ("limit", False, "That is all.")
    request, options = script.requests[1]
    assert ([tool.name for tool in request.tools], options.tool_choice) == (["echo"], "none")
