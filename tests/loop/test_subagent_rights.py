"""What a sub-agent may not do: more than its parent, longer than its parent, or fail without saying how."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import pydantic
import pytest
from tests.loop.toolbox import agent_of, echo, told

from steersman import Agent, Retry, Skip, Stop, ToolCall, ToolContext, ToolResultMessage, tool
from steersman.policy.approval import Approval
from steersman.testing import ScriptedModel, answer, call, error, stall
from steersman.types.events import AgentStart, ToolExecutionUpdate


@tool
async def remove(path: str) -> str:
    """Remove a file."""
    return f"{path} is gone"


def sub_agent(*turns: Any, **options: Any) -> tuple[Any, ScriptedModel]:
    script = ScriptedModel(*turns, id="child")
    return Agent(script.model, tools=[remove, echo], **options).as_tool("ask", "Ask."), script


ASKING = (answer(call("ask", prompt="x")), "ok")


def heard_by(script: ScriptedModel) -> list[str]:
    """The tool results that the script was shown last."""
    messages = script.requests[-1][0].messages
    return [message.text for message in messages if isinstance(message, ToolResultMessage)]


async def test_a_gate_of_the_parent_stands_before_the_tools_of_its_sub_agents() -> None:
    """failures.md L21"""
    ask, script = sub_agent(answer(call("remove", path="a")), "done")
    agent, _ = agent_of(
        ScriptedModel(*ASKING),
        [ask],
        before_tool_execution=lambda call: Skip("Not here.") if call.name == "remove" else None,  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]  # typed as any callable
    )
    await agent.run("go")
    assert heard_by(script) == ["Not here."]


async def test_a_policy_of_the_parent_does_too_and_that_of_a_grandparent() -> None:
    """failures.md L21"""
    ask, script = sub_agent(answer(call("remove", path="a")), "done")
    middle = Agent(ScriptedModel(*ASKING).model, tools=[ask]).as_tool("ask", "Ask.")
    seen: list[tuple[str, str]] = []

    def policy(view: Any) -> Skip | None:
        seen.append((view.call.name, view.loop_id))
        return Skip("Not here.") if view.call.name == "remove" else None

    agent, _ = agent_of(ScriptedModel(*ASKING), [middle], pre_dispatch_policies=[policy])
    await agent.run("go")
    assert heard_by(script) == ["Not here."]
    assert [name for name, _ in seen] == ["ask", "ask", "remove"]
    assert len({loop for _, loop in seen}) == 3


async def test_its_own_gate_is_asked_first_and_that_of_the_parent_decides_about_what_it_made_of_the_call() -> None:
    """failures.md L21: a sub-agent cannot rewrite a call behind its parent's back."""
    from steersman import Rewrite

    ask, script = sub_agent(
        answer(call("remove", path="a")),
        "done",
        before_tool_execution=lambda call: Rewrite({"path": "/etc"}),  # pyright: ignore[reportUnknownLambdaType]  # typed as any callable
    )

    def guard(call: ToolCall) -> Skip | None:
        return Skip("Not /etc.") if call.arguments.get("path") == "/etc" else None

    agent, _ = agent_of(ScriptedModel(*ASKING), [ask], before_tool_execution=guard)
    await agent.run("go")
    assert heard_by(script) == ["Not /etc."]


async def test_a_gate_that_both_have_is_asked_once() -> None:
    asked: list[str] = []

    def gate(call: ToolCall) -> None:
        asked.append(call.name)

    ask, _ = sub_agent(answer(call("echo", text="x")), "done", before_tool_execution=gate)
    agent, _ = agent_of(ScriptedModel(*ASKING), [ask], before_tool_execution=gate)
    await agent.run("go")
    assert asked == ["ask", "echo"]


