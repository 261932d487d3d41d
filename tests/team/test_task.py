"""The `task` tool: work handed to a sub-agent that has nothing its parent has not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.loop.toolbox import Workshop, agent_of, count_steps, nap, told
from tests.rows import each_row

from steersman import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    ExecutionLimits,
    Pass,
    Skip,
    TaskKind,
    ToolCall,
    ToolResultMessage,
    Usage,
    agent_loop,
    task_tool,
    tool,
)
from steersman.policy.approval import Approval
from steersman.testing import ScriptedModel, answer, call, error, stall
from steersman.types.events import AgentStart, ToolExecutionUpdate

KINDS = {
    "general": TaskKind("For any work."),
    "explorer": TaskKind("Looks, changes nothing.", tools=["look"], system_prompt="You look."),
}


@tool(access="read")
async def look(at: str) -> str:
    """Look at something."""
    return f"{at} is there"


@tool
async def change(what: str) -> str:
    """Change something."""
    return f"{what} is changed"


def names(script: ScriptedModel, number: int) -> list[str]:
    return [tool.name for tool in script.requests[number][0].tools]


async def test_a_task_is_done_in_a_conversation_of_its_own_and_its_last_message_is_the_result() -> None:
    script = ScriptedModel(
        answer(call("task", prompt="Find it.", description="find")),
        answer("Let me see.", call("look", at="it")),
        "It is there.",
        "Found.",
    )
    agent, _ = agent_of(script, [look, task_tool()], system_prompt="Be brief.")
    result = await agent.run("Where is it?")
    assert told(result.messages) == [("task", "It is there.", False, "completed")]
    child, _ = script.requests[1]
    assert [message.text for message in child.messages] == ["Find it."]
    assert child.system_prompt.startswith("Be brief.\n\nYou are a sub-agent")
    assert len(result.messages) == 4


async def test_the_model_is_told_the_kinds_and_chooses_one() -> None:
    script = ScriptedModel(answer(call("task", prompt="Look.", kind="explorer")), "Seen.", "ok")
    agent, heard = agent_of(script, [look, change, task_tool(KINDS)], system_prompt="Be brief.")
    await agent.run("go")
    made = task_tool(KINDS)
    assert made.description.endswith("- general: For any work.\n- explorer: Looks, changes nothing.")
    assert made.parameters["properties"]["kind"]["enum"] == ["general", "explorer"]
    assert (names(script, 1), script.requests[1][0].system_prompt.split("\n")[0]) == (["look"], "You look.")
    assert {event.update["agent"] for event in heard.of(ToolExecutionUpdate)} == {"explorer"}


@pytest.mark.parametrize("given", [{}, {"kind": "explorer"}], ids=["without", "with"])
async def test_one_kind_needs_no_name_and_takes_it(given: dict[str, str]) -> None:
    """docs/sub-agents.md: a model that names the only kind is right."""
    script = ScriptedModel(answer(call("task", prompt="Look.", **given)), "Seen.", "ok")
    agent, _ = agent_of(script, [look, change, task_tool({"explorer": KINDS["explorer"]})])
    await agent.run("go")
    assert names(script, 1) == ["look"]
    assert task_tool().parameters["properties"]["kind"]["enum"] == ["general"]
    assert task_tool().parameters["required"] == ["prompt"]


async def test_a_kind_that_is_not_in_the_table_is_answered_with_those_that_are() -> None:
    """loop.md D3"""
    script = ScriptedModel(answer(call("task", prompt="x", kind="wizard"), call("task", kind="general")), "ok")
    agent, _ = agent_of(script, [look, task_tool(KINDS)])
    first, second = told((await agent.run("go")).messages)
    assert first[2:] == second[2:] == (True, "invalid")
    assert "expected one of 'general', 'explorer', got 'wizard'" in first[1]
    assert "prompt" in second[1]


async def test_a_sub_agent_has_the_tools_of_its_parent_or_fewer() -> None:
    """failures.md L21: an explorer cannot get a builder to do what it may not do."""
    kinds = {
        **KINDS,
        "explorer": TaskKind("Looks.", tools=["look", "task"]),
        "builder": TaskKind("B", tools=["change"]),
    }
    script = ScriptedModel(
        answer(call("task", prompt="explore", kind="explorer")),
        answer(call("task", prompt="build", kind="builder"), call("task", prompt="any", kind="general")),
        "as far as I could",
        "I could not build.",
        "ok",
    )
    agent, _ = agent_of(script, [look, change, task_tool(kinds)])
    await agent.run("go")
    assert [names(script, number) for number in range(3)] == [
        ["look", "change", "task"],
        ["look", "task"],
        ["look", "task"],
    ]
    messages = script.requests[3][0].messages
    assert [message.text for message in messages if isinstance(message, ToolResultMessage)] == [
        "No sub-agent of kind 'builder' here: it needs 'change', which you do not have.",
        "as far as I could",
    ]


async def test_the_guards_of_the_parent_hold_and_its_other_hooks_are_its_own() -> None:
    """failures.md L21"""
    seen: list[str] = []

    def guard(call: ToolCall) -> Skip | None:
        seen.append(f"gate {call.name}")
        return Skip("Not allowed.") if call.name == "change" else None

    def before_turn(messages: Any, index: int) -> None:
        seen.append(f"turn {index}")

    script = ScriptedModel(answer(call("task", prompt="x")), answer(call("change", what="all")), "I may not.", "ok")
    agent, _ = agent_of(script, [change, task_tool()], before_tool_execution=guard, before_turn=before_turn)
    result = await agent.run("go")
    assert seen == ["turn 0", "gate task", "gate change", "turn 1"]
    assert told(result.messages) == [("task", "I may not.", False, "completed")]


async def test_a_filter_of_the_parent_sees_what_its_user_says_and_not_its_tasks() -> None:
    heard: list[str] = []

    def listen(text: str) -> Pass:
        heard.append(text)
        return Pass()

    script = ScriptedModel(answer(call("task", prompt="x")), "child", "ok")
    agent, _ = agent_of(script, [task_tool()], input_filters=[listen])
    await agent.run("go")
    assert heard == ["go"]


async def test_an_approval_policy_is_asked_about_what_a_task_does_and_not_about_the_task() -> None:
    """failures.md L21: in plan mode a sub-agent may look, and change nothing."""
    script = ScriptedModel(
        answer(call("task", prompt="x")), answer(call("look", at="a"), call("change", what="b")), "done", "ok"
    )
    agent, _ = agent_of(script, [look, change, task_tool()], approval=Approval("plan"))
    result = await agent.run("go")
    assert told(result.messages) == [("task", "done", False, "completed")]
    looked, changed = [m for m in script.requests[2][0].messages if isinstance(m, ToolResultMessage)]
    assert (looked.text, looked.is_error) == ("a is there", False)
    assert (changed.is_error, changed.details["status"]) == (True, "denied")


async def test_a_question_about_a_task_goes_to_the_approver_of_the_parent_and_comes_once() -> None:
    """failures.md L21"""
    asked: list[str] = []

    async def approve(call: ToolCall) -> bool:
        asked.append(call.name)
        return call.arguments["what"] == "b"

    script = ScriptedModel(
        answer(call("task", prompt="x")), answer(call("change", what="b"), call("change", what="c")), "done", "ok"
    )
    agent, _ = agent_of(script, [change, task_tool()], approval=Approval("ask"), approve=approve)
    await agent.run("go")
    done, refused = [m for m in script.requests[2][0].messages if isinstance(m, ToolResultMessage)]
    assert (asked, done.text, refused.details["status"]) == (["change", "change"], "b is changed", "denied")


@dataclass
class Finding:
    """What was found."""

    name: str


async def test_the_form_of_the_parents_answer_is_not_that_of_its_sub_agents() -> None:
    script = ScriptedModel(answer(call("task", prompt="x")), "in plain words", '{"name": "it"}')
    agent, _ = agent_of(script, [task_tool()], output_type=Finding)
    result = await agent.run("go")
    assert (result.output, told(result.messages)[0][1]) == (Finding("it"), "in plain words")
    request, options = script.requests[1]
    assert ("JSON Schema" in request.system_prompt, options.output_schema) == (False, None)


async def test_a_kind_may_have_a_model_a_form_and_limits_of_its_own() -> None:
    other = ScriptedModel(answer(call("look", at="a")), answer(call("look", at="b")), "x", id="other")
    kinds = {
        "finder": TaskKind("Finds.", model=other.model, output_type=Finding, limits=ExecutionLimits(max_turns=2)),
    }
    script = ScriptedModel(answer(call("task", prompt="x")), "ok")
    agent, _ = agent_of(script, [look, task_tool(kinds)])
    result = await agent.run("go")
    assert (other.asked, other.requests[0][1].output_schema is not None) == (2, True)
    assert told(result.messages)[0][1].startswith("Sub-agent 'finder' ended with 'limit': Max turns reached (2/2)")
    assert result.end_reason == "done"


async def test_steering_and_follow_ups_are_heard_by_the_parent_alone() -> None:
    """failures.md G1: a sub-agent does not take away what was said to its parent."""
    script = ScriptedModel(answer(call("task", prompt="x")), answer("child", pace=1), "heard", "and that")
    agent, _ = agent_of(script, [task_tool()], get_follow_up_messages=iter([["later"], []]).__next__)
    agent.subscribe(lambda event: agent.steer("now", key="once") if event.type == "tool_execution_update" else None)
    result = await agent.run("go")
    assert [message.text for message in result.messages if message.role == "user"] == ["go", "now", "later"]
    assert [message.text for message in script.requests[1][0].messages] == ["x"]


async def test_its_events_carry_the_ids_of_its_parent_and_of_the_call() -> None:
    """loop.md R3"""
    script = ScriptedModel(answer(call("task", prompt="x")), "child", "ok")
    agent, heard = agent_of(script, [task_tool()])
    await agent.run("go")
    (parent,) = heard.of(AgentStart)
    starts = [event.update["event"] for event in heard.of(ToolExecutionUpdate)]
    (child,) = [event for event in starts if event["type"] == "agent_start"]
    assert (child["parent_loop_id"], child["parent_tool_call_id"]) == (parent.loop_id, "call_1")
    assert child["agent_id"] != parent.agent_id
    assert [event["triggered_by"] for event in starts if event["type"] == "turn_start"] == ["sub_agent"]


async def test_a_failure_keeps_its_kind() -> None:
    """failures.md E11"""
    script = ScriptedModel(answer(call("task", prompt="x")), error("authentication"), "ok")
    agent, _ = agent_of(script, [task_tool()])
    result = await agent.run("go")
    (message,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (message.is_error, message.details["error_kind"]) == (True, "authentication")


async def test_tasks_run_side_by_side_within_one_budget() -> None:
    """failures.md I9: both stop when it is used up."""
    usage = Usage(input=50, output=50)
    child = ScriptedModel(answer(call("nap"), usage=usage, pace=1, deltas=1), repeat_last=True, id="child")
    kinds = {"worker": TaskKind("Works.", model=child.model)}
    parent = ScriptedModel(answer(call("task", prompt="a"), call("task", prompt="b"), usage=usage), "never said")
    agent, _ = agent_of(
        parent,
        [nap, task_tool(kinds)],
        limits=ExecutionLimits(max_total_tokens=700),
        repeated_calls=None,
    )
    result = await agent.run("go")
    assert [text.partition("\n")[0] for _, text, *_ in told(result.messages)] == [
        "Sub-agent 'worker' ended with 'limit': Max tokens reached (700/700)"
    ] * 2
    assert (child.asked, parent.asked, result.usage.total) == (6, 1, 700)


async def test_tasks_inside_tasks_go_only_so_deep() -> None:
    """failures.md L21, I11"""
    script = ScriptedModel(
        lambda request: (
            answer(call("task", prompt="go")) if request.messages[-1].text == "go" else request.messages[-1].text
        ),
        repeat_last=True,
    )
    agent, _ = agent_of(script, [task_tool()])
    result = await agent.run("go")
    assert (script.asked, result.end_reason) == (8, "done")
    assert "Max sub-agent depth reached (3/3)" in result.text


async def test_a_bare_loop_can_have_tasks_too() -> None:
    script = ScriptedModel(answer(call("task", prompt="x")), "child", "ok")
    config = AgentLoopConfig(model=ScriptedModel("the model's own provider is not asked").model)
    context = AgentContext("Be brief.", tools=[look, task_tool()])
    messages = await agent_loop("go", context, config, stream_fn=script).result()
    assert [message.text for message in messages] == ["go", "", "child", "ok"]
    assert names(script, 1) == ["look", "task"]


def tasks_cut_at(step: int | None) -> int:
    """Two tasks at work, aborted before that step or else after a while; how many steps there were."""
    shop = Workshop()
    script = ScriptedModel(
        answer(call("task", prompt="a"), call("task", prompt="b")),
        answer(call("job", name="a", seconds=100.0)),
        stall("deep", after=1),
    )
    agent = Agent(script.model, tools=[shop.job(), task_tool()])

    def check() -> None:
        assert script.streaming == 0
        assert shop.log in ([], ["+a", "!a"])

    return count_steps(agent, step, check)


def test_a_task_never_outlives_its_parent() -> None:
    """failures.md F13: aborted at every step, also while the sub-agents are just being started."""
    steps = tasks_cut_at(None)
    assert steps > 10
    for step in range(2, steps):
        tasks_cut_at(step)


@each_row(
    ("make", "error", "words"),
    [
        (lambda: TaskKind(" "), ValueError, "needs words"),
        (lambda: TaskKind("x", tools="read"), TypeError, "'read'"),
        (lambda: TaskKind("x", tools=[look]), TypeError, "names of the parent's"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: TaskKind("x", approve=print), TypeError, "approve"),
        (lambda: TaskKind("x", hooks=[]), TypeError, "hooks"),
        (lambda: task_tool({}), ValueError, "at least one kind"),
        (lambda: task_tool({"a": "words"}), TypeError, "TaskKind"),  # pyright: ignore[reportArgumentType]  # on purpose
        (lambda: task_tool({"": TaskKind("x")}), TypeError, "TaskKind"),
    ],
)
def test_a_wrong_kind_is_refused_where_it_is_made(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


async def test_a_task_is_only_given_inside_a_run() -> None:
    from steersman import CancelToken, ToolContext, ToolError

    with pytest.raises(ToolError, match="inside a run"):
        await task_tool().call({"prompt": "x"}, ToolContext("c", "task", CancelToken()))
