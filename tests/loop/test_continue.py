from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.loop.play import asked, listened, outline, said
from tests.rows import each_row

from steersman import (
    Agent,
    AgentBusy,
    AgentContext,
    AgentLoopConfig,
    AgentMessage,
    AssistantMessage,
    Branch,
    Compaction,
    ContextConfig,
    Default,
    EventStream,
    ExecutionLimits,
    ExtensionMessage,
    Initial,
    Model,
    Rerun,
    TextContent,
    ToolCall,
    agent_loop,
    agent_loop_continue,
    default_convert_to_llm,
    tool,
)
from steersman.testing import ScriptedModel, answer, call, error, stall
from steersman.types.continuation import ContinuationKind
from steersman.types.events import AgentStart, CompactionEnded
from steersman.types.messages import user_message


@tool
def look() -> str:
    """Look."""
    return "seen"


def config_of(script: ScriptedModel, **more: Any) -> AgentLoopConfig:
    return AgentLoopConfig(model=script.model, **more)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (AgentContext(agent_id="a", session_id="s"), "no messages"),
        (AgentContext(messages=["hi"], session_id="s"), "agent_id and session_id"),
        (AgentContext(messages=["hi"], agent_id="a"), "agent_id and session_id"),
        (
            AgentContext(messages=["hi", AssistantMessage([TextContent("done")])], agent_id="a", session_id="s"),
            "the last message is the assistant's",
        ),
        (
            AgentContext(messages=[{"role": "extension", "content": "x", "kind": "n"}], agent_id="a", session_id="s"),
            "only extension messages",
        ),
    ],
    ids=["empty", "no agent_id", "no session_id", "answered", "nothing said"],
)
async def test_a_violated_precondition_raises_at_the_call_before_any_event(context: AgentContext, words: str) -> None:
    """loop.md R5"""
    script = ScriptedModel("never")
    before = (list(context.messages), context.loop_id, context.agent_id, context.session_id)

    with pytest.raises(ValueError, match=words):
        agent_loop_continue(context, config_of(script))

    assert (list(context.messages), context.loop_id, context.agent_id, context.session_id) == before
    assert script.asked == 0


async def test_a_user_message_at_the_end_is_answered() -> None:
    """loop.md R5"""
    script = ScriptedModel("hello")
    context = AgentContext(messages=["hi"], agent_id="a", session_id="s")

    messages = await agent_loop_continue(context, config_of(script)).result()

    assert said(messages) == ["assistant: hello"]
    assert said(context.messages) == ["user: hi", "assistant: hello"]


@pytest.mark.parametrize("stop_reason", ["error", "aborted"])
async def test_a_failed_answer_at_the_end_is_kept_left_out_of_the_request_and_continued_from(stop_reason: Any) -> None:
    """loop.md R5, failures.md S7"""
    failed = AssistantMessage([TextContent("half"), ToolCall("1", "look")], stop_reason=stop_reason)
    context = AgentContext(messages=["hi", failed], tools=[look], agent_id="a", session_id="s")
    script = ScriptedModel("whole")

    await agent_loop_continue(context, config_of(script)).result()

    assert asked(script) == ["user: hi"]
    assert said(context.messages) == ["user: hi", "assistant: half[look]", "assistant: whole"]


async def test_an_agent_goes_on_after_an_error_and_after_an_abort() -> None:
    """loop.md R5"""
    script = ScriptedModel(error("invalid_request"), stall("half", after=1), "third time lucky")
    agent, _ = listened(script)
    ends = [(await agent.run("go")).end_reason]
    stream = agent.continue_()
    await asyncio.sleep(1)
    agent.abort()
    ends.append((await stream).end_reason)
    ends.append((await agent.continue_()).end_reason)

    assert ends == ["error", "aborted", "done"]
    assert [asked(script, number) for number in range(3)] == [["user: go"]] * 3
    assert [message.role for message in agent.messages] == ["user", "assistant", "assistant", "assistant"]


