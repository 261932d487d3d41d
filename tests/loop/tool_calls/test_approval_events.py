"""Approval as events: who can answer, by which call, and what every subscriber and reader sees of it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.loop.tool_calls.test_approval import Person, Shop
from tests.loop.toolbox import agent_of, told

from steersman import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    Approval,
    Approved,
    ToolCall,
    ToolContext,
    agent_loop,
    tool,
)
from steersman.events import (
    AgentEvent,
    ApprovalRequested,
    ApprovalResolved,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from steersman.policy.preview import MAX_PREVIEW
from steersman.testing import EventCollector, ScriptedModel, answer, call
from steersman.types import UnknownApproval, decode, encode

WHY = "'deploy' can change things and no rule allows it"


def deploying(*targets: str, **options: Any) -> tuple[Agent, EventCollector, Shop]:
    """An agent that deploys to each target, in one answer."""
    shop = Shop()
    script = ScriptedModel(answer(*[call("deploy", id=name, targets=[name]) for name in targets]), "ok")
    agent, heard = agent_of(script, shop.tools, **{"approval": Approval(), **options})
    return agent, heard, shop


def of_approval(heard: EventCollector) -> list[str]:
    """The events of approval and the starts of calls, in short."""
    found: list[str] = []
    for event in heard:
        match event:
            case ApprovalRequested():
                found.append(f"ask {event.tool_call_id}")
            case ApprovalResolved():
                found.append(f"{event.decision} by {event.by}")
            case ToolExecutionStart():
                found.append(f"start {event.tool_call_id}")
            case _:
                pass
    return found


async def waiting(agent: Agent, count: int = 1) -> list[ApprovalRequested]:
    """The open questions, once there are that many."""
    news = asyncio.Event()
    watching = agent.subscribe(lambda _: news.set())
    while len(agent.open_approvals) < count:
        news.clear()
        await news.wait()
    agent.unsubscribe(watching)
    return list(agent.open_approvals)


# What is told


async def test_a_question_and_its_answer_are_events_before_the_call_starts() -> None:
    """api.md, Rulings: the fields of the two events; with `approve=fn` they are told all the same."""
    agent, heard, shop = deploying("a", approve=Person(True))
    await agent.run("go")
    (asked,), (resolved,) = heard.of(ApprovalRequested), heard.of(ApprovalResolved)
    assert (asked.tool_call_id, asked.tool_name, asked.args) == ("a", "deploy", {"targets": ["a"]})
    assert (asked.preview, asked.reason, asked.deadline) == ('{\n  "targets": [\n    "a"\n  ]\n}', WHY, None)
    assert (resolved.approval_id, resolved.decision, resolved.by) == (asked.approval_id, "approved", "function")
    assert (of_approval(heard), shop.log) == (["ask a", "approved by function", "start a"], ["deploy ['a']"])


async def test_the_fields_are_in_the_json_also_when_they_are_empty() -> None:
    """api.md, Rulings; loop.md 9: fields that api.md names are always present."""
    agent, heard, _ = deploying("a", approve=Person(False))
    await agent.run("go")
    for event in (*heard.of(ApprovalRequested), *heard.of(ApprovalResolved)):
        assert decode(encode(event)) == event
    asked, resolved = encode(heard.of(ApprovalRequested)[0]), encode(heard.of(ApprovalResolved)[0])
    for name in ("approval_id", "tool_call_id", "tool_name", "args", "preview", "reason", "deadline"):
        assert f'"{name}":'.encode() in asked
    for name in ("approval_id", "decision", "by", "reason"):
        assert f'"{name}":'.encode() in resolved


@pytest.mark.parametrize(
    ("used", "preview"),
    [
        (call("bash", command="git push\n--force"), "git push\n--force"),
        (call("bash", command="ls \u202e\x1b[31m", timeout=3), 'ls \\u{202e}␛[31m\n{\n  "timeout": 3\n}'),
        (call("write", path="a.py", content="x = 1\ny = 2\n"), "a.py\n+ x = 1\n+ y = 2"),
        (
            call("edit", path="a.py", edits=[{"old": "x", "new": "y"}, {"old": "z", "new": "", "all": True}]),
            "a.py\n- x\n+ y\n\nall occurrences in the file:\n- z\n+ (nothing)",
        ),
        (call("other", key="value"), '{\n  "key": "value"\n}'),
    ],
    ids=["command", "invisible", "write", "edit", "arguments"],
)
async def test_the_preview_shows_the_effect_as_a_person_reads_it(used: ToolCall, preview: str) -> None:
    """server.md S7: the exact diff or command, and no character in it can hide or draw anything."""
    heard = await preview_of(used)
    assert heard.preview == preview


async def test_a_long_preview_says_that_something_is_left_out() -> None:
    """A preview is bounded; the arguments are whole."""
    asked = await preview_of(call("bash", command="echo " + "a" * 50_000 + "; evil"))
    assert len(asked.preview) < MAX_PREVIEW + 100
    assert "[30,011 characters are left out here; args has all of them]" in asked.preview
    assert asked.preview.endswith("; evil")
    assert len(asked.args["command"]) == 50_011


async def preview_of(used: ToolCall) -> ApprovalRequested:
    """The question about a call of a tool that takes anything."""

    @tool(name=used.name)
    async def anything(**arguments: Any) -> str:
        """Do anything."""
        raise AssertionError

    agent, heard = agent_of(ScriptedModel(answer(used), "ok"), [anything], approval=Approval(ask=["*"]))
    await agent.run("go")
    return heard.of(ApprovalRequested)[0]


# Who can answer


async def test_without_an_answerer_a_call_is_denied_at_once() -> None:
    """server.md S8; api.md, Rulings: a mere reader or watcher does not count."""
    agent, heard, shop = deploying("a")
    events = [event async for event in agent.prompt("go")]
    (resolved,) = heard.of(ApprovalResolved)
    assert (resolved.decision, resolved.by, resolved.reason) == ("denied", "loop", "there is no approver")
    assert [event.type for event in events] == heard.types
    assert shop.log == []
    assert agent.approve(resolved.approval_id) is False


async def test_the_application_answers_by_id() -> None:
    """api.md, Rulings: `approve="wait"`, `agent.approve(id)`, `agent.deny(id, reason)`."""
    agent, heard, shop = deploying("a", "b", approve="wait")
    stream = agent.prompt("go")
    first, second = await waiting(agent, 2)
    assert (first.tool_call_id, second.tool_call_id) == ("a", "b")
    assert [first.args, second.args] == [event.args for event in heard.of(ApprovalRequested)]
    assert agent.deny(second.approval_id, "use staging.") is True
    assert agent.approve(first.approval_id, by="alice") is True
    result = await stream
    assert told(result.messages) == [
        ("deploy", "done", False, "completed"),
        (
            "deploy",
            f"Denied: use staging. It was asked about because {WHY}. "
            "Do not repeat it; do something else, or ask the user what they want.",
            True,
            "denied",
        ),
    ]
    assert [(event.decision, event.by, event.reason) for event in heard.of(ApprovalResolved)] == [
        ("denied", "application", "use staging."),
        ("approved", "alice", ""),
    ]
    assert (shop.log, list(agent.open_approvals)) == (["deploy ['a']"], [])


async def test_a_question_that_is_not_answered_in_time_expires_and_the_call_is_denied() -> None:
    """server.md S8: expiry is a denial; api.md, Rulings: `deadline`, `approve_timeout`."""
    agent, heard, shop = deploying("a", approve="wait", approve_timeout=30)
    before = time.time()
    stream = agent.prompt("go")
    (asked,) = await waiting(agent)
    assert asked.deadline is not None
    assert before + 30 <= asked.deadline <= time.time() + 30
    result = await stream
    (resolved,) = heard.of(ApprovalResolved)
    assert (resolved.decision, resolved.by, resolved.reason) == ("expired", "loop", "no answer within 30s")
    assert told(result.messages)[0][1].startswith("Denied: no answer within 30s. ")
    assert (agent.approve(asked.approval_id), shop.log) == (False, [])


async def test_an_approve_function_that_takes_too_long_expires_as_well() -> None:
    """api.md, Rulings"""

    async def think(_: ToolCall) -> bool:
        await asyncio.sleep(100)
        return True

    agent, heard, shop = deploying("a", approve=think, approve_timeout=5)
    await agent.run("go")
    assert (of_approval(heard)[:2], shop.log) == (["ask a", "expired by loop"], [])
    assert heard.of(ApprovalRequested)[0].deadline is not None


async def test_a_subscriber_that_said_so_can_answer_also_inside_its_callback() -> None:
    """api.md, Rulings: `agent.subscribe(callback, answers=True)`."""
    agent, _, shop = deploying("a", "b")

    def decide(event: AgentEvent) -> None:
        if event.type == "approval_requested":
            assert isinstance(event, ApprovalRequested)
            agent.approve(event.approval_id) if event.tool_call_id == "a" else agent.deny(event.approval_id)

    agent.subscribe(decide, answers=True)
    result = await agent.run("go")
    assert ([status for *_, status in told(result.messages)], shop.log) == (["completed", "denied"], ["deploy ['a']"])


async def test_a_question_is_denied_when_the_last_subscriber_that_could_answer_leaves() -> None:
    """server.md S8: never a silent wait."""
    agent, heard, shop = deploying("a", "b")
    first, second = agent.subscribe(print_nothing, answers=True), agent.subscribe(print_nothing, answers=True)
    stream = agent.prompt("go")
    await waiting(agent, 2)
    agent.unsubscribe(first)
    await asyncio.sleep(1)
    assert len(agent.open_approvals) == 2
    agent.unsubscribe(second)
    await stream
    assert [(event.decision, event.by) for event in heard.of(ApprovalResolved)] == [("denied", "loop")] * 2
    assert (heard.of(ApprovalResolved)[0].reason, shop.log) == ("the last subscriber that could answer has gone", [])


def print_nothing(_: AgentEvent) -> None:
    """Watch, and say nothing."""


async def test_a_subscriber_that_breaks_can_answer_no_more() -> None:
    """server.md S8"""
    agent, _, shop = deploying("a")

    def break_down(event: AgentEvent) -> None:
        if event.type == "approval_requested":
            raise RuntimeError("broken")

    agent.subscribe(break_down, answers=True)
    result = await agent.run("go")
    assert ([status for *_, status in told(result.messages)], shop.log) == (["denied"], [])


async def test_the_application_can_answer_while_a_function_is_asked_and_the_first_answer_counts() -> None:
    """api.md, Rulings"""
    asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def think(_: ToolCall) -> Any:
        return await asked

    agent, heard, shop = deploying("a", approve=think)
    stream = agent.prompt("go")
    (question,) = await waiting(agent)
    assert agent.approve(question.approval_id)
    await stream
    assert (of_approval(heard), asked.cancelled()) == (["ask a", "approved by application", "start a"], True)
    assert shop.log == ["deploy ['a']"]


def test_the_loop_without_an_agent_has_no_one_to_wait_for() -> None:
    """api.md, Rulings: `agent.approve` needs an agent."""
    config = AgentLoopConfig(model=ScriptedModel("x").model, approve="wait")
    with pytest.raises(ValueError, match="needs an Agent"):
        agent_loop("go", AgentContext(), config)


@pytest.mark.parametrize("value", ["ask", 3, True])
def test_approve_is_a_function_or_wait(value: Any) -> None:
    with pytest.raises(TypeError, match="approve takes a function, 'wait' or None, got"):
        Agent(ScriptedModel("x").model, approve=value)


# Answers


async def test_a_second_answer_changes_nothing_and_is_no_error() -> None:
    """server.md 5: a question that is already answered ignores a second answer, such as a double click."""
    agent, heard, _ = deploying("a", approve="wait")
    stream = agent.prompt("go")
    (asked,) = await waiting(agent)
    assert [agent.approve(asked.approval_id), agent.deny(asked.approval_id)] == [True, False]
    await stream
    assert agent.approve(asked.approval_id) is False
    assert of_approval(heard) == ["ask a", "approved by application", "start a"]


@pytest.mark.parametrize("method", ["approve", "deny"])
def test_an_answer_to_a_question_that_was_never_asked_says_so(method: str) -> None:
    agent, _, _ = deploying("a")
    with pytest.raises(UnknownApproval, match="no question with the id 'nope'"):
        getattr(agent, method)("nope")
    with pytest.raises(TypeError, match="approval_id is a string, got 3"):
        getattr(agent, method)(3)


@pytest.mark.real_time
async def test_answers_from_other_threads_count_once() -> None:
    """api.md: safe from other threads, however many answer at once."""
    agent, heard, shop = deploying("a", approve="wait")
    stream = agent.prompt("go")
    (asked,) = await waiting(agent)
    barrier, counted = threading.Barrier(8), list[bool]()

    def press() -> None:
        barrier.wait()
        counted.append(agent.approve(asked.approval_id))

    threads = [threading.Thread(target=press) for _ in range(8)]
    for thread in threads:
        thread.start()
    result = await stream
    for thread in threads:
        thread.join()
    assert (sorted(counted), result.end_reason) == ([False] * 7 + [True], "done")
    assert (len(heard.of(ApprovalResolved)), shop.log) == (1, ["deploy ['a']"])


async def test_an_answer_for_good_answers_the_same_question_as_well() -> None:
    """failures.md L17: for the exact call; the other open question stays open."""
    policy = Approval()
    agent, heard, shop = deploying("a", "a2", "b", approval=policy, approve="wait")
    agent = Agent(
        ScriptedModel(answer(*[call("deploy", id=name, targets=[name[0]]) for name in ("a", "a2", "b")]), "ok").model,
        tools=shop.tools,
        approval=policy,
        approve="wait",
    )
    agent.subscribe(heard)
    stream = agent.prompt("go")
    first, _, last = await waiting(agent, 3)
    agent.approve(first.approval_id, remember=True)
    await asyncio.sleep(1)
    assert (shop.log, len(agent.open_approvals)) == (["deploy ['a']"] * 2, 1)
    agent.deny(last.approval_id)
    await stream
    assert [event.reason for event in heard.of(ApprovalResolved)] == ["", "the same call was approved for good", ""]
    assert len(policy.remembered) == 1


def paying(*amounts: int, **options: Any) -> tuple[Agent, EventCollector, list[int]]:
    """An agent without a policy, whose tool itself needs approval; it pays each amount in a turn of its own."""
    paid: list[int] = []

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    script = ScriptedModel(*[answer(call("pay", amount=amount)) for amount in amounts], "ok", "ok")
    agent, heard = agent_of(script, [pay], **options)
    return agent, heard, paid


async def test_an_answer_for_good_counts_without_a_policy() -> None:
    """api.md: `agent.approve(approval_id)`; nothing a caller gave is dropped silently."""
    agent, heard, paid = paying(5, 5, 6, approve="wait")
    stream = agent.prompt("go")
    (first,) = await waiting(agent)
    agent.approve(first.approval_id, remember=True)
    await asyncio.sleep(1)
    (other,) = agent.open_approvals
    assert (other.args, paid) == ({"amount": 6}, [5, 5])
    agent.deny(other.approval_id)
    await stream
    assert len(heard.of(ApprovalRequested)) == 2


async def test_an_answer_for_good_of_the_function_counts_without_a_policy_and_in_the_next_run() -> None:
    """As above; the agent remembers it, and another agent does not."""
    person = Person(Approved(remember=True))
    agent, _, paid = paying(5, approve=person)
    await agent.run("go")
    agent.model = ScriptedModel(answer(call("pay", amount=5)), "ok").model
    await agent.run("go")
    assert (paid, len(person.asked)) == ([5, 5], 1)
    other, heard, unpaid = paying(5)
    await other.run("go")
    assert (unpaid, len(heard.of(ApprovalRequested))) == ([], 1)


async def test_an_answer_for_good_counts_for_a_bare_context() -> None:
    """As above: the context is what one run of the bare loop and the next have in common."""
    person, paid = Person(Approved(remember=True)), list[int]()

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    context = AgentContext(tools=[pay])
    for _ in range(2):
        model = ScriptedModel(answer(call("pay", amount=5)), "ok").model
        await agent_loop("go", context, AgentLoopConfig(model=model, approve=person))
    assert (paid, len(person.asked)) == ([5, 5], 1)


@pytest.mark.parametrize("who", ["sub-agent", "parent"])
async def test_an_answer_for_good_counts_for_every_conversation_of_a_sub_agent(who: str) -> None:
    """As above: each call of a sub-agent is a fresh conversation, and the agent is the same."""
    person = Person(Approved(remember=True))
    inner, _, paid = paying(5, **({"approve": person} if who == "sub-agent" else {}))
    inner.model = ScriptedModel(*[answer(call("pay", amount=5)), "ok"] * 2).model
    script = ScriptedModel(answer(call("sub", prompt="x")), answer(call("sub", prompt="x")), "ok")
    agent = Agent(script.model, tools=[inner.as_tool("sub", "Pays.")], approve=person if who == "parent" else None)
    await agent.run("go")
    assert (paid, len(person.asked)) == ([5, 5], 1)


@pytest.mark.parametrize("remember", [None, 1, "yes"])
async def test_remember_is_true_or_false(remember: Any) -> None:
    """As `Approved(remember)`."""
    agent, _, _ = paying(5, approve="wait")
    stream = agent.prompt("go")
    (asked,) = await waiting(agent)
    with pytest.raises(TypeError, match="remember is True or False"):
        agent.approve(asked.approval_id, remember=remember)
    agent.deny(asked.approval_id)
    await stream


async def test_an_answer_for_good_from_the_function_ends_the_questions() -> None:
    """failures.md L17"""
    policy = Approval()
    agent, heard, shop = deploying("a", approval=policy, approve=Person(Approved(remember=True)))
    await agent.run("go")
    again, heard_again, _ = deploying("a", approval=policy)
    await again.run("go")
    assert (of_approval(heard), of_approval(heard_again)) == (["ask a", "approved by function", "start a"], ["start a"])
    assert shop.log == ["deploy ['a']"]


# In parallel, and when a run is stopped


async def test_questions_are_open_at_once_and_each_call_starts_with_its_answer() -> None:
    """server.md S7: an editor shows all open questions; loop.md D1: siblings do not wait for each other."""
    agent, heard, shop = deploying("a", "b", "c", approve="wait")
    stream = agent.prompt("go")
    first, second, third = await waiting(agent, 3)
    agent.approve(third.approval_id)
    await asyncio.sleep(1)
    assert shop.log == ["deploy ['c']"]
    agent.approve(first.approval_id)
    agent.approve(second.approval_id)
    await stream
    assert of_approval(heard)[:5] == ["ask a", "ask b", "ask c", "approved by application", "start c"]
    assert sorted(shop.log) == ["deploy ['a']", "deploy ['b']", "deploy ['c']"]


async def test_calls_that_run_one_after_another_are_asked_about_one_after_another() -> None:
    """loop.md D1: a call that cannot start yet is not asked about yet."""
    agent, heard, _ = deploying("a", "b", approve="wait", tool_execution="sequential")
    stream = agent.prompt("go")
    for _ in range(2):
        await asyncio.sleep(1)
        (asked,) = agent.open_approvals
        agent.approve(asked.approval_id)
    await stream
    assert of_approval(heard) == [
        *("ask a", "approved by application", "start a"),
        *("ask b", "approved by application", "start b"),
    ]


async def test_an_abort_resolves_every_open_question() -> None:
    """loop.md T12: never a hang, never a question without its end."""
    agent, heard, shop = deploying("a", "b", approve="wait")
    stream = agent.prompt("go")
    await waiting(agent, 2)
    agent.abort()
    result = await stream
    assert [(event.decision, event.by, event.reason) for event in heard.of(ApprovalResolved)] == [
        ("denied", "loop", "operation aborted")
    ] * 2
    assert (result.end_reason, shop.log, list(agent.open_approvals)) == ("aborted", [], [])


async def test_steering_takes_a_question_back() -> None:
    """loop.md D6: the call has not started, so it is skipped."""
    agent, heard, shop = deploying("a", approve="wait")
    stream = agent.prompt("go")
    (asked,) = await waiting(agent)
    agent.steer("never mind")
    result = await stream
    (resolved,) = heard.of(ApprovalResolved)
    assert (resolved.decision, resolved.by, resolved.reason) == ("denied", "loop", "the call was cancelled")
    assert told(result.messages)[0][1] == "Skipped due to queued user message."
    assert (agent.approve(asked.approval_id), shop.log) == (False, [])


# Sub-agents


def nested(shop: Shop, *levels: dict[str, Any], **of_tool: Any) -> Agent:
    """An agent whose sub-agent has a sub-agent, and so on; the innermost deploys."""
    *above, innermost = levels
    agent = Agent(ScriptedModel(answer(call("deploy", targets=["a"])), "inner").model, tools=shop.tools, **innermost)
    for number, level in enumerate(reversed(above)):
        script = ScriptedModel(answer(call("child", id=f"call_{number}", prompt="do it")), "done")
        agent = Agent(script.model, tools=[agent.as_tool("child", "Does it.", **of_tool)], **level)
    return agent


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_the_outermost_agent_is_told_and_answers_for_its_sub_agents(levels: int) -> None:
    """server.md 5: a sub-agent's permission must not hang; ids are unique, so any agent above can answer."""
    shop, heard = Shop(), EventCollector()
    agent = nested(shop, {"approval": Approval(), "approve": "wait"}, *[dict[str, Any]()] * levels)
    agent.subscribe(heard)
    stream = agent.prompt("go")
    (asked,) = await waiting(agent)
    assert (asked.tool_name, asked.parent_tool_call_id) == ("deploy", f"call_{levels - 1}")
    agent.approve(asked.approval_id)
    result = await stream
    assert (result.end_reason, shop.log) == ("done", ["deploy ['a']"])
    top = [event.type for event in heard if event.type != "tool_execution_update"]
    assert top.index("approval_requested") > top.index("tool_execution_start")
    assert top.index("approval_resolved") < top.index("tool_execution_end")
    assert [heard.of(ApprovalRequested)[0].approval_id, len(heard.of(ApprovalResolved))] == [asked.approval_id, 1]
    inner = [find_inner(event.update) for event in heard.of(ToolExecutionUpdate)]
    assert {event["approval_id"] for event in inner if event.get("type") == "approval_requested"} == {asked.approval_id}


