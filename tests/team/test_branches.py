"""Several ways on from one conversation: taken side by side, within one budget, and one of them kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, echo, nap, texts, told
from tests.rows import each_row

from steersman import (
    Agent,
    AgentBusy,
    Branch,
    Branching,
    ExecutionLimits,
    ToolContext,
    Usage,
    run_branches,
    tool,
)
from steersman.team.branches import BranchesResult
from steersman.testing import EventCollector, ScriptedModel, answer, call, check_transcript, error, run_virtual, stall
from steersman.types.events import AgentEnd, AgentStart, ApprovalResolved, ToolExecutionUpdate, TurnStart


def now() -> float:
    return asyncio.get_running_loop().time()


def others() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def talked(*turns: Any, **options: Any) -> tuple[Agent, ScriptedModel, EventCollector]:
    """An agent that has answered once already."""
    script = ScriptedModel("Hello.", *turns)
    agent, heard = agent_of(script, **options)
    await agent.run("Hi.")
    return agent, script, heard


def seen(script: ScriptedModel) -> list[list[str]]:
    """What the model was shown in each request, as texts."""
    return [[message.text for message in request.messages] for request, _ in script.requests]


async def test_each_branch_goes_on_from_the_conversation_with_its_own_prompt() -> None:
    agent, script, _ = await talked("A", "B")
    result = await run_branches(agent, ["one", "two"])
    assert seen(script)[1:] == [["Hi.", "Hello.", "one"], ["Hi.", "Hello.", "two"]]
    assert [(branch.index, branch.tag, branch.text) for branch in result.branches] == [(0, "0", "A"), (1, "1", "B")]


async def test_the_chosen_one_becomes_the_conversation_and_the_others_stay_reachable() -> None:
    agent, script, _ = await talked("A", "B", "and on", "the other way")
    before = agent.context.log
    result = await run_branches(agent, ["one", "two"], choose=lambda branches: 1)
    assert texts(agent.messages) == [("user", "Hi."), ("assistant", "Hello."), ("user", "two"), ("assistant", "B")]
    assert (result.text, agent.context.continuation_kind, agent.is_running) == ("B", Branch("1"), False)
    assert len(before.messages) == 2
    assert agent.context.log.parent == (before, before.entries[-1].id)
    await agent.run("go on")
    assert seen(script)[-1] == ["Hi.", "Hello.", "two", "B", "go on"]
    # Nothing is lost: the other way can be taken as well.
    agent.context.log = result.branches[0].log
    await agent.run("go on")
    assert seen(script)[-1] == ["Hi.", "Hello.", "one", "A", "go on"]
    check_transcript(agent.messages)


async def test_its_runs_are_branches_of_the_run_before_and_their_events_tell_them_apart() -> None:
    """loop.md R6, T1: kind, parent, ids and trigger; the agent's subscribers hear all of them."""
    agent, _, heard = await talked("A", "B", "C")
    first = heard.of(AgentStart)[0]
    await run_branches(agent, ["one", Branching("two", tag="bold")], choose=lambda branches: 1)
    starts = heard.of(AgentStart)[1:]
    assert [start.continuation_kind for start in starts] == [Branch("0"), Branch("bold")]
    assert {(start.parent_loop_id, start.agent_id, start.session_id) for start in starts} == {
        (first.loop_id, first.agent_id, first.session_id)
    }
    assert len({start.loop_id for start in starts}) == 2
    assert [turn.triggered_by for turn in heard.of(TurnStart)] == ["user", "branch", "branch"]
    await agent.run("go on")
    assert heard.of(AgentStart)[-1].parent_loop_id is None
    await agent.rerun()
    assert heard.of(AgentStart)[-1].parent_loop_id == heard.of(AgentStart)[-2].loop_id


async def test_a_branch_may_be_configured_otherwise_and_the_agent_stays_as_it_is() -> None:
    @dataclass
    class Word:
        """A word."""

        word: str

    other = ScriptedModel('{"word": "B"}', id="other")
    agent, script, _ = await talked("A", tools=[echo], system_prompt="Be brief.", temperature=0.1)
    ways = [
        Branching("one", temperature=0.9, system_prompt="Be bold.", tools=[]),
        Branching("two", model=other.model, output_type=Word),
    ]
    result = await run_branches(agent, ways, choose=lambda branches: 1)
    (request, options), (asked, how) = script.requests[1], other.requests[0]
    assert (request.system_prompt, list(request.tools), options.temperature) == ("Be bold.", [], 0.9)
    assert ([tool.name for tool in asked.tools], how.temperature) == (["echo"], 0.1)
    assert asked.system_prompt.startswith("Be brief.\n\nAnswer with one JSON value")
    assert (result.output, result.branches[0].output) == (Word("B"), None)
    assert (
        agent.config.model,
        agent.config.temperature,
        agent.context.system_prompt,
        [*agent.tool_table.read(agent.tools)],
    ) == (
        script.model,
        0.1,
        "Be brief.",
        ["echo"],
    )


