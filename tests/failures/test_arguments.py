"""Failures of tool-call arguments, as far as the loop meets them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.loop.toolbox import agent_of, echo, told
from tests.rows import each_row

from steersman import Agent, AssistantMessage, Request, StreamOptions, TextContent, Tool, ToolCall, tool
from steersman.testing import ScriptedModel, answer, call, check_request
from steersman.types import wire
from steersman.types.content import parse_tool_call
from steersman.types.model import Model
from steersman.types.stream import Done, TextDelta, TextStart

INCOMPLETE = "error: tool call was incomplete due to max tokens reached"


def recorder(seen: list[dict[str, Any]], schema: dict[str, Any] | None = None) -> Tool:
    async def execute(args: dict[str, Any]) -> str:
        seen.append(args)
        return "ran"

    return Tool("act", "Act.", schema or {"type": "object", "properties": {}}, execute)


async def ran_with(block: ToolCall, schema: dict[str, Any] | None = None) -> tuple[list[Any], list[dict[str, Any]]]:
    """The result of one call, and what the tool got."""
    seen: list[dict[str, Any]] = []
    script = ScriptedModel(answer(block), "ok")
    agent, _ = agent_of(script, [recorder(seen, schema)])
    result = await agent.run("go")
    assert (result.end_reason, result.text) == ("done", "ok")
    return told(result.messages), seen


@pytest.mark.parametrize("arguments", ["", "  \n", "null", None, "{}"])
async def test_c6_empty_or_absent_arguments_are_an_empty_object(arguments: Any) -> None:
    """failures.md C6, loop.md D8"""
    results, seen = await ran_with(parse_tool_call("c", "act", arguments))
    assert (results, seen) == ([("act", "ran", False, "completed")], [{}])


async def test_c6_empty_arguments_are_then_checked_against_the_schema() -> None:
    """failures.md C6"""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    results, seen = await ran_with(call("act", raw=""), schema)
    text = "Invalid arguments for tool 'act':\narguments.x: missing, an integer is required"
    assert (results, seen) == ([("act", text, True, "invalid")], [])


@pytest.mark.parametrize("raw", ["[]", '"x"', "1", "false", '"{\\"a\\": 1}"', '[{"a": 1}]'])
async def test_c7_valid_json_that_is_no_object_is_an_error_and_is_sent_back_as_an_object(raw: str) -> None:
    """failures.md C7, loop.md D8: a double-encoded object too; nothing is guessed."""
    seen: list[dict[str, Any]] = []
    script = ScriptedModel(answer(call("act", raw=raw)), "ok")
    agent, _ = agent_of(script, [recorder(seen)])
    result = await agent.run("go")
    ((name, text, is_error, status),) = told(result.messages)
    assert (name, is_error, status, seen) == ("act", True, "invalid", [])
    assert text.startswith("error: tool arguments must be a JSON object, got ")
    sent = script.requests[1][0].messages[1]
    assert isinstance(sent, AssistantMessage)
    assert sent.tool_calls[0].arguments == {"_raw": raw}


async def test_c8_json_in_a_string_is_read_only_where_the_schema_wants_it() -> None:
    """failures.md C8, loop.md D3"""
    schema = {
        "type": "object",
        "properties": {
            "where": {"type": "object"},
            "tags": {"type": "array"},
            "count": {"type": "number"},
            "text": {"type": "string"},
        },
    }
    block = call("act", where='{"x": 1}', tags='["a"]', count="3", text='{"x": 1}')
    _, seen = await ran_with(block, schema)
    assert seen == [{"where": {"x": 1}, "tags": ["a"], "count": 3, "text": '{"x": 1}'}]


@pytest.mark.parametrize("raw", ['{"path":"a"', '{"path": "a", "text": "# Ti', '{"path"', "{"])
async def test_c9_a_call_cut_by_max_tokens_is_never_run(raw: str) -> None:
    """failures.md C9, loop.md D8"""
    seen: list[dict[str, Any]] = []
    script = ScriptedModel(answer(call("act", raw=raw), stop_reason="length"), "ok")
    agent, _ = agent_of(script, [recorder(seen)])
    result = await agent.run("go")
    assert (told(result.messages), seen) == ([("act", INCOMPLETE, True, "invalid")], [])


async def test_c9_valid_but_short_json_of_a_cut_answer_can_be_refused() -> None:
    """failures.md C9, loop.md D8"""
    seen: list[dict[str, Any]] = []
    script = ScriptedModel(answer(call("act", path="a"), stop_reason="length"), "ok")
    agent, _ = agent_of(script, [recorder(seen)], length_policy="fail_all")
    result = await agent.run("go")
    assert (told(result.messages), seen) == ([("act", INCOMPLETE, True, "invalid")], [])


@pytest.mark.parametrize("reason", ["stop", "tool_use", "length"])
async def test_c11_calls_are_run_whatever_the_stop_reason_says(reason: Any) -> None:
    """failures.md C11, loop.md section 1"""
    script = ScriptedModel(answer("Now.", call("echo", text="x"), stop_reason=reason), "ok")
    agent, _ = agent_of(script, [echo])
    result = await agent.run("go")
    assert (told(result.messages), result.text) == ([("echo", "x", False, "completed")], "ok")


async def test_c11_a_stop_for_tools_without_any_is_the_end() -> None:
    """failures.md C11, loop.md section 1"""
    script = ScriptedModel(answer("That is all.", stop_reason="tool_use", raw_stop_reason="tool_calls"), "never said")
    agent, _ = agent_of(script, [echo])
    result = await agent.run("go")
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (result.end_reason, script.asked) == ("done", 1)
    assert (last.stop_reason, last.raw_stop_reason) == ("stop", "tool_calls")


@each_row(
    "raw",
    [
        '{"x": NaN}',
        '{"x": Infinity}',
        '{"x": -Infinity}',
        '{"x": ' + "9" * 5_000 + "}",
        '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"x": 1e999}',
        '{"x": "\\ud83d"}',
        '{"x": "\ud83d"}',
        '{"x": 1} {"x": 2}',
        "\x00",
        "{\x00}",
    ],
    ids=["NaN", "Infinity", "-Infinity", "digits", "deep", "exponent", "surrogate", "raw half", "two", "NUL", "{NUL}"],
)
async def test_c12_hostile_json_is_an_error_result_and_never_a_crash(raw: str) -> None:
    """failures.md C12, loop.md D8"""
    results, seen = await ran_with(call("act", raw=raw))
    ((name, text, is_error, status),) = results
    assert (name, is_error, status, seen) == ("act", True, "invalid", [])
    assert text


async def test_c12_of_repeated_keys_the_last_counts() -> None:
    """failures.md C12"""
    _, seen = await ran_with(call("act", raw='{"x": 1, "x": 2}'))
    assert seen == [{"x": 2}]


async def test_c13_a_name_the_model_made_up_is_answered_with_the_names_there_are() -> None:
    """failures.md C13, loop.md D3"""

    @tool
    async def read_file(path: str) -> str:
        """Read a file."""
        return path

    script = ScriptedModel(answer(call("readfile", path="a"), call("read_file", path="b"), call("", path="c")), "ok")
    agent, _ = agent_of(script, [read_file, echo])
    result = await agent.run("go")
    known = "Available tools: read_file, echo."
    assert told(result.messages) == [
        ("readfile", f"No tool named 'readfile'. {known} Did you mean 'read_file'?", True, "invalid"),
        ("read_file", "b", False, "completed"),
        ("", f"No tool named ''. {known}", True, "invalid"),
    ]


def whole(*deltas: str) -> Any:
    """A server whose text comes in these deltas."""

    async def stream(model: Model, request: Request, options: StreamOptions) -> Any:
        check_request(request)
        yield TextStart()
        for delta in deltas:
            yield TextDelta(delta)
        yield Done(AssistantMessage([TextContent("".join(deltas))]))

    return stream


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        (("a \ud83d", "\ude42 b"), "a \U0001f642 b"),
        (("lone \ud83d",), "lone \ufffd"),
        (("\ude42 first",), "\ufffd first"),
    ],
    ids=["split", "lone", "low"],
)
async def test_c18_halves_are_joined_and_lone_ones_replaced(deltas: tuple[str, ...], text: str) -> None:
    """failures.md C18"""
    agent = Agent("scripted:none", stream_fn=whole(*deltas))
    result = await agent.run("go \ud83d")
    assert result.text == text
    assert result.messages[0].text == "go \ufffd"
    for message in result.messages:
        assert wire.decode(wire.encode(message)) == message
    assert (await agent.run("again")).text == text


async def test_c18_a_tool_that_gives_half_a_character_does_not_wedge_the_conversation() -> None:
    """failures.md C18"""

    @tool
    async def half() -> str:
        """Give half a character."""
        return "half \ud83d"

    script = ScriptedModel(answer(call("half")), "ok")
    agent, _ = agent_of(script, [half])
    result = await agent.run("go")
    assert told(result.messages) == [("half", "half \ufffd", False, "completed")]
    for message in result.messages:
        assert wire.encode(message)


async def test_c18_an_exception_with_half_a_character_does_not_wedge_the_conversation() -> None:
    """failures.md C18"""

    @tool
    async def half() -> str:
        """Raise half a character."""
        raise ValueError("half \ud83d")

    agent, _ = agent_of(ScriptedModel(answer(call("half")), "ok"), [half])
    result = await agent.run("go")
    assert told(result.messages) == [("half", "ValueError: half \ufffd", True, "completed")]
    for message in result.messages:
        assert wire.encode(message)