async def test_an_agent_given_a_history_can_go_on_from_it() -> None:
    """loop.md R5"""
    agent, events = listened(ScriptedModel("hello"), messages=["hi"])

    result = await agent.continue_()

    assert (result.end_reason, result.text) == ("done", "hello")
    assert outline(events)[:2] == ["agent_start", "turn_start 0 continuation"]


async def test_continue_after_a_finished_answer_is_refused_unless_something_is_queued() -> None:
    """loop.md R5"""
    agent, _ = listened(ScriptedModel("one", "two", "three"))
    await agent.run("go")
    with pytest.raises(ValueError, match="nothing to answer"):
        agent.continue_()
    agent.steer("steered")
    first = await agent.continue_()
    agent.follow_up("followed up")
    second = await agent.continue_()

    assert said(first.messages) == ["user: steered", "assistant: two"]
    assert said(second.messages) == ["user: followed up", "assistant: three"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (None, Default()),
        (Initial(), Default()),
        (Default(), Default()),
        (Rerun("again"), Rerun("again")),
        (Branch("other"), Branch("other")),
        (Compaction(), Compaction()),
    ],
    ids=repr,
)
async def test_the_kind_of_continuation_is_passed_on_and_initial_becomes_default(
    kind: ContinuationKind | None, told: ContinuationKind
) -> None:
    """loop.md R6"""
    context = AgentContext(
        messages=["hi"], agent_id="a", session_id="s", parent_loop_id="before", continuation_kind=kind
    )

    events = [event async for event in agent_loop_continue(context, config_of(ScriptedModel("hello")))]

    starts = [event for event in events if isinstance(event, AgentStart)]
    assert [(start.continuation_kind, start.parent_loop_id) for start in starts] == [(told, "before")]


async def test_no_kind_means_initial_for_fresh_prompts() -> None:
    """loop.md R6"""
    context = AgentContext(parent_loop_id="outer")

    events = [event async for event in agent_loop("hi", context, config_of(ScriptedModel("hello")))]

    starts = [event for event in events if isinstance(event, AgentStart)]
    assert [(start.continuation_kind, start.parent_loop_id) for start in starts] == [(Initial(), "outer")]


async def test_a_compaction_continuation_compacts_on_its_first_turn_whatever_the_size() -> None:
    """loop.md R6"""
    history: list[Any] = ["task"]
    for number in range(20):
        history.append({"role": "assistant", "content": f"answer {number} " + "word " * 200})
        history.append(f"question {number}")
    context = AgentContext(messages=history, tools=[look], agent_id="a", session_id="s", continuation_kind=Compaction())
    script = ScriptedModel(call("look"), "done")
    config = config_of(script, context_config=ContextConfig(max_context_tokens=1_000_000))

    events = [event async for event in agent_loop_continue(context, config)]

    ended = [event for event in events if isinstance(event, CompactionEnded)]
    assert [(event.messages_before, event.reduced, event.error) for event in ended] == [(41, True, None)]
    assert outline(events)[:4] == ["agent_start", "turn_start 0 continuation", "compaction_started", "compaction_ended"]
    assert asked(script, 0)[0] == "user: task"


async def test_an_agent_fills_in_the_parent_loop_for_every_kind() -> None:
    """loop.md R6"""
    script = ScriptedModel("one", "two", error("invalid_request"), "three", "four", "five")
    agent, events = listened(script)
    await agent.run("a")
    await agent.run("b")
    await agent.run("c")
    await agent.continue_()
    await agent.rerun("again")
    await agent.branch(0, "other")

    starts = events.of(AgentStart)
    assert [start.continuation_kind for start in starts] == [
        Initial(),
        Initial(),
        Initial(),
        Default(),
        Rerun("again"),
        Branch("other"),
    ]
    first, _, _, continued, *_ = [start.loop_id for start in starts]
    parents = [start.parent_loop_id for start in starts]
    assert parents == [None, None, None, starts[2].loop_id, continued, first]
    assert len({start.session_id for start in starts}) == 1
    assert len({start.agent_id for start in starts}) == 1