async def test_branches_can_begin_earlier_and_answer_what_is_there() -> None:
    agent, script, _ = await talked("A", "B")
    result = await run_branches(agent, [Branching(temperature=0.0), Branching(temperature=1.0)], at=0)
    assert seen(script)[1:] == [["Hi."], ["Hi."]]
    assert [options.temperature for _, options in script.requests[1:]] == [0.0, 1.0]
    assert texts(agent.messages) == [("user", "Hi."), ("assistant", "A")]
    assert [branch.prompts for branch in result.branches] == [[], []]


async def test_a_conversation_that_has_not_begun_can_branch() -> None:
    script = ScriptedModel("A", "B")
    agent = Agent(script.model)
    result = await run_branches(agent, ["one", ["two", "three"]])
    assert seen(script) == [["one"], ["two", "three"]]
    assert (texts(agent.messages), agent.context.log.parent) == ([("user", "one"), ("assistant", "A")], None)
    assert agent.context.agent_id
    assert result.branches[1].log.messages[0].text == "two"


async def test_compaction_and_prun_of_the_conversation_hold_in_its_branches() -> None:
    agent, script, _ = await talked("A", "B")
    agent.context.log.compact([agent.messages[0]])
    await run_branches(agent, ["one", "two"])
    assert seen(script)[1:] == [["Hi.", "one"], ["Hi.", "two"]]


async def test_only_so_many_run_at_once() -> None:
    peak = 0
    script = ScriptedModel(*[answer("x", pace=10, deltas=1)] * 5)
    agent = Agent(script.model)

    def watch(event: Any) -> None:
        nonlocal peak
        peak = max(peak, script.streaming)

    agent.subscribe(watch)
    await run_branches(agent, ["a", "b", "c", "d", "e"], max_at_once=2)
    assert (peak, now()) == (2, 30.0)


async def test_a_branch_that_fails_is_a_result_among_the_others() -> None:
    broken = ScriptedModel(error("authentication"), id="broken")
    agent, _, _ = await talked("B")
    result = await run_branches(agent, [Branching("one", model=broken.model), "two"])
    first, second = result.branches
    assert (first.ok, first.result.end_reason, first.result.error_kind) == (False, "error", "authentication")
    assert (second.ok, result.chosen, result.text) == (True, second, "B")


async def test_when_all_fail_nothing_is_chosen_and_the_agent_stays_where_it_was() -> None:
    agent, _, _ = await talked(error("authentication"), error("quota"), "fine")
    before = agent.context.log
    asked: list[Any] = []
    result = await run_branches(agent, ["one", "two"], choose=asked.append)
    assert (result.chosen, result.text, result.output, asked) == (None, "", None, [])
    assert result.detail == (
        "No branch came to a good end: 0: error (scripted error: authentication); 1: error (scripted error: quota)"
    )
    assert agent.context.log is before
    assert (await agent.run("go on")).text == "fine"


async def test_all_branches_share_the_limits_of_the_agent() -> None:
    """loop.md T3, failures.md I9"""
    usage = Usage(input=50, output=50, cost=1.0)
    script = ScriptedModel(answer(call("nap"), usage=usage, pace=1, deltas=1), repeat_last=True)
    limits = ExecutionLimits(max_total_tokens=600)
    agent = Agent(script.model, tools=[nap], limits=limits, repeated_calls=None)
    result = await run_branches(agent, ["one", "two", "three"])
    assert [(branch.result.end_reason, branch.result.detail) for branch in result.branches] == [
        ("limit", "Max tokens reached (600/600)")
    ] * 3
    assert (result.usage, result.cost, script.asked) == (Usage(input=300, output=300, cost=6.0), 6.0, 6)
    assert result.chosen is None


async def test_the_deadline_is_one_for_all() -> None:
    """loop.md T3: also for the branch that could only begin when another had ended."""
    script = ScriptedModel(stall(), stall(), "never said")
    agent = Agent(script.model, limits=ExecutionLimits(max_duration=20))
    result = await run_branches(agent, ["one", "two", "three"], max_at_once=2)
    assert (now(), script.streaming, script.asked) == (20.0, 0, 2)
    assert {branch.result.detail for branch in result.branches} == {"Max duration reached (20s/20s)"}


