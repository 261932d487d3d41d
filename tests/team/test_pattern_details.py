"""What patterns keep of their parts: usage, kinds of failures, images, policies, and what was heard."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.loop.toolbox import echo
from tests.team.test_patterns import USAGE, part, prompts, scripted, steer_while_it_answers

from steersman import Agent, ExecutionLimits, ImageContent, TextContent
from steersman.policy.hooks import PolicyView
from steersman.team import Handoff, Loop, Parallel, Pipeline
from steersman.testing import EventCollector, ScriptedModel, answer, call, error
from steersman.types import Request
from steersman.types.events import RetryScheduled


async def test_parts_one_after_another_count_as_one_at_once() -> None:
    limits = ExecutionLimits(max_sub_agents_at_once=1)
    result = await Pipeline([part("a"), part("b"), part("c")], limits=limits).run("go")
    assert (result.text, result.end_reason) == ("c", "done")


async def test_each_result_says_what_its_part_used() -> None:
    used = msgspec.to_builtins(USAGE)
    pipeline = await Pipeline([part("a"), part("b")]).run("go")
    agents = {"a": part(answer(call("hand_off_to_b", reason="yours"))), "b": part("done")}
    desk = await Handoff(agents).run("go")
    for result in (pipeline, desk):
        assert [message.details["usage"] for message in result.tool_results] == [used, used]


async def test_the_only_part_of_a_parallel_fails_as_the_whole_does() -> None:
    result = await Parallel({"a": part(error("authentication"))}).run("go")
    assert (result.end_reason, result.error_kind) == ("error", "authentication")
    assert result.detail == "Sub-agent 'a' ended with 'error': scripted error: authentication"


async def test_an_agent_of_a_hand_off_keeps_its_own_policies() -> None:
    seen: list[int] = []

    def note(view: PolicyView) -> None:
        seen.append(len(view.tool_results))

    first = part(answer(call("hand_off_to_b", reason="yours")), post_turn_policies=[note])
    result = await Handoff({"a": first, "b": part("done")}).run("go")
    assert (result.text, seen) == ("done", [1])


async def test_an_agent_that_fails_while_it_hands_off_hands_nothing_off() -> None:
    def break_down(_: PolicyView) -> None:
        raise OSError("the disk is gone")

    calls = answer(call("hand_off_to_b", reason="yours"), call("echo", text="x"))
    first = part(calls, tools=[echo], post_turn_policies=[break_down])
    script, second = scripted("never asked")
    result = await Handoff({"a": first, "b": second}).run("go")
    assert (result.end_reason, script.asked) == ("error", 0)
    assert "the disk is gone" in result.detail


async def test_the_first_agent_of_a_hand_off_sees_the_images_of_the_prompt() -> None:
    script, seeing = scripted("A cat.")
    image = ImageContent("iVBORw0KGgo=", "image/png")
    await Handoff({"a": seeing, "b": part("x")}).run([TextContent("What is it?"), image])
    assert list(script.requests[0][0].messages[0].content) == [TextContent("What is it?"), image]


@pytest.mark.parametrize("hands_off", [True, False])
async def test_what_an_agent_heard_is_told_once_to_the_next(hands_off: bool) -> None:
    """It is in the conversation that is handed over, and not said again with the next prompt."""
    last: Any = answer(call("hand_off_to_b", reason="yours")) if hands_off else "kind"
    first = ScriptedModel(answer("thinking", pace=1), last, "more")
    second, other = scripted("done", "more")
    desk = Handoff({"a": Agent(first.model), "b": other})
    steer_while_it_answers(desk, "Be kind.")
    await desk.run("go")
    await desk.run("And?")
    said = prompts(second if hands_off else first)[-1]
    assert [text for text in said if text in ("go", "Be kind.", "And?")] == ["go", "Be kind.", "And?"]


async def test_copies_of_a_pattern_at_work_at_once_read_their_own_conversations() -> None:
    def repeat(request: Request) -> str:
        return f"heard {request.messages[-1].text}"

    copied = Pipeline([Agent(ScriptedModel(repeat, repeat_last=True).model) for _ in range(2)])
    tools = [copied.as_tool("line", "A pipeline.")]
    leader = part(answer(call("line", prompt="one"), call("line", prompt="two")), "Done.", tools=tools)
    result = await leader.run("go")
    assert [message.text for message in result.tool_results] == ["heard heard one", "heard heard two"]


async def test_after_other_messages_were_assigned_a_pattern_works_on_these() -> None:
    script, first = scripted("1", "2", "3")
    pipeline = Pipeline([first])
    await pipeline.run("one")
    await pipeline.run("two")
    pipeline.messages = ["three"]
    assert ((await pipeline.continue_()).text, prompts(script)[-1]) == ("3", ["three"])


async def test_the_notice_of_a_limit_is_no_request() -> None:
    script, last = scripted("end")
    pipeline = Pipeline([part("draft"), last], limits=ExecutionLimits(max_turns=1))
    assert (await pipeline.run("go")).end_reason == "limit"
    pipeline.configure(limits=None)
    assert ((await pipeline.continue_()).text, prompts(script)) == ("end", [["draft"]])


async def test_rounds_with_the_same_prompt_are_no_repetition() -> None:
    script = ScriptedModel("the same", repeat_last=True)
    result = await Loop(Agent(script.model), until=lambda _: False, max_rounds=20).run("go")
    assert (script.asked, result.end_reason) == (20, "stopped")
    assert [message.text for message in result.messages if message.role == "user"] == ["go"]


async def test_parts_that_have_not_begun_are_not_skipped_for_steering() -> None:
    scripts = [ScriptedModel(answer("thinking", pace=1), "steered"), ScriptedModel("second", repeat_last=True)]
    parallel = Parallel([Agent(script.model) for script in scripts], max_at_once=1)
    steer_while_it_answers(parallel, "Hey.")
    result = await parallel.run("go")
    assert [message.text for message in result.tool_results] == ["steered", "second"]
    assert prompts(scripts[1]) == [["go", "Hey."]]


async def test_a_pattern_does_not_ask_its_plan_again_after_a_failure_that_may_pass() -> None:
    """The part has its own retry; the plan would say the same again."""
    pipeline = Pipeline([part(error("overloaded"), retry=None)])
    events = EventCollector()
    pipeline.subscribe(events)
    result = await pipeline.run("go")
    assert (result.end_reason, result.error_kind, events.of(RetryScheduled)) == ("error", "overloaded", [])
