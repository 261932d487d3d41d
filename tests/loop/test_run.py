from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.loop.play import answering, listened, outline, said
from tests.rows import each_row

from steersman import (
    Agent,
    AgentBusy,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AgentMessage,
    Default,
    ExecutionLimits,
    Initial,
    Model,
    Rerun,
    Skip,
    Stop,
    Usage,
    agent_loop,
    agent_loop_continue,
    tool,
)
from steersman.testing import EventCollector, ScriptedModel, answer, call, error
from steersman.types.errors import RunFailed
from steersman.types.events import AgentEnd, AgentStart, LoopConfigSnapshot
from steersman.types.wire import encode


@tool
def look() -> str:
    """Look."""
    return "seen"


def broken(*_: object) -> Any:
    raise ZeroDivisionError("broken on purpose")


async def broken_async(*_: object) -> Any:
    await asyncio.sleep(1)
    raise ZeroDivisionError("broken on purpose")


async def events_of(prompt: str, context: AgentContext, config: AgentLoopConfig) -> list[AgentEvent]:
    return [event async for event in agent_loop(prompt, context, config)]


def starts(events: list[AgentEvent]) -> list[AgentStart]:
    return [event for event in events if isinstance(event, AgentStart)]


async def test_ids_are_minted_and_written_back_before_anything_else_happens() -> None:
    """loop.md R1"""
    context = AgentContext()
    seen: list[tuple[str | None, str | None, str | None]] = []

    def before_loop(messages: object, turn_index: int) -> None:
        seen.append((context.loop_id, context.agent_id, context.session_id))

    script = ScriptedModel("hello")
    stream = agent_loop("hi", context, AgentLoopConfig(model=script.model, before_loop=before_loop))
    minted = (context.loop_id, context.agent_id, context.session_id)
    events = [event async for event in stream]

    assert all(minted)
    assert len(set(minted)) == 3
    assert seen == [minted]
    assert [(start.loop_id, start.agent_id, start.session_id) for start in starts(events)] == [minted]
    assert (context.agent_id, context.session_id) == minted[1:]


async def test_ids_a_caller_set_are_kept() -> None:
    """loop.md R1"""
    context = AgentContext(loop_id="my-loop", agent_id="me", session_id="today")

    events = await events_of("hi", context, AgentLoopConfig(model=ScriptedModel("hello").model))

    assert {event.loop_id for event in events} == {"my-loop"}
    assert [(start.agent_id, start.session_id) for start in starts(events)] == [("me", "today")]


async def test_reusing_a_context_never_repeats_a_loop_id() -> None:
    """loop.md R1"""
    context = AgentContext()
    config = AgentLoopConfig(model=ScriptedModel("one", "two", "three").model)
    loop_ids: list[str] = []
    for prompt in ("a", "b", "c"):
        events = await events_of(prompt, context, config)
        loop_ids.append(events[0].loop_id)
        assert (context.loop_id, context.last_loop_id) == (None, loop_ids[-1])

    assert len(set(loop_ids)) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"before_loop": answering(False)},
        {"before_turn": answering(False)},
        {"convert_to_llm": broken},
    ],
    ids=["vetoed", "vetoed turn", "error"],
)
async def test_the_loop_id_moves_on_however_a_run_ended(options: dict[str, Any]) -> None:
    """loop.md R1"""
    context = AgentContext()

    events = await events_of("hi", context, AgentLoopConfig(model=ScriptedModel("x").model, **options))

    assert (context.loop_id, context.last_loop_id) == (None, events[0].loop_id)


async def test_every_event_carries_the_loop_id_and_a_gapless_seq() -> None:
    """loop.md R1"""
    agent, events = listened(ScriptedModel(call("look"), "done"), tools=[look])

    await agent.run("go")

    assert [event.seq for event in events] == list(range(len(events)))
    assert {event.loop_id for event in events} == {agent.context.last_loop_id}
    assert all(event.timestamp > 0 for event in events)


@pytest.mark.parametrize(
    ("no", "detail"), [(False, "before_loop said no"), (Stop("closed today"), "closed today")], ids=["False", "Stop"]
)
async def test_a_vetoed_run_is_one_agent_end_and_nothing_else(no: object, detail: str) -> None:
    """loop.md R2"""
    script = ScriptedModel()
    agent, events = listened(script, before_loop=answering(no))

    result = await agent.prompt("hi")

    loop_id = agent.context.last_loop_id
    assert loop_id is not None
    assert events.events == [AgentEnd(loop_id, 0, events.events[0].timestamp, [], Usage(), "vetoed", detail)]
    assert (result.messages, result.end_reason, result.detail) == ([], "vetoed", detail)
    assert (list(agent.messages), script.asked) == ([], 0)