async def test_a_limit_of_its_own_ends_only_one_branch() -> None:
    script = ScriptedModel(answer(call("echo", text="x")), "B")
    agent = Agent(script.model, tools=[echo])
    result = await run_branches(agent, [Branching("one", limits=ExecutionLimits(max_turns=1)), "two"], max_at_once=1)
    assert [branch.result.end_reason for branch in result.branches] == ["limit", "done"]
    assert result.text == "B"


async def test_the_agent_is_busy_meanwhile_and_idle_afterwards() -> None:
    script = ScriptedModel(answer("A", pace=5, deltas=1), "B")
    agent = Agent(script.model)
    running = asyncio.create_task(run_branches(agent, ["one"]))
    await asyncio.sleep(1)
    assert agent.is_running
    with pytest.raises(AgentBusy):
        agent.prompt("no")
    with pytest.raises(AgentBusy):
        await run_branches(agent, ["no"])
    receipt = agent.steer("later")
    await agent.wait_for_idle()
    assert (agent.is_running, now(), receipt.status) == (False, 5.0, "next_run")
    await running
    result = await agent.run("go on")
    assert [message.text for message in result.messages if message.role == "user"] == ["go on", "later"]


async def test_messages_for_the_agent_are_not_taken_by_a_branch() -> None:
    """failures.md G1"""
    waiting = ["for you"]

    def sources() -> list[str]:
        return [waiting.pop()] if waiting else []

    agent, _, _ = await talked("A", "B", "heard")
    listening = agent.variant(get_steering_messages=sources)
    await run_branches(listening, ["one", "two"])
    assert waiting == ["for you"]
    result = await listening.run("go on")
    assert "for you" in [message.text for message in result.messages]


def branches_cut_at(step: int | None, *, cancel: bool) -> int:
    """Three branches at work, stopped before that step or else after a while; how many steps there were."""
    script = ScriptedModel(
        answer(call("echo", text="x")), stall("half", after=1), stall("half", after=1), stall("half", after=1)
    )
    agent = Agent(script.model, tools=[echo])
    steps = 0
    work: asyncio.Task[BranchesResult] | None = None

    def stop() -> None:
        if cancel and work is not None:
            work.cancel()
        else:
            agent.abort()

    def on_step(number: int) -> None:
        nonlocal steps
        steps = number
        if number == step:
            stop()

    async def main() -> None:
        nonlocal work
        work = asyncio.create_task(run_branches(agent, ["one", "two", "three"], max_at_once=2))
        asyncio.get_running_loop().call_later(60, stop)
        (done, _) = await asyncio.wait([work])
        assert (done, script.streaming, others(), agent.is_running) == ({work}, 0, [], False)
        assert list(agent.messages) == []
        if not work.cancelled():
            result = work.result()
            assert (result.chosen, {branch.result.end_reason for branch in result.branches}) == (None, {"aborted"})
            assert result.detail == "operation aborted"

    run_virtual(main(), on_step=on_step)
    return steps


@pytest.mark.parametrize("cancel", [False, True], ids=["abort", "cancel"])
def test_stopping_stops_all_and_leaves_nothing_running(cancel: bool) -> None:
    """failures.md F13, loop.md T12: stopped at every step, also while branches are just being started."""
    steps = branches_cut_at(None, cancel=cancel)
    assert steps > 10
    # Before the first step of its task nothing has begun that could be aborted.
    for step in range(3, steps):
        branches_cut_at(step, cancel=cancel)


@pytest.mark.real_time
async def test_an_abort_from_another_thread_stops_all() -> None:
    script = ScriptedModel(stall("half", after=1), stall("half", after=1))
    agent = Agent(script.model)
    started: set[str] = set()
    both = asyncio.Event()

    def watch(event: Any) -> None:
        if event.type == "message_update":
            started.add(event.loop_id)
            if len(started) == 2:
                both.set()

    agent.subscribe(watch)
    running = asyncio.create_task(run_branches(agent, ["one", "two"]))
    await both.wait()
    await asyncio.to_thread(agent.abort)
    result = await running
    assert ([branch.result.end_reason for branch in result.branches], script.streaming) == (["aborted"] * 2, 0)


