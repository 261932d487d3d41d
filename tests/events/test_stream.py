from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest
from tests.rows import each_row

from steersman import (
    Agent,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AssistantMessage,
    EventStream,
    Request,
    RunResult,
    StreamOptions,
    TextContent,
    Usage,
    UserMessage,
    agent_loop,
    create_agent_stream,
    tool,
)
from steersman.testing import EventCollector, ScriptedModel, answer, call, check_events, error, run_virtual, stall
from steersman.types.events import AgentEnd, CustomEvent, MessageEnd
from steersman.types.model import Model
from steersman.types.stream import Done

LONG = "word " * 1_000


def agent_of(*turns: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel(*turns).model, **options)


def tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()]


async def test_iterating_gives_every_event_of_the_run() -> None:
    """loop.md section 5, R1"""
    agent = agent_of("ok")
    heard = EventCollector()
    agent.subscribe(heard)
    events = [event async for event in agent.prompt("go")]
    assert events == heard.events
    check_events(events)
    assert agent.is_running is False


async def test_awaiting_gives_the_result() -> None:
    """loop.md section 5, R7"""
    result = await agent_of("ok").prompt("go")
    assert isinstance(result, RunResult)
    assert [message.text for message in result.messages] == ["go", "ok"]


async def test_the_result_is_the_new_messages() -> None:
    """loop.md section 5, R7"""
    agent = agent_of("one", "two")
    await agent.run("first")
    stream = agent.prompt("second")
    assert [message.text for message in await stream.result()] == ["second", "two"]


async def test_the_result_may_be_asked_for_after_the_iteration_and_again() -> None:
    """loop.md section 5"""
    stream = agent_of("ok").prompt("go")
    events = [event async for event in stream]
    first = await stream.result()
    again = await stream.result()
    end = events[-1]
    assert isinstance(end, AgentEnd)
    assert first == again == list(end.messages)
    assert first is not again
    assert (await stream).messages == first


async def test_the_result_never_eats_events() -> None:
    """loop.md section 5"""
    stream = agent_of("ok").prompt("go")
    messages = await stream.result()
    events = [event async for event in stream]
    check_events(events)
    assert [event.message for event in events if isinstance(event, MessageEnd)] == messages


async def test_a_second_iteration_after_the_end_is_empty() -> None:
    stream = agent_of("ok").prompt("go")
    assert len([event async for event in stream]) > 4
    assert [event async for event in stream] == []


async def test_iterating_in_one_task_and_awaiting_in_another_may_be_combined() -> None:
    """loop.md section 5"""
    stream = agent_of(answer(LONG, deltas=1_000)).prompt("go")
    events: list[AgentEvent] = []

    async def read() -> None:
        async for event in stream:
            events.append(event)
            await asyncio.sleep(0.001)

    reading = asyncio.create_task(read())
    result = await stream
    await reading
    assert result.text == LONG
    check_events(events)


async def test_awaiting_inside_the_iteration_does_not_wait_for_itself() -> None:
    """loop.md section 5: with more events than the buffer holds."""
    stream = agent_of(answer(LONG, deltas=1_000)).prompt("go")
    result: RunResult | None = None
    events: list[AgentEvent] = []
    async for event in stream:
        events.append(event)
        if result is None:
            result = await stream
    assert result is not None
    assert result.text == LONG
    check_events(events)


async def test_waiting_for_idle_inside_the_iteration_does_not_wait_for_itself() -> None:
    """loop.md section 5"""
    agent = agent_of(answer(LONG, deltas=1_000))
    events: list[AgentEvent] = []
    async for event in agent.prompt("go"):
        events.append(event)
        if len(events) == 1:
            await agent.wait_for_idle()
    check_events(events)
    assert agent.messages[-1].text == LONG


async def test_two_readers_share_the_events_and_both_come_to_an_end() -> None:
    """loop.md section 5: never a hang."""
    stream = agent_of(answer(LONG, deltas=50, pace=1)).prompt("go")

    async def read() -> list[AgentEvent]:
        return [event async for event in stream]

    first, second = asyncio.create_task(read()), asyncio.create_task(read())
    parts = [*await first, *await second]
    check_events(sorted(parts, key=lambda event: event.seq))


