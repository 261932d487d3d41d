from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
from tests.loop.toolbox import Workshop, agent_of, echo, told

from steersman import Agent, ExecutionLimits, Tool, Usage
from steersman import tool as define
from steersman.testing import ScriptedModel, Witness, answer, call, check_events, error, stall
from steersman.types.events import AgentEnd, AgentStart, ToolExecutionUpdate, TurnStart


def now() -> float:
    return asyncio.get_running_loop().time()


def researcher(*turns: Any, **options: Any) -> tuple[Tool, ScriptedModel]:
    """A sub-agent as a tool, and its script."""
    script = ScriptedModel(*turns, id="child")
    return Agent(script.model, **options).as_tool("research", "Find something out."), script


async def test_a_sub_agent_answers_the_call_with_its_text() -> None:
    tool, script = researcher("It is blue.")
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="What colour?")), "Blue."), [tool])
    result = await agent.run("go")
    assert told(result.messages) == [("research", "It is blue.", False, "completed")]
    assert [message.text for message in script.requests[0][0].messages] == ["What colour?"]
    assert result.text == "Blue."


async def test_its_usage_counts_in_the_parent() -> None:
    """loop.md T8"""
    tool, _ = researcher(answer(call("nope"), usage=Usage(100, 10)), answer("done", usage=Usage(200, 20)))
    script = ScriptedModel(answer(call("research", prompt="x"), usage=Usage(1, 1)), answer("ok", usage=Usage(2, 2)))
    agent, _ = agent_of(script, [tool])
    result = await agent.run("go")
    assert result.usage == Usage(303, 33)
    (message,) = [message for message in result.messages if message.role == "tool_result"]
    assert message.details["usage"] == msgspec.to_builtins(Usage(300, 30))


async def test_its_events_name_it_and_come_as_updates_of_its_call() -> None:
    """loop.md R3, D2"""
    tool, _ = researcher("It is blue.")
    agent, heard = agent_of(ScriptedModel(answer(call("research", prompt="x")), "ok"), [tool])
    await agent.run("go")
    updates = heard.of(ToolExecutionUpdate)
    assert {(event.tool_call_id, event.update["type"], event.update["agent"]) for event in updates} == {
        ("call_1", "agent_event", "research")
    }
    told = [event.update["event"] for event in updates]
    assert (told[0]["type"], told[-1]["type"]) == ("agent_start", "agent_end")
    parent = heard.of(AgentStart)[0]
    assert (told[0]["parent_loop_id"], told[0]["parent_tool_call_id"]) == (parent.loop_id, "call_1")
    assert [event["seq"] for event in told] == list(range(len(told)))
    assert [event["triggered_by"] for event in told if event["type"] == "turn_start"] == ["sub_agent"]


async def test_each_call_is_a_conversation_of_its_own() -> None:
    tool, script = researcher("one", "two")
    agent, heard = agent_of(
        ScriptedModel(answer(call("research", prompt="a"), call("research", prompt="b")), "ok"), [tool]
    )
    result = await agent.run("go")
    assert sorted(text for _, text, *_ in told(result.messages)) == ["one", "two"]
    assert [[message.text for message in request.messages] for request, _ in script.requests] == [["a"], ["b"]]
    loops = {event.update["event"]["loop_id"] for event in heard.of(ToolExecutionUpdate)}
    assert len(loops) == 2


async def test_sub_agents_run_side_by_side() -> None:
    """loop.md D1"""
    tool, _ = researcher(answer("slow", pace=10, deltas=1), answer("slow", pace=10, deltas=1))
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="a"), call("research", prompt="b")), "ok"), [tool])
    await agent.run("go")
    assert now() == 10.0


async def test_its_failure_is_an_error_result_and_not_the_end_of_the_parent() -> None:
    """loop.md D4"""
    tool, _ = researcher(error("authentication"))
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x")), "ok"), [tool])
    result = await agent.run("go")
    text = "Sub-agent 'research' ended with 'error': scripted error: authentication"
    assert told(result.messages) == [("research", text, True, "completed")]
    assert result.text == "ok"


async def test_the_turns_of_the_parent_are_shared() -> None:
    """loop.md T3"""
    tool, script = researcher(*(answer(call("echo", text=str(number))) for number in range(9)), tools=[echo])
    parent = ScriptedModel(answer(call("research", prompt="x")), "never said")
    agent, _ = agent_of(parent, [tool], limits=ExecutionLimits(max_turns=4))
    result = await agent.run("go")
    ((_, text, is_error, _),) = told(result.messages)
    assert (is_error, text.startswith("Sub-agent 'research' ended with 'limit': Max turns reached (4/4)")) == (
        True,
        True,
    )
    assert (script.asked, parent.asked, result.end_reason, result.detail) == (4, 1, "limit", "Max turns reached (5/4)")


async def test_the_tokens_of_the_parent_are_shared() -> None:
    """loop.md T3, failures.md I9"""
    tool, script = researcher(*(answer(call("echo", text=str(n)), usage=Usage(50, 50)) for n in range(9)), tools=[echo])
    parent = ScriptedModel(answer(call("research", prompt="x"), usage=Usage(50, 50)), "never said")
    agent, _ = agent_of(parent, [tool], limits=ExecutionLimits(max_total_tokens=300))
    result = await agent.run("go")
    assert (script.asked, parent.asked, result.end_reason) == (2, 1, "limit")
    assert result.detail == "Max tokens reached (300/300)"


async def test_a_limit_of_its_own_ends_only_the_sub_agent() -> None:
    """loop.md T3"""
    tool, script = researcher(
        *(answer(call("echo", text=str(n))) for n in range(9)), tools=[echo], limits=ExecutionLimits(max_turns=2)
    )
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x")), "ok"), [tool])
    result = await agent.run("go")
    assert (script.asked, result.end_reason, result.text) == (2, "done", "ok")