@each_row(
    ("branches", "options", "error", "words"),
    [
        ([], {}, ValueError, "at least one branch"),
        ("one", {}, TypeError, "as a list"),
        ({"role": "user"}, {}, TypeError, "as a list"),
        (["one", ""], {}, ValueError, "needs some text"),
        (["one", 5], {}, TypeError, "5"),
        ([Branching()], {}, ValueError, "nothing to answer"),
        ([Branching("one", nonsense=1)], {}, TypeError, "nonsense"),
        ([Branching("one", model="nowhere:model")], {}, NotImplementedError, "nowhere"),
        ([Branching("one", temperature="hot")], {}, TypeError, "temperature"),
        (["one"], {"max_at_once": 0}, ValueError, "max_at_once"),
        (["one"], {"choose": 3}, TypeError, "choose"),
        (["one"], {"at": 99}, IndexError, "99"),
        (["one"], {"at": "nowhere"}, ValueError, "nowhere"),
    ],
)
async def test_a_mistake_is_raised_before_any_branch_is_taken(
    branches: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    agent, script, _ = await talked("never said")
    with pytest.raises(error, match=words):
        await run_branches(agent, branches, **options)
    assert (script.asked, agent.is_running, len(agent.messages)) == (1, False, 2)


async def test_branches_taken_for_a_tool_call_are_part_of_its_run() -> None:
    """failures.md I9, I10: they share its limits, count in its usage and are heard as updates of the call."""
    usage = Usage(input=10, output=10)
    thinker = Agent(ScriptedModel("A", "B", "C", usage=usage).model)

    @tool
    async def ponder(question: str, ctx: ToolContext) -> str:
        """Think about it in several ways."""
        result = await run_branches(thinker, [question, question, question], ctx=ctx, choose=lambda branches: 1)
        ends = [branch.result.detail.partition(".")[0] for branch in result.branches]
        return f"{result.text} {ends}"

    parent = ScriptedModel(answer(call("ponder", question="why?"), usage=usage), answer("ok", usage=usage))
    agent, heard = agent_of(parent, [ponder], limits=ExecutionLimits(max_sub_agents=2))
    result = await agent.run("go")
    refused = "The sub-agent was not started: Max sub-agents reached (2/2)"
    assert told(result.messages)[0][1] == f"B {['', '', refused]}"
    assert result.usage == Usage(input=40, output=40)
    starts = [event.update["event"] for event in heard.of(ToolExecutionUpdate)]
    found = [event for event in starts if event["type"] == "agent_start"]
    assert {(event["parent_loop_id"], event["parent_tool_call_id"]) for event in found} == {
        (heard.of(AgentStart)[0].loop_id, "call_1")
    }


async def test_branches_taken_for_a_tool_call_share_the_limits_of_their_agent_too() -> None:
    """failures.md I9"""
    thinker = Agent(ScriptedModel("A", "B", "never said").model, limits=ExecutionLimits(max_turns=2))
    ends: list[str] = []

    @tool
    async def ponder(ctx: ToolContext) -> str:
        """Think about it in several ways."""
        result = await run_branches(thinker, ["one", "two", "three"], ctx=ctx, max_at_once=1)
        ends.extend(branch.result.end_reason for branch in result.branches)
        return result.text

    agent, _ = agent_of(ScriptedModel(answer(call("ponder")), "ok"), [ponder])
    await agent.run("go")
    assert ends == ["done", "done", "limit"]


async def test_an_abort_of_the_run_they_are_taken_for_ends_them() -> None:
    """failures.md F13"""
    inner = ScriptedModel(stall(), stall())
    thinker = Agent(inner.model)

    @tool
    async def ponder(ctx: ToolContext) -> str:
        """Think about it in two ways."""
        return (await run_branches(thinker, ["one", "two"], ctx=ctx)).detail

    agent, heard = agent_of(ScriptedModel(answer(call("ponder"))), [ponder])
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(1)
    agent.abort()
    result = await running
    assert (result.end_reason, inner.streaming, others(), thinker.is_running) == ("aborted", 0, [], False)
    ends = [event.update["event"] for event in heard.of(ToolExecutionUpdate)]
    assert [event["end_reason"] for event in ends if event["type"] == "agent_end"] == ["aborted"] * 2
    assert len(heard.of(AgentEnd)) == 1


async def test_the_agent_answers_when_calls_of_its_branches_need_approval() -> None:
    """server.md S8: a branch is no place where a question waits that no agent can answer."""

    @tool(needs_approval=True)
    async def act(where: str) -> str:
        """Act."""
        return f"acted {where}"

    script = ScriptedModel(answer(call("act", where="left")), answer(call("act", where="right")), "A", "B")
    agent, heard = agent_of(script, [act], approve="wait")

    def decide(event: Any) -> None:
        if event.type == "approval_requested":
            asyncio.get_running_loop().call_soon(agent.approve, event.approval_id)

    agent.subscribe(decide)
    result = await asyncio.wait_for(run_branches(agent, ["one", "two"]), 60)
    statuses = [told(branch.result.messages)[0][3] for branch in result.branches]
    assert (statuses, len(heard.of(ApprovalResolved))) == (["completed", "completed"], 2)