async def test_a_run_may_be_iterated_from_another_task_than_the_one_that_started_it() -> None:
    """loop.md section 5, failures.md F6"""
    stream = agent_of("ok").prompt("go")

    async def read() -> list[AgentEvent]:
        return [event async for event in stream]

    check_events(await asyncio.create_task(read()))


async def test_an_iteration_may_be_handed_from_task_to_task() -> None:
    """loop.md section 5, failures.md F6"""
    reader = aiter(agent_of("ok").prompt("go"))
    events: list[AgentEvent] = []

    async def step() -> bool:
        try:
            events.append(await anext(reader))
        except StopAsyncIteration:
            return False
        return True

    while await asyncio.create_task(step()):
        pass
    check_events(events)


@each_row("count", range(1, 12))
async def test_leaving_the_iteration_early_cancels_the_run_and_leaves_nothing_behind(count: int) -> None:
    """loop.md section 5, failures.md F6"""
    script = ScriptedModel(answer(call("slow")), stall("partial", after=2))
    ended: list[str] = []

    @tool
    async def slow() -> str:
        """Take a while."""
        try:
            await asyncio.sleep(5)
        finally:
            ended.append("slow")
        return "slept"

    agent = Agent(script.model, tools=[slow])
    heard = EventCollector()
    agent.subscribe(heard)
    async for event in agent.prompt("go"):
        if event.seq == count:
            break
    await agent.wait_for_idle()
    assert [event.end_reason for event in heard.of(AgentEnd)] == ["aborted"]
    assert (tasks(), script.streaming) == ([], 0)
    check_events(heard)


async def test_closing_cancels_the_run_and_waits_until_nothing_of_it_is_left() -> None:
    """loop.md section 5"""
    script = ScriptedModel(stall("partial", after=2))
    agent = Agent(script.model)
    heard = EventCollector()
    agent.subscribe(heard)
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    assert script.streaming == 1
    await stream.aclose()
    assert (stream.done, agent.is_running, script.streaming, tasks()) == (True, False, 0, [])
    assert [event.end_reason for event in heard.of(AgentEnd)] == ["aborted"]
    await stream.aclose()
    assert (await stream).end_reason == "aborted"


async def test_closing_a_run_that_is_over_changes_nothing() -> None:
    """loop.md section 5"""
    stream = agent_of("ok").prompt("go")
    result = await stream
    await stream.aclose()
    assert (await stream, result.end_reason) == (result, "done")


async def test_async_with_closes_the_run() -> None:
    """loop.md section 5"""
    agent = agent_of(stall("partial", after=2))
    async with agent.prompt("go") as stream:
        async for event in stream:
            if event.type == "message_update":
                break
    assert (stream.done, tasks(), (await stream).end_reason) == (True, [], "aborted")


async def test_an_error_in_the_body_closes_the_run_and_comes_through() -> None:
    """loop.md section 5"""
    agent = agent_of(stall("partial", after=2))

    async def read() -> None:
        async with agent.prompt("go") as stream:
            async for event in stream:
                assert event.seq / 0

    with pytest.raises(ZeroDivisionError):
        await read()
    assert (agent.is_running, tasks()) == (False, [])


async def test_cancelling_the_task_that_awaits_cancels_the_run_and_comes_through() -> None:
    """loop.md section 5, T12"""
    script = ScriptedModel(stall("partial", after=2))
    agent = Agent(script.model)
    waiting = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (agent.is_running, script.streaming, tasks()) == (False, 0, [])


async def test_cancelling_one_of_two_that_wait_does_not_cancel_the_run() -> None:
    """loop.md section 5"""
    stream = agent_of(answer("ok", pace=10)).prompt("go")
    first, second = (asyncio.create_task(stream.result()) for _ in range(2))
    await asyncio.sleep(1)
    first.cancel()
    assert [message.text for message in await second] == ["go", "ok"]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_timeout_around_the_result_ends_the_run() -> None:
    """loop.md section 5"""
    agent = agent_of(stall())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.prompt("go").result(), 5)
    assert (agent.is_running, tasks(), asyncio.get_running_loop().time()) == (False, [], 5.0)