async def test_before_loop_is_asked_with_the_history_and_zero_before_agent_start() -> None:
    """loop.md R2"""
    order: list[object] = []

    def before_loop(messages: list[AgentMessage], index: int) -> None:
        order.append((said(messages), index))

    agent, _ = listened(ScriptedModel("one", "two"), before_loop=before_loop)
    agent.subscribe(lambda event: order.append(event.type) if event.type == "agent_start" else None)
    await agent.run("a")
    await agent.run("b")

    assert order == [([], 0), "agent_start", (["user: a", "assistant: one"], 0), "agent_start"]


async def test_agent_start_tells_who_runs_with_which_configuration() -> None:
    """loop.md R3"""
    script = ScriptedModel("hello", "again")
    agent, events = listened(
        script,
        tools=[look],
        thinking_level="low",
        max_tokens=100,
        temperature=0.5,
        tool_execution="sequential",
        steering="wait",
        limits=ExecutionLimits(max_turns=3),
        fallbacks=["scripted:other"],
    )
    await agent.run("hi")
    first = events.events[0]
    context = agent.context
    snapshot = LoopConfigSnapshot(
        model="scripted:script",
        thinking_level="low",
        max_tokens=100,
        temperature=0.5,
        tools=["look"],
        tool_execution="sequential",
        steering="wait",
        limits={
            "max_turns": 3,
            "max_total_tokens": 1_000_000,
            "max_duration": 600,
            "max_cost": None,
            "wrap_up": False,
            "max_sub_agents": 100,
            "max_sub_agents_at_once": 16,
            "max_sub_agent_depth": 3,
        },
        context={"max_context_tokens": None},
        fallbacks=["scripted:other"],
    )

    assert first == AgentStart(
        loop_id=context.last_loop_id or "",
        seq=0,
        timestamp=first.timestamp,
        agent_id=context.agent_id or "",
        session_id=context.session_id or "",
        continuation_kind=Initial(),
        parent_loop_id=None,
        config_snapshot=snapshot,
    )


async def test_no_event_holds_a_key_or_a_callable() -> None:
    """loop.md R3"""
    secret = "sk-canary-4711"

    def get_api_key(provider: str) -> str:
        return secret

    script = ScriptedModel("hello")
    model = Model("scripted", "script", api_key=secret, headers={"x-key": secret}, settings=script.model.settings)
    agent = Agent(model, api_key=secret, get_api_key=get_api_key, before_turn=answering(None))
    events = EventCollector()
    agent.subscribe(events)

    await agent.run("hi")

    encoded = b"\n".join(encode(event) for event in events)
    assert b"agent_start" in encoded
    assert secret.encode() not in encoded
    assert b"function" not in encoded
    assert secret not in repr(agent.config)
    assert [options.api_key for _, options in script.requests] == [secret]


async def test_after_agent_end_comes_after_loop_then_the_result_then_idleness() -> None:
    """loop.md R7"""
    order: list[object] = []

    async def after_loop(messages: list[AgentMessage], usage: Usage) -> None:
        order.append(("after_loop", said(messages), usage.total, agent.is_running, stream.done))
        await asyncio.sleep(1)
        with pytest.raises(AgentBusy):
            agent.prompt("another")
        order.append("still busy")

    script = ScriptedModel(answer("hello", usage=Usage(input=3, output=2)))
    agent, _ = listened(script, after_loop=after_loop)
    agent.subscribe(lambda event: order.append(event.type) if event.type == "agent_end" else None)
    stream = agent.prompt("hi")

    result = await stream

    assert order == ["agent_end", ("after_loop", ["user: hi", "assistant: hello"], 5, True, False), "still busy"]
    assert (result.text, result.usage.total, agent.is_running) == ("hello", 5, False)


async def test_a_run_that_an_after_loop_hook_starts_later_can_be_aborted() -> None:
    """loop.md R7"""
    started: list[asyncio.Task[None]] = []

    async def another() -> None:
        await agent.wait_for_idle()
        stream = agent.prompt("second")
        await asyncio.sleep(1)
        agent.abort()
        order.append((await stream).end_reason)

    def after_loop(messages: object, usage: object) -> None:
        if not started:
            started.append(asyncio.get_running_loop().create_task(another()))

    order: list[str] = []
    agent, _ = listened(ScriptedModel("one", answer("two", pace=10)), after_loop=after_loop)
    order.append((await agent.run("first")).end_reason)
    await started[0]

    assert order == ["done", "aborted"]