async def test_rerun_asks_for_the_last_answer_again() -> None:
    """loop.md R6"""
    script = ScriptedModel("one", call("look"), "two", "another two")
    agent, _ = listened(script, tools=[look])
    await agent.run("a")
    await agent.run("b")
    before = agent.context.log
    result = await agent.rerun()

    assert said(result.messages) == ["assistant: another two"]
    assert asked(script) == ["user: a", "assistant: one", "user: b"]
    assert said(agent.messages) == ["user: a", "assistant: one", "user: b", "assistant: another two"]
    assert agent.context.log.parent is not None
    assert agent.context.log.parent[0] is before


async def test_rerun_does_not_begin_at_the_loops_own_words() -> None:
    """loop.md R6"""
    script = ScriptedModel(call("look"), "done")
    agent, _ = listened(script, tools=[look], limits=ExecutionLimits(max_turns=1))
    first = await agent.run("task")
    result = await agent.rerun()

    assert said(first.messages)[-1] == "user: [Agent stopped: Max turns reached (1/1)]"
    assert asked(script) == ["user: task"]
    assert said(result.messages) == ["assistant: done"]


async def test_branch_takes_another_way_from_an_earlier_message() -> None:
    """loop.md R6"""
    script = ScriptedModel("one", "two", "other two", "new three")
    agent, events = listened(script)
    await agent.run("a")
    await agent.run("b")
    other = await agent.branch(2, "again")
    with_prompt = await agent.branch(1, "elsewhere", prompt="c")

    assert said(other.messages) == ["assistant: other two"]
    assert said(with_prompt.messages) == ["user: c", "assistant: new three"]
    assert said(agent.messages) == ["user: a", "assistant: one", "user: c", "assistant: new three"]
    branches = [event for event in outline(events) if event.startswith("turn_start")]
    assert branches == ["turn_start 0 user", "turn_start 0 user", "turn_start 0 branch", "turn_start 0 branch"]


async def test_branch_takes_an_entry_id_and_never_splits_a_call_from_its_result() -> None:
    """loop.md R6"""
    script = ScriptedModel(call("look"), "one", "another one")
    agent, _ = listened(script, tools=[look])
    await agent.run("a")
    at = agent.context.log.entries[1].id
    result = await agent.branch(at)

    assert asked(script) == ["user: a", "assistant: [look]", "tool_result: seen"]
    assert said(result.messages) == ["assistant: another one"]


@pytest.mark.parametrize("at", [99, -99, "nope"])
async def test_branch_from_nowhere_is_refused_before_anything_is_touched(at: Any) -> None:
    """loop.md R6"""
    agent, events = listened(ScriptedModel("one"))
    await agent.run("a")
    count = len(events)
    with pytest.raises((ValueError, IndexError), match=str(at)):
        agent.branch(at)

    assert said(agent.messages) == ["user: a", "assistant: one"]
    assert (len(events), agent.is_running) == (count, False)


async def test_branch_at_an_answer_needs_a_prompt() -> None:
    """loop.md R5"""
    agent, _ = listened(ScriptedModel("one", "two"))
    await agent.run("a")
    await agent.run("b")
    with pytest.raises(ValueError, match="nothing to answer"):
        agent.branch(1)

    assert said(agent.messages) == ["user: a", "assistant: one", "user: b", "assistant: two"]


async def test_nothing_can_be_continued_rerun_or_branched_while_a_run_goes_on() -> None:
    """loop.md R5"""
    agent, _ = listened(ScriptedModel(answer("one", pace=1), "two"))
    stream = agent.prompt("a")
    await asyncio.sleep(1)
    log = agent.context.log
    for attempt in (agent.continue_, agent.rerun, lambda: agent.branch(0), lambda: agent.prompt("b")):
        with pytest.raises(AgentBusy):
            attempt()

    assert agent.context.log is log
    assert said((await stream).messages) == ["user: a", "assistant: one"]


async def test_a_rerun_that_cannot_start_leaves_the_conversation_as_it_was() -> None:
    """loop.md R5"""
    agent = Agent(Model("nowhere", "model"), messages=["a", AssistantMessage([TextContent("one")])])
    log = agent.context.log
    with pytest.raises(NotImplementedError, match="nowhere"):
        agent.rerun()
    with pytest.raises(NotImplementedError, match="nowhere"):
        agent.branch(0)

    assert agent.context.log is log
    assert not agent.is_running


