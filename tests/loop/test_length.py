from __future__ import annotations

from typing import Any, cast

import pytest
from tests.loop.toolbox import agent_of, echo, told
from tests.rows import each_row

from steersman import Agent, AssistantMessage, Tool, tool
from steersman.testing import ScriptedModel, answer, call

INCOMPLETE = "error: tool call was incomplete due to max tokens reached"
CUT = '{"text": "half of wh'


async def results(*blocks: Any, stop_reason: Any = None, **options: Any) -> list[Any]:
    script = ScriptedModel(answer(*blocks, stop_reason=stop_reason), "ok")
    agent, _ = agent_of(script, [echo], **options)
    result = await agent.run("go")
    assert (result.end_reason, result.text) == ("done", "ok")
    return told(result.messages)


async def test_a_call_that_was_cut_is_answered_so_and_never_run_while_complete_ones_are() -> None:
    """loop.md D8, failures.md C9"""
    assert await results(call("echo", text="whole"), call("echo", raw=CUT), stop_reason="length") == [
        ("echo", "whole", False, "completed"),
        ("echo", INCOMPLETE, True, "invalid"),
    ]


async def test_fail_all_refuses_the_complete_ones_too() -> None:
    """loop.md D8"""
    told = await results(
        call("echo", text="whole"), call("echo", raw=CUT), stop_reason="length", length_policy="fail_all"
    )
    assert told == [("echo", INCOMPLETE, True, "invalid")] * 2


async def test_fail_all_does_not_touch_an_answer_that_was_not_cut() -> None:
    """loop.md D8"""
    assert await results(call("echo", text="whole"), length_policy="fail_all") == [
        ("echo", "whole", False, "completed")
    ]


@pytest.mark.parametrize("reason", ["tool_use", "stop", "length"])
@pytest.mark.parametrize("policy", ["run_complete", "fail_all"])
async def test_arguments_that_cannot_be_parsed_are_treated_alike_whatever_reason_the_server_gave(
    reason: str, policy: str
) -> None:
    """loop.md D8"""
    told = await results(call("echo", raw=CUT), call("echo", text="whole"), stop_reason=reason, length_policy=policy)
    whole = ("echo", "whole", False, "completed") if policy == "run_complete" else ("echo", INCOMPLETE, True, "invalid")
    assert told == [("echo", INCOMPLETE, True, "invalid"), whole]


@each_row(
    "raw", [CUT, "{", '{"text": "x"', '{"text": "x"}}', '{"text": "x",}', "{'text': 'x'}", "not json", '{"text": NaN}']
)
async def test_nothing_is_mended_by_guessing(raw: str) -> None:
    """loop.md D8"""
    assert await results(call("echo", raw=raw)) == [("echo", INCOMPLETE, True, "invalid")]


@pytest.mark.parametrize("raw", ["", "   ", "null", "{}"])
async def test_empty_arguments_mean_no_arguments(raw: str) -> None:
    """loop.md D8, failures.md C6"""
    seen: list[dict[str, Any]] = []

    async def execute(args: dict[str, Any]) -> str:
        seen.append(args)
        return "ran"

    bare = Tool("bare", "Takes nothing.", {"type": "object", "properties": {}}, execute)
    agent, _ = agent_of(ScriptedModel(answer(call("bare", raw=raw)), "ok"), [bare])
    result = await agent.run("go")
    assert told(result.messages) == [("bare", "ran", False, "completed")]
    assert seen == [{}]


@pytest.mark.parametrize(
    ("raw", "shown"), [("[]", "[]"), ('["x"]', "['x']"), ('"x"', "'x'"), ("1", "1"), ("true", "True")]
)
async def test_arguments_that_are_no_object_are_an_error_that_says_so(raw: str, shown: str) -> None:
    """loop.md D8, failures.md C7"""
    text = f"error: tool arguments must be a JSON object, got {shown}."
    assert await results(call("echo", raw=raw), call("echo", text="y"), length_policy="fail_all") == [
        ("echo", text, True, "invalid"),
        ("echo", "y", False, "completed"),
    ]


async def test_the_next_request_carries_what_the_model_wrote_as_an_object() -> None:
    """loop.md D8, failures.md C7"""
    script = ScriptedModel(answer(call("echo", raw=CUT)), "ok")
    agent, _ = agent_of(script, [echo])
    await agent.run("go")
    sent = script.requests[1][0].messages[1]
    assert isinstance(sent, AssistantMessage)
    assert sent.tool_calls[0].arguments == {"_raw": CUT}
    kept = agent.messages[1]
    assert isinstance(kept, AssistantMessage)
    assert (kept.tool_calls[0].raw_arguments, kept.tool_calls[0].arguments) == (CUT, {})


async def test_arguments_that_are_no_object_do_not_make_the_answer_a_cut_one() -> None:
    """loop.md D8"""
    agent, _ = agent_of(ScriptedModel(answer(call("echo", raw="[]")), "ok"), [echo])
    result = await agent.run("go")
    reasons = [message.stop_reason for message in result.messages if isinstance(message, AssistantMessage)]
    assert reasons == ["tool_use", "stop"]


async def test_an_answer_cut_in_its_text_ends_the_run_and_says_so() -> None:
    """loop.md D8"""
    agent, _ = agent_of(ScriptedModel(answer("Once upon a", stop_reason="length")))
    result = await agent.run("go")
    assert (result.end_reason, result.detail) == ("done", "The last answer was cut at the token limit.")


async def test_valid_but_short_arguments_of_a_cut_answer_can_be_refused() -> None:
    """loop.md D8, failures.md C9: JSON that parses may still be half of what was meant."""
    written: list[str] = []

    @tool
    async def write(text: str) -> str:
        """Write a file."""
        written.append(text)
        return "written"

    script = ScriptedModel(answer(call("write", text="# Title"), stop_reason="length"), "ok")
    agent, _ = agent_of(script, [write], length_policy="fail_all")
    result = await agent.run("go")
    assert (told(result.messages), written) == ([("write", INCOMPLETE, True, "invalid")], [])


def test_an_unknown_length_policy_is_refused_where_it_is_given() -> None:
    """loop.md D8"""
    with pytest.raises(ValueError, match="length_policy is one of 'run_complete', 'fail_all'"):
        Agent(ScriptedModel("x").model, length_policy=cast(Any, "mend"))