async def test_a_stream_that_is_dropped_unread_lets_its_run_go_on() -> None:
    """loop.md section 5: subscribers may be all the caller wants."""
    agent = agent_of(answer(LONG, deltas=1_000))
    heard = EventCollector()
    agent.subscribe(heard)
    agent.prompt("go")
    gc.collect()
    await agent.wait_for_idle()
    assert [event.end_reason for event in heard.of(AgentEnd)] == ["done"]


async def test_a_reader_that_is_dropped_cancels_the_run() -> None:
    """loop.md section 5, failures.md F6"""
    agent = agent_of(stall("partial", after=2))
    reader = aiter(agent.prompt("go"))
    await anext(reader)
    del reader
    gc.collect()
    await agent.wait_for_idle()
    assert (agent.is_running, tasks()) == (False, [])


def test_a_reader_that_is_collected_when_its_loop_is_gone_does_no_harm() -> None:
    """failures.md F6"""
    kept: list[Any] = []

    async def leave() -> None:
        reader = aiter(agent_of(stall("partial", after=2)).prompt("go"))
        kept.append(reader)
        await anext(reader)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    kept.clear()
    gc.collect()
    assert kept == []


def test_a_reader_that_is_collected_while_its_loop_stands_still_cancels_the_run_when_it_goes_on() -> None:
    """failures.md F6"""
    kept: list[Any] = []
    agents: list[Agent] = []

    async def leave() -> None:
        agents.append(agent_of(stall("partial", after=2)))
        reader = aiter(agents[0].prompt("go"))
        kept.append(reader)
        await anext(reader)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    kept.clear()
    gc.collect()
    loop.run_until_complete(agents[0].wait_for_idle())
    assert asyncio.all_tasks(loop) == set()
    loop.close()


def test_without_a_running_loop_the_run_starts_when_it_is_first_used() -> None:
    """loop.md section 5"""
    script = ScriptedModel("ok")
    agent = Agent(script.model)
    stream = agent.prompt("go")
    assert (script.asked, agent.is_running) == (0, False)

    async def read() -> list[AgentEvent]:
        return [event async for event in stream]

    check_events(run_virtual(read()))
    assert (script.asked, agent.is_running) == (1, False)


@pytest.mark.parametrize("use", ["await", "result", "aclose", "with"])
def test_without_a_running_loop_any_use_starts_the_run(use: str) -> None:
    """loop.md section 5"""
    stream = agent_of("ok").prompt("go")

    async def work() -> str:
        if use == "result":
            await stream.result()
        elif use == "aclose":
            await stream.aclose()
        elif use == "with":
            async with stream:
                pass
        return (await stream).end_reason

    assert run_virtual(work()) == ("done" if use in ("await", "result") else "aborted")


def test_a_stream_made_without_a_loop_and_dropped_leaves_the_agent_free() -> None:
    """loop.md section 5"""
    agent = agent_of("ok")
    agent.prompt("never used")
    gc.collect()
    assert agent.is_running is False
    run_virtual(agent.wait_for_idle())
    assert run_virtual(agent.run("go")).text == "ok"


def test_the_loop_without_an_agent_needs_no_running_loop_at_call_time_either() -> None:
    """loop.md section 5"""
    script = ScriptedModel("ok")
    stream = agent_loop("go", AgentContext(), AgentLoopConfig(model=script.model))

    async def read() -> list[Any]:
        return await stream.result()

    assert [message.text for message in run_virtual(read())] == ["go", "ok"]