async def test_calls_a_crash_left_unanswered_are_answered_when_the_run_goes_on() -> None:
    """loop.md R5, failures.md A3"""
    cut = AssistantMessage([ToolCall("1", "look")], stop_reason="tool_use")
    context = AgentContext(messages=["hi", cut], tools=[look], agent_id="a", session_id="s")
    script = ScriptedModel("whole")

    await agent_loop_continue(context, config_of(script)).result()

    assert asked(script) == [
        "user: hi",
        "assistant: [look]",
        "tool_result: Tool call interrupted: its outcome is unknown.",
    ]


async def test_a_fresh_prompt_has_no_parent_also_after_a_branch() -> None:
    """api.md: a fresh prompt has none; the parent of a branch is the loop that the branching point belongs to."""
    agent, events = listened(ScriptedModel(*"abcdefgh"))
    await agent.run("one")
    await agent.run("two")
    await agent.branch(1, "other", prompt="three")
    await agent.run("four")
    await agent.branch(3, prompt="five")
    await agent.rerun()
    await agent.rerun(at=0)
    starts = events.of(AgentStart)
    one, _, other, _, five, _, _ = [start.loop_id for start in starts]
    assert [start.parent_loop_id for start in starts] == [None, None, one, None, other, five, one]


async def test_a_bare_context_remembers_the_loop_that_a_continuation_goes_on_from() -> None:
    """api.md: a continuation has the parent it goes on from, a fresh prompt none; R6: a caller's own is passed on."""
    context = AgentContext()
    config = config_of(ScriptedModel(error("overloaded"), error("overloaded"), "a", "b", "c"), retry=None)
    streams = [lambda: agent_loop("one", context, config), *[lambda: agent_loop_continue(context, config)] * 2]
    starts = [await first(stream()) for stream in streams]
    starts.append(await first(agent_loop("two", context, config)))
    context.messages.append("three")
    context.parent_loop_id = "elsewhere"
    starts.append(await first(agent_loop_continue(context, config)))
    one, again, *_ = [start.loop_id for start in starts]
    assert [start.parent_loop_id for start in starts] == [None, one, again, None, "elsewhere"]


async def first(stream: EventStream) -> AgentStart:
    """The first event of a run, which is read to its end."""
    start, *_ = [event async for event in stream]
    assert isinstance(start, AgentStart)
    return start


async def test_messages_that_no_run_added_have_no_parent() -> None:
    """api.md: `parent_loop_id` is the loop a continuation goes on from; what was handed in belongs to none."""
    agent, events = listened(ScriptedModel("a", "b", "c", "d"))
    await agent.run("one")
    agent.context.messages = ["other"]
    await agent.continue_()
    await agent.branch(0)
    agent.context.messages.append("more")
    await agent.continue_()
    starts = events.of(AgentStart)
    assert [start.parent_loop_id for start in starts] == [None, None, None, starts[2].loop_id]


def reminded(*texts: str) -> list[AgentMessage]:
    """A finished conversation, then an application's own messages."""
    return [
        user_message("hi"),
        AssistantMessage([TextContent("hello")]),
        *[ExtensionMessage([TextContent(text)], kind="reminder") for text in texts],
    ]