async def test_agent_end_and_the_result_hold_the_new_messages_only() -> None:
    """loop.md R7"""
    agent, events = listened(ScriptedModel("one", "two"))
    await agent.run("a")
    result = await agent.run("b")

    assert said(events.of(AgentEnd)[1].messages) == ["user: b", "assistant: two"]
    assert said(result.messages) == ["user: b", "assistant: two"]
    assert said(agent.messages) == ["user: a", "assistant: one", "user: b", "assistant: two"]


async def test_nothing_is_told_after_agent_end() -> None:
    """loop.md R7"""

    async def stubborn() -> str:
        """Will not stop."""
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
        return "late"

    agent, events = listened(ScriptedModel(call("stubborn")), tools=[stubborn])
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.abort()
    await stream
    count = len(events)
    await asyncio.sleep(60)

    assert events.types[-1] == "agent_end"
    assert len(events) == count


SEAMS = [
    "before_loop",
    "before_turn",
    "transform_context",
    "async_transform_context",
    "convert_to_llm",
    "pre_turn_policies",
    "get_api_key",
    "after_turn",
    "post_turn_policies",
    "post_loop_policies",
    "before_follow_up",
    "get_steering_messages",
    "get_follow_up_messages",
]


@each_row("how", [broken, broken_async])
@each_row("seam", SEAMS)
async def test_a_failure_inside_the_loop_is_an_error_a_closed_turn_and_an_end(
    seam: str, how: Callable[..., Any]
) -> None:
    """loop.md R8"""
    errors: list[str] = []
    given: Any = [how] if seam.endswith("_policies") else how
    agent, events = listened(ScriptedModel("hello"), **{seam: given}, on_error=errors.append)

    result = await agent.prompt("hi")

    # The words of the function that gives keys may hold one, so only the type of the exception is told.
    words = "ZeroDivisionError" if seam == "get_api_key" else "ZeroDivisionError: broken on purpose"
    assert result.end_reason == "error"
    assert words in result.detail
    assert said(result.messages)[0] == "user: hi"
    assert len(result.messages) == 2
    assert outline(events)[-1] == "agent_end error"
    assert len(errors) == 1
    assert words in errors[0]


@pytest.mark.parametrize("answer_given", [Skip("no"), 7, "yes"], ids=repr)
async def test_an_answer_that_means_nothing_at_its_seam_ends_the_run_as_an_error(answer_given: object) -> None:
    """loop.md R8"""
    script = ScriptedModel()
    agent, _ = listened(script, before_turn=answering(answer_given))

    result = await agent.run("hi")

    assert (result.end_reason, script.asked) == ("error", 0)
    assert repr(answer_given) in result.detail


async def test_a_run_that_failed_before_its_first_turn_gives_the_error_message_and_not_an_empty_list() -> None:
    """loop.md R8"""
    context = AgentContext()
    config = AgentLoopConfig(model=ScriptedModel().model, before_loop=broken)
    collected: list[AgentEvent] = []
    stream = agent_loop("hi", context, config)
    async for event in stream:
        collected.append(event)
    messages = await stream.result()

    assert outline(collected) == [
        "agent_start",
        "turn_start 0 user",
        "user: hi",
        "assistant: ",
        "turn_end 0 error",
        "agent_end error",
    ]
    assert said(messages) == ["user: hi", "assistant: "]
    assert "ZeroDivisionError: broken on purpose" in getattr(messages[-1], "error_message", "")


async def test_a_continuation_that_failed_before_its_first_turn_says_what_triggered_it() -> None:
    """loop.md R8, loop.md T1"""
    context = AgentContext(messages=["hi"], agent_id="a", session_id="s", continuation_kind=Rerun("x"))
    config = AgentLoopConfig(model=ScriptedModel().model, before_loop=broken)

    events = [event async for event in agent_loop_continue(context, config)]

    assert outline(events) == [
        "agent_start",
        "turn_start 0 continuation",
        "assistant: ",
        "turn_end 0 error",
        "agent_end error",
    ]


async def test_an_after_loop_hook_that_raises_makes_the_result_an_error() -> None:
    """api.md: a hook that raises at a loop seam ends the run as an error. loop.md R7: agent_end came before."""
    agent, events = listened(ScriptedModel("hello"), after_loop=broken)

    result = await agent.prompt("hi")

    detail = "after_loop hook broken raised ZeroDivisionError: broken on purpose"
    assert (result.end_reason, result.detail, result.text) == ("error", detail, "hello")
    assert [(event.end_reason, event.detail) for event in events.of(AgentEnd)] == [("done", "")]
    assert events.types[-1] == "agent_end"
    with pytest.raises(RunFailed, match="broken on purpose"):
        result.raise_for_error()