def find_inner(update: Any) -> dict[str, Any]:
    """The event of the innermost agent in an update."""
    while "event" in (update.get("update") or update):
        update = (update.get("update") or update)["event"]
    return update


async def test_a_sub_agent_that_waits_for_the_application_is_answered_at_the_outermost_agent() -> None:
    shop = Shop()
    agent = nested(shop, {}, {"approval": Approval(), "approve": "wait"})
    stream = agent.prompt("go")
    (asked,) = await waiting(agent)
    agent.approve(asked.approval_id)
    await stream
    assert shop.log == ["deploy ['a']"]


async def test_questions_of_parallel_sub_agents_are_open_at_once() -> None:
    shop = Shop()

    def deployer(name: str) -> Any:
        script = ScriptedModel(answer(call("deploy", targets=[name])), "done")
        return Agent(script.model, tools=shop.tools).as_tool(name, "Deploys.")

    script = ScriptedModel(answer(call("one", prompt="x"), call("two", prompt="x")), "ok")
    agent = Agent(script.model, tools=[deployer("one"), deployer("two")], approval=Approval(), approve="wait")
    stream = agent.prompt("go")
    for asked in await waiting(agent, 2):
        agent.approve(asked.approval_id)
    await stream
    assert sorted(shop.log) == ["deploy ['one']", "deploy ['two']"]