def to_user(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Reminders are for the model, as something the user said."""
    return [user_message(message.text) if message.role == "extension" else message for message in messages]


async def to_user_later(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    await asyncio.sleep(0)
    return to_user(messages)


def to_user_in_a_coroutine(messages: Sequence[AgentMessage]) -> Any:
    return to_user_later(messages)


def drop_extensions(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    return [message for message in messages if message.role != "extension"]


CONVERSIONS = [to_user, to_user_later, to_user_in_a_coroutine]


@each_row("convert", CONVERSIONS)
@each_row("way", ["continue_", "branch", "agent_loop_continue", "only"])
async def test_what_conversion_turns_into_a_question_can_be_answered(convert: Any, way: str) -> None:
    """api.md, loop.md R5: whether there is something to answer is judged after `convert_to_llm`."""
    script = ScriptedModel("yes")
    messages = reminded("Mind the gap.")[2 if way == "only" else 0 :]
    if way == "agent_loop_continue":
        context = AgentContext(messages=messages, agent_id="a", session_id="s")
        stream = agent_loop_continue(context, config_of(script, convert_to_llm=convert))
    else:
        agent = Agent(script.model, messages=messages, convert_to_llm=convert)
        stream = agent.branch(2) if way == "branch" else agent.continue_()
    result = await stream
    assert (result.end_reason, result.text, script.asked) == ("done", "yes", 1)
    assert script.requests[0][0].messages[-1].text == "Mind the gap."


@pytest.mark.parametrize("way", ["agent", "agent, async", "loop", "branch", "steered"])
async def test_a_continuation_converts_its_messages_once(way: str) -> None:
    """loop.md R5, T6: it is judged by what it sends; messages that came since are converted with the others."""
    calls: list[int] = []

    def count(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
        calls.append(len(messages))
        return to_user(messages)

    async def count_later(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
        await asyncio.sleep(0)
        return count(messages)

    script = ScriptedModel("ok")
    convert: Any = count_later if way == "agent, async" else count
    agent = Agent(script.model, convert_to_llm=convert, messages=reminded("remember"))
    if way == "loop":
        context = AgentContext(messages=reminded("remember"), agent_id="a", session_id="s")
        result = await agent_loop_continue(context, config_of(script, convert_to_llm=convert))
    else:
        stream = agent.branch(2) if way == "branch" else agent.continue_()
        if way == "steered":
            agent.steer("and now")
        result = await stream
    said = ["hi", "hello", "remember", "and now"] if way == "steered" else ["hi", "hello", "remember"]
    assert (result.text, [message.text for message in script.requests[0][0].messages]) == ("ok", said)
    assert calls == ([3, 4] if way == "steered" else [3])


async def test_a_follow_up_waits_until_what_conversion_asks_is_answered() -> None:
    """loop.md T11: follow-ups are for when the agent would stop."""
    script = ScriptedModel("yes", "again")
    agent = Agent(script.model, messages=reminded("Mind the gap."), convert_to_llm=cast(Any, to_user))
    agent.follow_up("And now?")
    await agent.continue_()
    assert [request.messages[-1].text for request, _ in script.requests] == ["Mind the gap.", "And now?"]


@pytest.mark.parametrize("convert", [default_convert_to_llm, drop_extensions])
async def test_what_conversion_leaves_out_is_nothing_to_answer(convert: Any) -> None:
    """loop.md R5: refused at the call, before any event."""
    agent = Agent(ScriptedModel("never").model, messages=reminded("for the screen"), convert_to_llm=convert)
    with pytest.raises(ValueError, match="There is nothing to answer"):
        agent.continue_()
    agent = Agent(ScriptedModel("never").model, messages=reminded("for the screen")[2:], convert_to_llm=convert)
    with pytest.raises(ValueError, match="only extension messages"):
        agent.continue_()
    assert not agent.is_running


async def test_what_an_async_conversion_leaves_out_ends_the_run_as_an_error() -> None:
    """loop.md R5, R8: an async conversion can only be judged in the run; no model is asked, and nothing hangs."""

    async def convert(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
        return drop_extensions(messages)

    script = ScriptedModel("never")
    agent, events = listened(script, messages=reminded("for the screen"), convert_to_llm=convert)
    result = await agent.continue_()
    assert (result.end_reason, script.asked, agent.is_running) == ("error", 0, False)
    assert "There is nothing to answer" in result.detail
    assert outline(events)[-1] == "agent_end error"


async def test_a_conversion_that_raises_is_the_failure_of_the_run() -> None:
    """loop.md R8"""

    def broken(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
        raise ZeroDivisionError("no")

    agent = Agent(ScriptedModel("never").model, messages=reminded("x"), convert_to_llm=cast(Any, broken))
    result = await agent.continue_()
    assert (result.end_reason, "ZeroDivisionError" in result.detail) == ("error", True)