async def test_what_the_parent_hides_in_outputs_is_hidden_from_its_sub_agents() -> None:
    """failures.md L13, L21"""
    ask, script = sub_agent(answer(call("echo", text="the secret is 42")), "done")
    agent, _ = agent_of(
        ScriptedModel(*ASKING),
        [ask],
        after_tool_execution=lambda call, output: str(output.content).replace("42", "?"),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType, reportUnknownMemberType]  # typed as any callable
    )
    await agent.run("go")
    assert heard_by(script) == ["the secret is ?"]


async def test_a_stop_of_the_parents_gate_ends_the_sub_agent_that_made_the_call() -> None:
    ask, script = sub_agent(answer(call("remove", path="a")), "never said")
    agent, _ = agent_of(
        ScriptedModel(*ASKING),
        [ask],
        before_tool_execution=lambda call: Stop("enough") if call.name == "remove" else None,  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]  # typed as any callable
    )
    result = await agent.run("go")
    assert (script.asked, result.text) == (1, "ok")
    assert told(result.messages)[0][1].startswith("Sub-agent 'ask' ended with 'stopped': enough")


@pytest.mark.parametrize("own", [None, Approval("bypass")], ids=["none of its own", "bypass"])
async def test_what_the_parent_may_not_do_its_sub_agent_may_not_do(own: Approval | None) -> None:
    """failures.md L21: an approval policy holds for all runs below, whatever theirs says."""
    ask, script = sub_agent(answer(call("remove", path="a")), "done", approval=own)
    agent, _ = agent_of(ScriptedModel(*ASKING), [ask], approval=Approval(deny=["remove"], allow=["ask"]))
    await agent.run("go")
    (text,) = heard_by(script)
    assert text.startswith("Denied")