class Veto:
    """Says no to every turn."""

    def before_turn(self, messages: object, turn_index: int) -> bool:
        """Says no."""
        return False


async def test_an_after_loop_hook_that_raises_does_not_hide_why_the_run_ended() -> None:
    """As above; the first reason stays."""
    agent, _ = listened(ScriptedModel(ValueError("the model is out")), after_loop=broken)
    result = await agent.run("hi")
    assert (result.end_reason, result.detail) == ("error", "ValueError: the model is out")

    agent, _ = listened(ScriptedModel("hello"), after_loop=broken, hooks=[Veto()])
    assert (await agent.run("hi")).end_reason == "vetoed"


@pytest.mark.parametrize("how", ["sync", "async", "another task", "and raises"])
async def test_an_abort_inside_after_loop_makes_the_result_aborted(how: str) -> None:
    """api.md: abort inside any callback ends the run aborted. loop.md R7: agent_end came before."""
    calls: list[str] = []

    async def wait_long(messages: object, usage: object) -> None:
        calls.append("after_loop")
        if how == "async":
            agent.abort()
        else:
            asyncio.get_running_loop().call_later(1, agent.abort)
        await asyncio.sleep(1000)

    def abort(messages: object, usage: object) -> None:
        calls.append("after_loop")
        agent.abort()
        if how == "and raises":
            raise ZeroDivisionError

    agent, events = listened(
        ScriptedModel("hello", "again"), after_loop=wait_long if how in ("async", "another task") else abort
    )
    result = await agent.run("hi")

    assert (result.end_reason, result.text, agent.is_running, calls) == ("aborted", "hello", False, ["after_loop"])
    assert result.detail.startswith("operation aborted")
    assert [event.end_reason for event in events.of(AgentEnd)] == ["done"]


async def test_an_abort_by_a_subscriber_that_is_told_of_agent_end_comes_too_late() -> None:
    """loop.md R7: the event says how the run ended, and the result says the same."""
    agent, events = listened(ScriptedModel("hello"))
    agent.subscribe(lambda event: agent.abort() if event.type == "agent_end" else None)

    result = await agent.run("hi")

    assert (result.end_reason, [event.end_reason for event in events.of(AgentEnd)]) == ("done", ["done"])


async def test_an_on_error_hook_that_raises_does_not_hide_the_error() -> None:
    """loop.md R8"""
    agent, events = listened(ScriptedModel(ValueError("the model is out")), on_error=broken)

    result = await agent.prompt("hi")

    assert (result.end_reason, result.detail) == ("error", "ValueError: the model is out")
    assert outline(events)[-2:] == ["turn_end 0 error", "agent_end error"]


@pytest.mark.parametrize("how", ["raises", "aborts"])
async def test_an_answer_that_was_begun_is_ended_when_the_loop_breaks_before_it_is_asked_for_again(how: str) -> None:
    """loop.md R8, loop.md T7"""
    agents: list[Agent] = []

    def transform(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        if overflow and how == "raises":
            raise ZeroDivisionError("broken on purpose")
        if overflow:
            agents[0].abort()
        return messages

    history: list[Any] = ["task"]
    for number in range(20):
        history.append({"role": "assistant", "content": f"answer {number} " + "word " * 100})
        history.append(f"question {number}")
    script = ScriptedModel(error("context_overflow", "half an answer", after=2), "never")
    agent, events = listened(script, messages=history, transform_context=transform)
    agents.append(agent)
    result = await agent.run("hi")

    reason = "error" if how == "raises" else "aborted"
    assert (result.end_reason, script.asked) == (reason, 1)
    assert outline(events)[-3:] == ["assistant: ", f"turn_end 0 {reason}", f"agent_end {reason}"]


async def test_two_runs_cannot_share_a_context_at_once() -> None:
    """loop.md R1"""
    context = AgentContext()
    config = AgentLoopConfig(model=ScriptedModel("one").model)
    stream = agent_loop("a", context, config)
    loop_id = context.loop_id
    with pytest.raises(AgentBusy):
        agent_loop("b", context, config)

    assert context.loop_id == loop_id
    assert said(await stream.result()) == ["user: a", "assistant: one"]


async def test_the_kind_of_a_continuation_is_told_at_the_start() -> None:
    """loop.md R3, loop.md R6"""
    context = AgentContext(messages=["hi"], agent_id="a", session_id="s", parent_loop_id="parent")
    config = AgentLoopConfig(model=ScriptedModel("hello").model)

    events = [event async for event in agent_loop_continue(context, config)]

    assert [(start.continuation_kind, start.parent_loop_id) for start in starts(events)] == [(Default(), "parent")]