async def test_a_reader_that_falls_behind_slows_the_provider_down() -> None:
    """loop.md section 5, failures.md S13 J2"""
    given = 0

    async def flood(model: Model, request: Request, options: StreamOptions) -> Any:
        nonlocal given
        for _ in range(5_000):
            given += 1
            yield {"type": "text_delta", "delta": "x"}
        yield Done(AssistantMessage([TextContent("x" * 5_000)]))

    agent = Agent("scripted:none", stream_fn=flood)
    stream = agent.prompt("go")
    reader = aiter(stream)
    await anext(reader)
    await asyncio.sleep(60)
    assert (given <= 300, len(stream.channel.buffer) <= 300) == (True, True)
    most = 0
    async for _ in reader:
        most = max(most, len(stream.channel.buffer))
    assert (given, most <= 300) == (5_000, True)
    assert (await stream).end_reason == "done"


async def test_a_stream_that_is_neither_read_nor_awaited_stands_still_and_does_not_grow() -> None:
    """loop.md section 5, failures.md J2"""
    script = ScriptedModel(answer(LONG, deltas=1_000))
    stream = Agent(script.model).prompt("go")
    await asyncio.sleep(60)
    assert (len(stream.channel.buffer) <= 300, script.streaming) == (True, 1)
    assert (await stream).text == LONG


async def test_a_stream_without_a_reader_is_logged_once_after_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """api.md: after 5 s one log line says that the run waits, and what to do."""
    agent = agent_of(answer(LONG, deltas=1_000), answer(LONG, deltas=1_000))
    agent.follow_up("more")
    stream = agent.prompt("go")
    await asyncio.sleep(4.9)
    assert caplog.messages == []
    await asyncio.sleep(60)
    assert caplog.messages == [
        f"The stream of the run {agent.context.loop_id} has 256 events, and no reader for 5 s: the run waits. "
        "Iterate over the stream, await it, or use agent.run(...) where the events are not needed."
    ]
    events = stream.__aiter__()
    while len(stream.channel.buffer) > 100:
        await anext(events)
    await asyncio.sleep(60)
    assert len(caplog.messages) == 1
    await stream.aclose()


@pytest.mark.parametrize("use", ["read", "read slowly", "await", "drop", "abort", "close"])
async def test_a_stream_that_is_used_in_time_is_not_logged(use: str, caplog: pytest.LogCaptureFixture) -> None:
    """api.md: it is about streams that no task has begun to read."""
    agent = agent_of(answer(LONG, deltas=1_000))
    stream = agent.prompt("go")
    await asyncio.sleep(4.9)
    match use:
        case "read":
            assert [event async for event in stream]
        case "read slowly":
            async for _ in stream:
                await asyncio.sleep(7)
        case "await":
            await stream
        case "drop":
            del stream
        case "abort":
            agent.abort()
        case _:
            await stream.aclose()
    await asyncio.sleep(600)
    await agent.wait_for_idle()
    assert caplog.messages == []


async def test_a_provider_that_does_not_stream_is_slowed_down_as_well() -> None:
    """loop.md section 5, failures.md J2: every turn adds events, deltas or not."""

    async def whole(model: Model, request: Request, options: StreamOptions) -> Any:
        yield Done(AssistantMessage([call("step", number=len(request.messages), id=f"c{len(request.messages)}")]))

    @tool
    async def step(number: int) -> str:
        """Go on."""
        return str(number)

    agent = Agent("scripted:none", stream_fn=whole, tools=[step], limits=None, repeated_calls=None)
    stream = agent.prompt("go")
    reader = aiter(stream)
    await anext(reader)
    for _ in range(20_000):
        await asyncio.sleep(0)
    assert len(stream.channel.buffer) <= 300
    await stream.aclose()


async def test_progress_of_a_tool_does_not_grow_the_queue_of_a_slow_reader() -> None:
    """loop.md section 5, failures.md J2"""

    @tool
    async def chatter(ctx: Any) -> str:
        """Show a lot."""
        for number in range(5_000):
            ctx.update(number)
        return "done"

    stream = Agent(ScriptedModel(answer(call("chatter")), "ok").model, tools=[chatter]).prompt("go")
    await asyncio.sleep(10)
    assert len(stream.channel.buffer) <= 300
    check = [event async for event in stream]
    assert check[-1].type == "agent_end"