@pytest.mark.parametrize("kind", ["authentication", "rate_limit", "refused", "context_overflow", "invalid_request"])
async def test_what_kind_of_failure_it_was_crosses_the_boundary(kind: Any) -> None:
    """failures.md E11: an application can tell a wrong key from a full window, also from outside."""
    ask, _ = sub_agent(error(kind), retry=Retry(max_attempts=1))
    agent, _ = agent_of(ScriptedModel(*ASKING), [ask])
    result = await agent.run("go")
    (message,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (message.is_error, message.details["end_reason"], message.details["error_kind"]) == (True, "error", kind)
    assert (result.end_reason, result.error_kind) == ("done", None)


async def test_the_kind_of_a_run_of_ones_own_is_on_its_result() -> None:
    """failures.md E11"""
    result = await Agent(ScriptedModel(error("quota")).model).run("go")
    assert (result.end_reason, result.error_kind) == ("error", "quota")


@dataclass
class Colour:
    """A colour."""

    name: str


class Shade(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("kind", "said", "shown"),
    [
        (Colour, '{"name": "blue"}', '{"name":"blue"}'),
        (Shade, '{"name": "blue"}', '{"name":"blue"}'),
        (list[str], '{"value": ["blue"]}', '["blue"]'),
        (str, '{"value": "blue"}', "blue"),
        (int, '{"value": 3}', "3"),
    ],
)
async def test_a_value_of_any_type_is_told_as_json(kind: Any, said: str, shown: str) -> None:
    ask, _ = sub_agent(said, output_type=kind)
    agent, _ = agent_of(ScriptedModel(*ASKING), [ask])
    assert told((await agent.run("go")).messages) == [("ask", shown, False, "completed")]


async def test_a_tool_left_behind_cannot_start_a_sub_agent_after_its_run() -> None:
    """failures.md F13: the run is over and was not cancelled; a child attached after the stop starts cancelled."""
    script = ScriptedModel("never said")
    helper = Agent(script.model)
    ends: list[str] = []
    over = asyncio.Event()

    @tool(timeout=1)
    async def stubborn(ctx: ToolContext) -> str:
        """Take no notice of anything, then delegate."""
        until = asyncio.get_running_loop().time() + 50
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                pass
        ends.append((await helper.run_for(ctx, "late")).end_reason)
        over.set()
        return "done"

    agent, _ = agent_of(ScriptedModel(answer(call("stubborn")), "ok"), [stubborn])
    result = await agent.run("go")
    assert (result.end_reason, ends) == ("done", [])
    await over.wait()
    assert (ends, script.asked) == (["aborted"], 0)


async def test_a_sub_agent_without_a_waiter_ends_with_its_parent() -> None:
    """failures.md F13"""
    script = ScriptedModel(stall("still at it", after=1))
    helper = Agent(script.model)
    left: list[asyncio.Task[Any]] = []

    @tool
    async def forget(ctx: ToolContext) -> str:
        """Start something and do not wait for it."""
        left.append(asyncio.create_task(helper.run_for(ctx, "go")))
        await asyncio.sleep(1)
        return "started"

    agent, _ = agent_of(ScriptedModel(answer(call("forget")), "ok"), [forget])
    result = await agent.run("go")
    assert (result.end_reason, result.text) == ("done", "ok")
    assert ((await left[0]).end_reason, script.streaming) == ("aborted", 0)


async def test_its_start_names_the_run_and_the_call_it_belongs_to_at_every_level() -> None:
    """loop.md R3: the parent's subscribers hear a grandchild as an update inside an update."""
    inner, _ = sub_agent("deep")
    middle = Agent(ScriptedModel(*ASKING).model, tools=[inner]).as_tool("middle", "Delegate.")
    agent, heard = agent_of(ScriptedModel(answer(call("middle", prompt="x", id="outer")), "ok"), [middle])
    await agent.run("go")
    (top,) = heard.of(AgentStart)
    children = [event.update["event"] for event in heard.of(ToolExecutionUpdate)]
    (child,) = [event for event in children if event["type"] == "agent_start"]
    updates = [event for event in children if event["type"] == "tool_execution_update"]
    (grandchild,) = [event["update"]["event"] for event in updates if event["update"]["event"]["type"] == "agent_start"]
    assert (child["parent_loop_id"], child["parent_tool_call_id"]) == (top.loop_id, "outer")
    assert (grandchild["parent_loop_id"], grandchild["parent_tool_call_id"]) == (child["loop_id"], "call_1")
    assert len({top.agent_id, child["agent_id"], grandchild["agent_id"]}) == 3


async def test_a_variant_is_of_the_same_make_and_differs_as_it_is_told() -> None:
    script = ScriptedModel('{"name": "blue"}', "plain", '{"name": "red"}')
    agent = Agent(script.model, tools=[echo], system_prompt="Be brief.", output_type=Colour, temperature=0.5)
    await agent.run("first")
    same = agent.variant()
    assert (list(same.messages), same.tools, same.config.temperature) == ([], agent.tools, 0.5)
    plain = agent.variant(output_type=None, tools=[], system_prompt="Be long.", temperature=None, limits=None)
    assert (await plain.run("go")).text == "plain"
    request, options = script.requests[1]
    assert (request.system_prompt, list(request.tools), options.temperature, options.output_schema) == (
        "Be long.",
        [],
        None,
        None,
    )
    assert (await same.run("go")).output == Colour("red")
    assert len(agent.messages) == 2


async def test_an_agent_around_a_configuration_reads_its_own_output() -> None:
    script = ScriptedModel('{"name": "blue"}', '{"name": "red"}')
    first = Agent(script.model, output_type=Colour)
    second = Agent.from_config(first.config, tools=[echo], system_prompt="Be brief.", messages=["Hi."])
    assert ((await first.run("go")).output, (await second.run("go")).output) == (Colour("blue"), Colour("red"))
    assert [message.text for message in script.requests[1][0].messages] == ["Hi.", "go"]
    assert [tool.name for tool in script.requests[1][0].tools] == ["echo"]


@pytest.mark.parametrize("name", ["messages", "execution_limits", "nonsense", "session"])
def test_a_variant_takes_the_options_of_an_agent(name: str) -> None:
    with pytest.raises(TypeError, match=f"(?i){name}"):
        Agent(ScriptedModel("x").model).variant(**cast(Any, {name: 1}))
