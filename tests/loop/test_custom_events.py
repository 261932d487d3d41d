"""`ctx.emit` and `agent.emit`: the application's own events."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from steersman import Agent, Session, ToolContext, tool
from steersman.events import AgentEvent, CustomEvent, ToolExecutionUpdate
from steersman.testing import EventCollector, ScriptedModel, answer, call, replay


def customs(events: list[AgentEvent]) -> list[tuple[str, Any]]:
    return [(event.name, event.data) for event in events if isinstance(event, CustomEvent)]


def check_order(events: list[AgentEvent]) -> None:
    """One run: its ids, numbers without gaps, from `agent_start` to `agent_end`."""
    assert [event.seq for event in events] == [*range(len(events))]
    assert len({event.loop_id for event in events}) == 1
    assert (events[0].type, events[-1].type) == ("agent_start", "agent_end")


@tool
async def work(ctx: ToolContext) -> str:
    """Work."""
    rows = [1, 2]
    ctx.emit("rows", {"rows": rows})
    rows.append(3)
    ctx.emit("half")
    return "worked"


@tool
def block(ctx: ToolContext) -> str:
    """Work in a thread."""
    assert threading.current_thread() is not threading.main_thread()
    for number in range(3):
        ctx.emit("step", number)
    return "worked"


async def test_a_tool_emits_events_of_the_application() -> None:
    """api.md: `ctx.emit(name, data)` sends a `custom` event with right ids and order."""
    agent = Agent(ScriptedModel(answer(call("work")), "Done.").model, tools=[work])
    heard = EventCollector()
    agent.subscribe(heard)
    events = [event async for event in agent.prompt("Go.")]
    check_order(events)
    assert heard.events == events
    # The data is what it was when it was emitted.
    assert customs(events) == [("rows", {"rows": [1, 2]}), ("half", None)]
    types = [event.type for event in events]
    start, end = types.index("tool_execution_start"), types.index("tool_execution_end")
    assert types[start : end + 1] == ["tool_execution_start", "custom", "custom", "tool_execution_end"]


async def test_a_tool_in_a_thread_emits_in_order() -> None:
    """api.md: also from threads."""
    agent = Agent(ScriptedModel(answer(call("block")), "Done.").model, tools=[block])
    threads: set[threading.Thread] = set()
    agent.subscribe(lambda _: threads.add(threading.current_thread()))
    events = [event async for event in agent.prompt("Go.")]
    check_order(events)
    assert customs(events) == [("step", 0), ("step", 1), ("step", 2)]
    assert threads == {threading.main_thread()}
    types = [event.type for event in events]
    assert types.index("custom") < types.index("tool_execution_end")


async def test_what_a_tools_thread_emits_comes_in_its_order_and_before_the_tool_ends() -> None:
    """api.md: right order, also where the tool itself never waits: later events come later."""

    @tool
    async def share(ctx: ToolContext) -> str:
        """Let a thread of its own work."""

        def work() -> None:
            ctx.emit("thread", 0)
            ctx.update("thread 1")
            ctx.emit("thread", 2)

        ctx.emit("first")
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        ctx.emit("last")
        second = threading.Thread(target=work)
        second.start()
        second.join()
        return "shared"

    agent = Agent(ScriptedModel(answer(call("share")), "Done.").model, tools=[share])
    heard = EventCollector()
    agent.subscribe(heard)
    events = [event async for event in agent.prompt("Go.")]
    check_order(events)
    assert heard.events == events
    types = [event.type for event in events]
    inside = events[types.index("tool_execution_start") + 1 : types.index("tool_execution_end")]
    thread = [("thread", 0), "thread 1", ("thread", 2)]
    shown = [
        (event.name, event.data) if isinstance(event, CustomEvent) else getattr(event, "update", None)
        for event in inside
    ]
    assert shown == [("first", None), *thread, ("last", None), *thread]


async def test_a_thread_may_emit_before_the_first_event_and_while_one_is_dispatched() -> None:
    """api.md: nothing comes before `agent_start`, and an event reaches every subscriber before the next one."""
    agent = Agent(ScriptedModel("Done.").model)
    heard = EventCollector()

    def answer_in_a_thread(event: AgentEvent) -> None:
        if event.type in ("agent_start", "message_end"):
            worker = threading.Thread(target=agent.emit, args=("answer", event.seq))
            worker.start()
            worker.join()

    agent.subscribe(answer_in_a_thread)
    agent.subscribe(heard)
    stream = agent.prompt("Go.")
    early = threading.Thread(target=agent.emit, args=("early",))
    early.start()
    early.join()
    events = [event async for event in stream]
    check_order(events)
    assert heard.events == events
    ends = [event.seq for event in events if event.type == "message_end"]
    assert customs(events) == [("early", None), ("answer", 0), *[("answer", seq) for seq in ends]]


async def test_a_tool_that_emits_after_its_run_hears_that_it_is_too_late() -> None:
    """api.md, rulings: as `agent.emit` without a run; nothing is dropped silently."""
    kept: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext) -> str:
        """Keep the context."""
        kept.append(ctx)
        return "kept"

    agent = Agent(ScriptedModel(answer(call("keep")), "Done.", "Done.").model, tools=[keep])
    events = [event async for event in agent.prompt("Go.")]
    words = r"emit\('late'\) comes too late: its run has ended.*between agent_start and agent_end"
    with pytest.raises(RuntimeError, match=words):
        kept[0].emit("late")
    with pytest.raises(RuntimeError, match=words):
        await asyncio.to_thread(kept[0].emit, "late")
    later = agent.prompt("Again.")
    with pytest.raises(RuntimeError, match=words):
        kept[0].emit("late")
    assert customs([*events, *[event async for event in later]]) == []


async def test_the_agent_emits_into_its_run_from_any_thread() -> None:
    """api.md: `agent.emit(name, data)`."""

    @tool
    async def ask() -> str:
        """Let others emit."""
        agent.emit("from the loop", {"n": 1})
        await asyncio.to_thread(agent.emit, "from a thread", 2)
        return "asked"

    agent = Agent(ScriptedModel(answer(call("ask")), "Done.").model, tools=[ask])
    events = [event async for event in agent.prompt("Go.")]
    check_order(events)
    assert customs(events) == [("from the loop", {"n": 1}), ("from a thread", 2)]


async def test_what_comes_before_the_first_event_follows_it() -> None:
    """loop.md: `agent_start` is the first event of a run."""
    agent = Agent(ScriptedModel("Done.").model)
    stream = agent.prompt("Go.")
    agent.emit("early", 1)
    events = [event async for event in stream]
    check_order(events)
    assert [event.type for event in events][:3] == ["agent_start", "custom", "turn_start"]


async def test_an_event_from_inside_a_subscriber_follows_the_one_it_answers() -> None:
    """loop.md: subscribers and readers see the same order."""
    agent = Agent(ScriptedModel("One two three.").model)
    first, last = EventCollector(), EventCollector()

    def reply(event: AgentEvent) -> None:
        if event.type in ("agent_start", "message_update", "turn_end"):
            agent.emit("after", event.seq)

    agent.subscribe(first)
    agent.subscribe(reply)
    agent.subscribe(last)
    events = [event async for event in agent.prompt("Go.")]
    check_order(events)
    assert first.events == last.events == events
    for event in events:
        if isinstance(event, CustomEvent):
            assert event.seq > event.data
    answered = [event.seq for event in events if event.type in ("agent_start", "message_update", "turn_end")]
    assert [data for _, data in customs(events)] == answered


async def test_without_a_run_it_is_an_error_that_says_so() -> None:
    """api.md, rulings: `agent.emit` without a run is an error that says so."""
    agent = Agent(ScriptedModel("Done.", "Done.").model)
    wrong: list[str] = []

    def too_late(event: AgentEvent) -> None:
        if event.type == "agent_end":
            with pytest.raises(RuntimeError, match="needs a run") as caught:
                agent.emit("late")
            wrong.append(str(caught.value))

    with pytest.raises(RuntimeError, match=r"agent.emit\('x'\) needs a run, and none is going on"):
        agent.emit("x")
    agent.subscribe(too_late)
    await agent.run("Go.")
    assert len(wrong) == 1
    with pytest.raises(RuntimeError, match="needs a run"):
        agent.emit("x")
    events = [event async for event in agent.prompt("Go.")]
    check_order(events)
    assert customs(events) == []


async def test_a_wrong_name_is_refused_where_it_is_given() -> None:
    """house.md: a programmer's mistake raises at the call that made it."""

    @tool
    async def err(ctx: ToolContext) -> str:
        """Err."""
        with pytest.raises(TypeError, match="name of a custom event is a string, got 3"):
            ctx.emit(3)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="needs a name, got ' '"):
            agent.emit(" ")
        ctx.emit("thing", {"when": {1, 2}, "what": object})
        return "fine"

    agent = Agent(ScriptedModel(answer(call("err")), "Done.").model, tools=[err])
    events = [event async for event in agent.prompt("Go.")]
    assert [event.result.text for event in events if event.type == "tool_execution_end"] == ["fine"]
    assert customs(events) == [("thing", {"when": [1, 2], "what": "<class 'object'>"})]


async def test_events_of_a_sub_agent_are_updates_of_the_call_like_its_others() -> None:
    """docs/sub-agents.md: its events name it."""
    child = Agent(ScriptedModel(answer(call("work")), "Done.").model, tools=[work])
    agent = Agent(
        ScriptedModel(answer(call("child", prompt="x")), "Done.").model, tools=[child.as_tool("child", "A child.")]
    )
    events = [event async for event in agent.prompt("Go.")]
    check_order(events)
    assert customs(events) == []
    inner = [event.update["event"] for event in events if isinstance(event, ToolExecutionUpdate)]
    assert [event.get("data") for event in inner if event["type"] == "custom"] == [{"rows": [1, 2]}, None]


async def test_a_session_with_such_events_replays(tmp_path: Path) -> None:
    """docs/replay.md: custom events are not in the records."""
    session = Session.create(tmp_path / "s.db")
    agent = Agent(ScriptedModel(answer(call("work")), "Done.").model, tools=[work], session=session)
    result = await agent.run("Go.")
    agent.close()
    again = await replay(session)
    assert [message.text for message in again.messages] == [message.text for message in result.messages]
    session.close()
