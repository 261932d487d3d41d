"""Failures around cancelling: what runs on, what is swallowed, what is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from tests.loop.toolbox import Workshop, agent_of, count_steps, customs, echo, texts, told

from steersman import Agent, AgentContext, AgentLoopConfig, CancelToken, ContextConfig, ToolContext, agent_loop, tool
from steersman.testing import EventCollector, ScriptedModel, answer, call, check_transcript, stall
from steersman.tools.threads import count_abandoned_threads
from steersman.types.events import AgentEnd, MessageEnd

ABORTED = "tool call cancelled: operation aborted"


def now() -> float:
    return asyncio.get_running_loop().time()


def others() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def aborted_after(agent: Agent, seconds: float) -> Any:
    """The result of a run that is aborted after so many seconds."""
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(seconds)
    agent.abort()
    return await running


async def test_f1_a_tool_is_over_before_the_cancelled_run_is() -> None:
    """failures.md F1, loop.md D6"""
    steps: list[str] = []

    @tool
    async def work() -> str:
        """Work, and clean up."""
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.1)
            steps.append("cleaned up")
        return "done"

    agent, _ = agent_of(ScriptedModel(answer(call("work"))), [work])
    agent.subscribe(lambda event: steps.append(event.type) if event.type == "agent_end" else None)
    result = await aborted_after(agent, 5)
    assert (steps, result.end_reason, others()) == (["cleaned up", "agent_end"], "aborted", [])


async def test_f1_cancelling_the_task_that_runs_the_agent_does_the_same() -> None:
    """failures.md F1"""
    shop = Workshop()
    agent, _ = agent_of(ScriptedModel(answer(call("job", name="a", seconds=100.0))), [shop.job()])
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (shop.log, others(), agent.is_running) == (["+a", "!a"], [], False)
    check_transcript(agent.messages)


async def test_f2_a_tool_that_swallows_the_cancel_does_not_keep_the_run_going() -> None:
    """failures.md F2, loop.md D6"""

    @tool
    async def swallow() -> str:
        """Swallow everything."""
        try:
            await asyncio.sleep(100)
        except BaseException:  # noqa: BLE001  # the fault under test
            return "ok"
        return "never"

    script = ScriptedModel(answer(call("swallow")), "never said")
    agent, heard = agent_of(script, [swallow])
    result = await aborted_after(agent, 5)
    assert (result.end_reason, script.asked, now()) == ("aborted", 1, 5.0)
    assert told(result.messages) == [("swallow", ABORTED, True, "interrupted")]
    assert [data["output"] for data in customs(heard, "late_tool_result")] == ["ok"]


async def test_f2_a_hook_that_swallows_the_cancel_does_not_keep_the_run_going() -> None:
    """failures.md F2, loop.md T12"""

    async def swallow(*_: Any) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            pass

    script = ScriptedModel("never said")
    agent, _ = agent_of(script, before_turn=swallow)
    result = await aborted_after(agent, 5)
    assert (result.end_reason, script.asked, now()) == ("aborted", 0, 5.0)


async def test_f3_a_tool_that_raises_cancelled_error_itself_is_an_error_result() -> None:
    """failures.md F3, loop.md D4"""

    @tool
    async def scoped() -> str:
        """A scope of its own is cancelled."""
        raise asyncio.CancelledError("cancel scope 42")

    @tool
    async def task_inside() -> str:
        """A task of its own is cancelled."""
        inner = asyncio.create_task(asyncio.sleep(10))
        inner.cancel()
        await inner
        return "never"

    script = ScriptedModel(answer(call("scoped"), call("task_inside"), call("echo", text="x")), "ok")
    agent, _ = agent_of(script, [scoped, task_inside, echo])
    result = await agent.run("go")
    text = "CancelledError: the tool was cancelled, and not by the run."
    assert told(result.messages) == [
        ("scoped", text, True, "completed"),
        ("task_inside", text, True, "completed"),
        ("echo", "x", False, "completed"),
    ]
    assert (result.end_reason, result.text) == ("done", "ok")


async def test_f4_a_cancelled_run_tells_everything_it_put_in_the_log() -> None:
    """failures.md F4, loop.md T9: the end is marked, and what listens to the events can write all of it down."""
    script = ScriptedModel(answer(call("echo", text="x")), stall("I was say", after=3, pace=1))
    agent, heard = agent_of(script, [echo])
    result = await aborted_after(agent, 50)
    written = [event.message for event in heard.of(MessageEnd)]
    assert written == list(agent.messages) == result.messages
    assert texts(written)[-1][0] == "assistant"
    assert getattr(written[-1], "stop_reason", None) == "aborted"
    assert [event.end_reason for event in heard.of(AgentEnd)] == ["aborted"]


async def test_f5_a_thread_that_cannot_be_cancelled_does_not_hold_up_the_run() -> None:
    """failures.md F5, loop.md D5"""
    release = threading.Event()
    before = count_abandoned_threads()

    @tool
    def block() -> str:
        """Block."""
        assert release.wait(30)
        return "late"

    agent, heard = agent_of(ScriptedModel(answer(call("block")), "never said"), [block])
    result = await aborted_after(agent, 5)
    assert (result.end_reason, now(), count_abandoned_threads() - before) == ("aborted", 5.0, 1)
    assert customs(heard, "tool_abandoned") == [{"tool_call_id": "call_1", "tool_name": "block"}]
    release.set()


async def test_f5_many_blocked_threads_do_not_starve_other_agents() -> None:
    """failures.md F5"""
    release = threading.Event()

    @tool
    def block() -> str:
        """Block."""
        assert release.wait(60)
        return "late"

    @tool
    def quick() -> str:
        """Answer at once."""
        return "quick"

    blocked, _ = agent_of(ScriptedModel(answer(*[call("block")] * 200)), [block])
    result = await aborted_after(blocked, 5)
    assert len(told(result.messages)) == 200
    other, _ = agent_of(ScriptedModel(answer(call("quick")), "ok"), [quick])
    assert told((await other.run("go")).messages) == [("quick", "quick", False, "completed")]
    release.set()


async def test_f6_breaking_out_of_the_events_closes_everything() -> None:
    """failures.md F6, loop.md section 5"""
    shop = Workshop()
    for count in range(20):
        script = ScriptedModel(answer("One.", call("job", name="a", seconds=9.0), pace=0), stall("Two.", after=2))
        agent = Agent(script.model, tools=[shop.job()])
        seen = 0
        async for _ in agent.prompt("go"):
            seen += 1
            if seen > count:
                break
        await agent.wait_for_idle()
        assert (others(), script.streaming) == ([], 0)
        check_transcript(agent.messages)


async def test_f6_a_stream_that_is_collected_in_the_middle_leaves_nothing() -> None:
    """failures.md F6"""
    script = ScriptedModel(stall("partial", after=2))
    agent = Agent(script.model)
    heard = EventCollector()
    agent.subscribe(heard)

    async def peek() -> None:
        async for event in agent.prompt("go"):
            if event.type == "message_update":
                return

    await asyncio.create_task(peek())
    gc.collect()
    await agent.wait_for_idle()
    assert (others(), script.streaming) == ([], 0)
    assert [event.end_reason for event in heard.of(AgentEnd)] == ["aborted"]


@pytest.mark.parametrize("kind", ["event", "token"])
async def test_f12_a_signal_that_was_set_before_the_start_lets_nothing_be_asked(kind: str) -> None:
    """failures.md F12, loop.md T12"""
    script = ScriptedModel("never said")
    signal: Any = asyncio.Event() if kind == "event" else CancelToken()
    (signal.set if kind == "event" else signal.cancel)()
    context = AgentContext()
    result = await agent_loop("go", context, AgentLoopConfig(model=script.model), signal)
    assert (result.end_reason, script.asked) == ("aborted", 0)
    assert texts(context.messages) == [("user", "go")]


async def test_f12_an_abort_right_after_the_prompt_lets_nothing_be_asked() -> None:
    """failures.md F12"""
    script = ScriptedModel("never said", "fine")
    agent, _ = agent_of(script)
    stream = agent.prompt("go")
    agent.abort()
    assert ((await stream).end_reason, script.asked) == ("aborted", 0)
    assert (await agent.run("again")).text == "never said"


async def test_f12_an_abort_without_a_run_or_after_its_end_does_nothing() -> None:
    """failures.md F12"""
    agent, _ = agent_of(ScriptedModel("one", "two"))
    agent.abort()
    assert (await agent.run("go")).end_reason == "done"
    agent.abort()
    agent.abort()
    assert (await agent.run("again")).text == "two"


async def test_f12_aborting_twice_is_aborting_once() -> None:
    """failures.md F12"""
    shop = Workshop()
    agent, heard = agent_of(ScriptedModel(answer(call("job", name="a", seconds=100.0))), [shop.job()])
    running = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    agent.abort()
    await asyncio.sleep(0)
    agent.abort()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [event.end_reason for event in heard.of(AgentEnd)] == ["aborted"]
    assert others() == []


async def test_f12_a_tool_may_abort_its_own_run() -> None:
    """failures.md F12"""

    @tool
    async def quit_now() -> str:
        """Abort the run."""
        agent.abort()
        await asyncio.sleep(10)
        return "never"

    @tool
    def quit_from_a_thread() -> str:
        """Abort the run."""
        agent.abort()
        return "done"

    for name in ("quit_now", "quit_from_a_thread"):
        script = ScriptedModel(answer(call(name)), "never said")
        agent, _ = agent_of(script, [quit_now, quit_from_a_thread])
        result = await agent.run("go")
        assert (result.end_reason, script.asked, len(told(result.messages))) == ("aborted", 1, 1)


def parent_and_children_cut_at(step: int | None) -> int:
    """Two sub-agents at work, aborted before that step or else after a while; how many steps there were."""
    child = ScriptedModel(*[answer(call("echo", text="x"))] * 2, *[stall("deep", after=1)] * 2, id="child")
    parent = ScriptedModel(answer(call("ask", prompt="a"), call("ask", prompt="b")))
    agent = Agent(parent.model, tools=[Agent(child.model, tools=[echo]).as_tool("ask", "Ask.")])

    def check() -> None:
        assert child.streaming == 0

    return count_steps(agent, step, check)


def test_f13_a_sub_agent_never_outlives_its_parent() -> None:
    """failures.md F13, loop.md T12: aborted at every step, also while children are just being started."""
    steps = parent_and_children_cut_at(None)
    assert steps > 10
    for step in range(2, steps):
        parent_and_children_cut_at(step)


@pytest.mark.real_time
async def test_f16_a_huge_result_does_not_block_the_event_loop(tmp_path: Any) -> None:
    """failures.md F16, loop.md C6: others have their turn while twenty megabytes are capped and saved."""
    ticks = 0
    seen: list[int] = []

    @tool
    async def dump() -> str:
        """Give twenty megabytes."""
        seen.append(ticks)
        return text

    text = "some words on a line\n" * 1_000_000
    config = ContextConfig(output_directory=str(tmp_path))
    agent, _ = agent_of(ScriptedModel(answer(call("dump")), "ok"), [dump], context_config=config)
    agent.subscribe(lambda event: seen.append(ticks) if event.type == "tool_execution_end" else None)
    running = asyncio.create_task(agent.run("go"))
    while not running.done():
        ticks += 1
        await asyncio.sleep(0)
    ((_, short, _, _),) = told((await running).messages)
    assert len(short) <= 50_000
    assert seen[1] - seen[0] > 3


@pytest.mark.real_time
async def test_f16_a_blocking_tool_does_not_block_the_event_loop() -> None:
    """failures.md F16, loop.md D5"""
    ticked = threading.Event()

    @tool
    def block(ctx: ToolContext) -> bool:
        """Wait until the loop has shown that it goes on."""
        return ticked.wait(20)

    agent, _ = agent_of(ScriptedModel(answer(call("block")), "ok"), [block])
    running = asyncio.create_task(agent.run("go"))
    for _ in range(5):
        await asyncio.sleep(0)
    ticked.set()
    assert told((await running).messages) == [("block", "true", False, "completed")]