async def test_the_deadline_of_the_parent_is_that_of_the_sub_agent() -> None:
    """loop.md T3"""
    tool, script = researcher(stall())
    parent = ScriptedModel(answer(call("research", prompt="x")), "never said")
    agent, heard = agent_of(parent, [tool], limits=ExecutionLimits(max_duration=30))
    result = await agent.run("go")
    assert (result.end_reason, result.detail, now()) == ("limit", "Max duration reached (30s/30s)", 30.0)
    assert (script.streaming, parent.asked) == (0, 1)
    assert told(result.messages) == [("research", "tool call cancelled: operation aborted", True, "interrupted")]
    check_events(heard)


async def test_an_abort_of_the_parent_ends_the_sub_agent_before_the_parent() -> None:
    """loop.md T12, failures.md F13"""
    shop = Workshop()
    tool, script = researcher(answer(call("job", name="a", seconds=100.0)), tools=[shop.job()])
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x"))), [tool])
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    agent.abort()
    result = await running
    assert (result.end_reason, shop.log, now()) == ("aborted", ["+a", "!a"], 5.0)
    assert script.asked == 1
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_sub_agent_of_a_sub_agent_is_reached_as_well() -> None:
    """loop.md T12, T8"""
    inner, deepest = researcher(stall("partial", after=1))
    middle = Agent(ScriptedModel(answer(call("research", prompt="y"), usage=Usage(10, 1))).model, tools=[inner])
    agent, _ = agent_of(
        ScriptedModel(answer(call("delegate", prompt="x"), usage=Usage(5, 1))),
        [middle.as_tool("delegate", "Delegate.")],
    )
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    assert deepest.streaming == 1
    agent.abort()
    result = await running
    assert (result.end_reason, deepest.streaming, now()) == ("aborted", 0, 5.0)
    assert (result.usage.input, result.usage.output) == (15, 2)


async def test_steering_that_cancels_the_call_cancels_the_sub_agent() -> None:
    """loop.md D6"""
    tool, script = researcher(stall())
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x")), "heard"), [tool], steering="cancel")
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    agent.steer("never mind")
    result = await running
    assert told(result.messages) == [
        ("research", "tool call cancelled: user requested steering interrupt", True, "interrupted")
    ]
    assert (result.text, script.streaming) == ("heard", 0)


async def test_a_timeout_of_the_call_ends_the_sub_agent() -> None:
    """loop.md D5"""
    tool, script = researcher(stall())
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x")), "ok"), [tool], tool_timeout=7)
    result = await agent.run("go")
    assert told(result.messages) == [("research", "Tool 'research' timed out after 7s.", True, "interrupted")]
    assert (result.text, script.streaming) == ("ok", 0)


async def test_an_abort_that_comes_while_it_is_started_lets_it_do_nothing() -> None:
    """failures.md F13: a child that starts after the stop starts cancelled."""
    tool, script = researcher("never said")
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x"))), [tool])
    agent.subscribe(lambda event: agent.abort() if event.type == "tool_execution_start" else None)
    result = await agent.run("go")
    assert (result.end_reason, script.asked) == ("aborted", 0)


async def test_a_sub_agent_with_an_output_type_answers_with_its_value() -> None:
    @dataclass
    class Colour:
        name: str

    script = ScriptedModel('{"name": "blue"}', '{"name": "red"}')
    tool = Agent(script.model, output_type=Colour).as_tool("research", "Find a colour.")
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x"), call("research", prompt="y")), "ok"), [tool])
    result = await agent.run("go")
    assert told(result.messages) == [
        ("research", '{"name":"blue"}', False, "completed"),
        ("research", '{"name":"red"}', False, "completed"),
    ]


async def test_the_agent_behind_the_tool_keeps_its_own_conversation() -> None:
    script = ScriptedModel("from the tool", "to me")
    child = Agent(script.model)
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x")), "ok"), [child.as_tool("research", "Find.")])
    await agent.run("go")
    assert (list(child.messages), child.is_running) == ([], False)
    assert (await child.run("hello")).text == "to me"


async def test_a_prompt_that_is_missing_or_empty_is_answered_so() -> None:
    """loop.md D3"""
    tool, script = researcher("never said")
    agent, _ = agent_of(
        ScriptedModel(answer(call("research"), call("research", prompt=5), call("research", prompt="  ")), "ok"), [tool]
    )
    result = await agent.run("go")
    assert [(is_error, status) for _, _, is_error, status in told(result.messages)] == [
        (True, "invalid"),
        (True, "invalid"),
        (True, "completed"),
    ]
    assert script.asked == 0


async def test_the_events_of_a_sub_agent_hold_to_the_grammar(witnessed: Witness) -> None:
    """loop.md D2"""
    tool, _ = researcher(answer(call("echo", text="x")), "done", tools=[echo])
    agent, heard = agent_of(ScriptedModel(answer(call("research", prompt="x")), "ok"), [tool])
    await agent.run("go")
    assert witnessed.finished == 2
    assert (len(heard.of(AgentEnd)), len(heard.of(TurnStart))) == (1, 2)


async def test_an_abort_from_inside_a_sub_agent_stops_it_at_once() -> None:
    """loop.md T12: after a cancel there is no further model call, not even the child's next one."""

    @define
    async def give_up() -> str:
        """Abort the parent's run and go on as if nothing had happened."""
        agent.abort()
        return "done"

    tool, script = researcher(answer(call("give_up")), "never said", tools=[give_up])
    agent, _ = agent_of(ScriptedModel(answer(call("research", prompt="x"))), [tool])
    result = await agent.run("go")
    assert (result.end_reason, script.asked) == ("aborted", 1)