@pytest.mark.parametrize("stop", ["abort", "timeout"])
async def test_a_sub_agent_that_is_stopped_takes_its_question_back(stop: str) -> None:
    """loop.md T12, D5: also at the agents above it, before their own call ends."""
    shop, heard = Shop(), EventCollector()
    agent = nested(shop, {"approval": Approval(), "approve": "wait"}, {}, timeout=5 if stop == "timeout" else None)
    agent.subscribe(heard)
    stream = agent.prompt("go")
    await waiting(agent)
    if stop == "abort":
        agent.abort()
    await stream
    types = [event.type for event in heard if isinstance(event, ApprovalResolved | ToolExecutionEnd)]
    assert (types, shop.log) == (["approval_resolved", "tool_execution_end"], [])


async def test_a_sub_agent_left_running_by_a_call_that_ended_has_no_one_to_ask() -> None:
    """server.md S8: its call has its result, so no event of its questions could stand anywhere."""
    shop, left = Shop(), list[asyncio.Task[Any]]()
    child = Agent(ScriptedModel(answer(call("deploy", targets=["a"])), "inner").model, tools=shop.tools)

    @tool(access="read")
    async def spawn(ctx: ToolContext) -> str:
        """Start a sub-agent and do not wait for it."""

        async def later() -> Any:
            await asyncio.sleep(1)
            return await child.run_for(ctx, "do it")

        left.append(asyncio.get_running_loop().create_task(later()))
        return "started"

    @tool(access="read")
    async def rest() -> str:
        """Wait."""
        await asyncio.sleep(5)
        return "rested"

    script = ScriptedModel(answer(call("spawn")), answer(call("rest")), "ok")
    agent, heard = agent_of(script, [spawn, rest], approval=Approval(), approve="wait")
    await agent.run("go")
    await left[0]
    assert (shop.log, heard.of(ApprovalRequested)) == ([], [])