async def test_a_reader_may_break_while_the_run_waits_for_it() -> None:
    """loop.md section 5"""
    script = ScriptedModel(answer(LONG, deltas=1_000))
    agent = Agent(script.model)
    async for event in agent.prompt("go"):
        await asyncio.sleep(60)
        if event.seq == 3:
            break
    await agent.wait_for_idle()
    assert (agent.is_running, script.streaming, tasks()) == (False, 0, [])


async def test_an_abort_reaches_a_run_that_waits_for_its_reader() -> None:
    """loop.md section 5, T12"""
    agent = agent_of(answer(LONG, deltas=1_000))
    stream = agent.prompt("go")
    await asyncio.sleep(60)
    agent.abort()
    events = [event async for event in stream]
    check_events(events)
    assert (await stream).end_reason == "aborted"


async def test_a_failed_run_is_never_an_empty_list() -> None:
    """loop.md section 5, R8"""

    def broken(messages: Any) -> Any:
        raise RuntimeError("cannot convert")

    def vetoes(*_: Any) -> Any:
        raise RuntimeError("cannot begin")

    cases: list[dict[str, Any]] = [{"convert_to_llm": broken}, {"before_loop": vetoes}]
    for options in cases:
        script = ScriptedModel("never said")
        stream = agent_loop("go", AgentContext(), AgentLoopConfig(model=script.model, **options))
        messages = await stream.result()
        last = messages[-1]
        assert isinstance(last, AssistantMessage)
        assert (last.stop_reason, "RuntimeError: cannot" in (last.error_message or "")) == ("error", True)


async def test_a_failed_answer_is_among_the_messages() -> None:
    """loop.md section 5, T9"""
    messages = await agent_of(error("authentication")).prompt("go").result()
    assert [message.role for message in messages] == ["user", "assistant"]


async def test_the_reader_may_steer_between_events() -> None:
    """loop.md section 5"""
    agent = agent_of(answer(LONG, deltas=500), "heard")
    steered = False
    async for event in agent.prompt("go"):
        if event.type == "message_update" and not steered:
            steered = True
            agent.steer("and this")
    assert [message.text for message in agent.messages if isinstance(message, UserMessage)] == ["go", "and this"]


async def test_a_stream_of_ones_own_takes_events_by_hand_and_ends_with_agent_end() -> None:
    stream = create_agent_stream()
    assert isinstance(stream, EventStream)
    end = AgentEnd("loop", 1, 0.0, [UserMessage([TextContent("x")])], Usage(), "done")
    stream.push(CustomEvent("loop", 0, 0.0, "mine"))
    stream.push(end)
    assert await stream.result() == [UserMessage([TextContent("x")])]
    assert [event async for event in stream] == [CustomEvent("loop", 0, 0.0, "mine"), end]
    assert stream.done


@pytest.mark.real_time
async def test_an_abort_from_another_thread_ends_the_run() -> None:
    """loop.md section 5, T12"""
    agent = agent_of(stall("partial", after=2))
    stream = agent.prompt("go")
    async for event in stream:
        if event.type == "message_update":
            threading.Thread(target=agent.abort).start()
    assert (await stream).end_reason == "aborted"


@pytest.mark.real_time
def test_an_agent_is_awaited_from_the_event_loop_of_another_thread() -> None:
    """api.md: `await agent.wait_for_idle()`; a run by `run_sync` in one thread is awaited in another one."""
    begun, released = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Wait."""
        begun.set()
        return str(released.wait(10))

    agent = Agent(ScriptedModel(call("block"), "Done.").model, tools=[block])

    async def wait_elsewhere() -> float:
        begun.wait(10)
        waiting = asyncio.ensure_future(agent.wait_for_idle())
        await asyncio.sleep(0)
        start = monotonic()
        released.set()
        await asyncio.wait((waiting,), timeout=5)
        assert not agent.is_running
        return monotonic() - start

    with ThreadPoolExecutor() as pool:
        waited = pool.submit(lambda: asyncio.run(wait_elsewhere()))
        assert agent.run_sync("Go.").text == "Done."
        assert waited.result() < 4