async def test_an_approver_that_ignores_its_cancel_cannot_tell_its_answer_after_the_call() -> None:
    """loop.md D2: nothing of a call comes after its end."""
    released = asyncio.Event()

    async def stubborn(_: ToolCall) -> bool:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return True

    agent, heard, shop = deploying("a", approve=stubborn)
    stream = agent.prompt("go")
    await waiting(agent)
    agent.abort()
    result = await stream
    released.set()
    await asyncio.sleep(1)
    assert (result.end_reason, shop.log) == ("aborted", [])
    assert of_approval(heard) == ["ask a", "denied by loop", "start a"]


async def test_a_hook_before_another_call_is_asked_while_a_question_is_open() -> None:
    """loop.md D3: gates are asked one call at a time, and an open question holds up no other call."""
    seen: list[str] = []

    def look(asked: ToolCall) -> None:
        seen.append(asked.id)

    agent, _, _ = deploying("a", "b", approve="wait", before_tool_execution=look)
    stream = agent.prompt("go")
    questions = await waiting(agent, 2)
    assert seen == ["a", "b"]
    for asked in questions:
        agent.deny(asked.approval_id)
    await stream


async def test_a_call_that_ends_takes_the_questions_of_its_sub_agents_with_it() -> None:
    """loop.md D2: nothing of a call comes after its end; and no question stays open that no event could close."""
    shop, left = Shop(), list[asyncio.Task[Any]]()
    child = Agent(ScriptedModel(answer(call("deploy", targets=["a"])), "inner").model, tools=shop.tools)

    @tool(access="read")
    async def spawn(ctx: ToolContext) -> str:
        """Start a sub-agent and leave it alone once it has asked."""
        left.append(asyncio.get_running_loop().create_task(child.run_for(ctx, "do it")))
        await asyncio.sleep(1)
        return "started"

    agent, heard = agent_of(ScriptedModel(answer(call("spawn")), "ok"), [spawn], approval=Approval(), approve="wait")
    await agent.run("go")
    result = await left[0]
    types = [event.type for event in heard if isinstance(event, ApprovalResolved | ToolExecutionEnd)]
    assert (types, told(result.messages)[0][3]) == (["approval_resolved", "tool_execution_end"], "denied")
    assert (shop.log, list(agent.open_approvals)) == ([], [])
