"""A run that cannot start yet changes nothing until it does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.loop.play import asked

from steersman import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    CancelToken,
    ContextConfig,
    ExtensionMessage,
    ToolContext,
    agent_loop_continue,
    create_agent_stream,
    stream_assistant_response,
    tool,
)
from steersman.loop.inbox import QueuedMessage, Receipt
from steersman.testing import EventCollector, ScriptedModel, answer, call, stall
from steersman.types.errors import InvalidRequestError
from steersman.types.events import CompactionEnded, ToolExecutionEnd
from steersman.types.messages import user_message


def test_a_stream_made_outside_an_event_loop_and_dropped_leaves_the_agent_as_it_was() -> None:
    """loop.md R1: nothing is changed before the run begins."""
    script = ScriptedModel("One.", "Two.")
    agent = Agent(script.model)
    agent.run_sync("First.")
    before = list(agent.messages)
    agent.rerun()
    agent.branch(0, prompt="Elsewhere.")
    assert (list(agent.messages), agent.is_running, agent.context.loop_id) == (before, False, None)
    assert agent.run_sync("Second.").text == "Two."


def test_two_streams_made_outside_an_event_loop_run_one_after_the_other() -> None:
    """loop.md R1: each run gets its ids when it begins."""
    script = ScriptedModel("One.", "Two.")
    agent = Agent(script.model)
    events = EventCollector()
    agent.subscribe(events)
    first, second = agent.prompt("First."), agent.prompt("Second.")

    async def both() -> list[str]:
        return [(await first).text, (await second).text]

    assert asyncio.run(both()) == ["One.", "Two."]
    assert len({event.loop_id for event in events} - {""}) == 2


async def test_one_answer_by_hand_keeps_what_is_queued_and_leaves_no_id_behind() -> None:
    """loop.md R1: `stream_assistant_response` gives back what it did not hear."""
    script = ScriptedModel("One.")
    config = AgentLoopConfig(model=script.model)
    context = AgentContext(messages=["Hello"])
    waiting = user_message("Later.")
    context.undelivered = [QueuedMessage("steering", waiting, Receipt(waiting, "next_run"))]
    message = await stream_assistant_response(context, config, None, create_agent_stream())
    assert message.text == "One."
    assert [item.message for item in context.undelivered] == [waiting]
    assert (context.loop_id, context.last_loop_id is not None) == (None, True)


async def test_an_overflow_told_only_in_words_is_one_all_the_same() -> None:
    """loop.md C5; failures.md E6: whatever kind of error the words come in."""
    words = "prompt is too long: 250000 tokens > 200000 maximum"
    script = ScriptedModel(InvalidRequestError(words, status=400), "Fine.")
    history = [{"role": role, "content": "word " * 500} for _ in range(4) for role in ("user", "assistant")]
    agent = Agent(script.model, messages=history, context_config=ContextConfig(keep_recent=2))
    events = EventCollector()
    agent.subscribe(events)
    result = await agent.run("Go.")
    assert (result.text, [event.reduced for event in events.of(CompactionEnded)]) == ("Fine.", [True])


async def test_a_follow_up_is_heard_first_even_if_the_application_had_the_last_word() -> None:
    """loop.md R5: an extension message is not the end of the conversation between user and model."""
    script = ScriptedModel("One.", "Two.")
    agent = Agent(script.model)
    await agent.run("First.")
    agent.context.messages.append(ExtensionMessage(kind="note", data="for us"))
    agent.follow_up("And?")
    await agent.continue_()
    assert asked(script) == ["user: First.", "assistant: One.", "user: And?"]


async def test_the_same_holds_for_a_bare_context() -> None:
    """loop.md R5"""
    script = ScriptedModel("One.")
    context = AgentContext(messages=["Hello"], agent_id="a", session_id="s")
    context.messages.append(ExtensionMessage(kind="note"))
    result = await agent_loop_continue(context, AgentLoopConfig(model=script.model))
    assert (result.text, asked(script)) == ("One.", ["user: Hello"])


async def test_a_duration_is_what_the_clock_of_the_loop_says() -> None:
    """loop.md D2"""

    @tool
    async def long() -> str:
        """Take an hour."""
        await asyncio.sleep(3600)
        return "done"

    agent = Agent(ScriptedModel(answer(call("long")), "Done.").model, tools=[long], limits=None)
    events = EventCollector()
    agent.subscribe(events)
    await agent.run("Go.")
    (ended,) = events.of(ToolExecutionEnd)
    assert ended.duration >= 599  # the deadline of the run cuts it


def test_a_thread_left_behind_may_still_show_progress() -> None:
    """loop.md D5; failures.md F5: no listener is left to see it, and nothing breaks."""
    begun, release, failures = threading.Event(), threading.Event(), list[Any]()

    @tool
    def slow(ctx: ToolContext) -> str:
        """Show progress when there is no listener any more."""
        begun.set()
        agent.abort()  # not a timeout: on a busy machine that may pass before the thread has begun
        release.wait(10)
        try:
            ctx.progress("still here")
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            done.set()
        return "late"

    done = threading.Event()
    agent = Agent(ScriptedModel(answer(call("slow")), "Done.").model, tools=[slow])
    assert agent.run_sync("Go.").end_reason == "aborted"
    assert begun.is_set()
    release.set()
    assert done.wait(10)
    assert failures == []


async def test_a_cancel_of_the_task_that_asks_for_one_answer_is_raised() -> None:
    """house.md: `CancelledError` is never swallowed. What has arrived is kept all the same."""
    context, config = AgentContext(messages=["Hello"]), AgentLoopConfig(model=ScriptedModel(stall("Half")).model)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await stream_assistant_response(context, config, None, create_agent_stream())
    last = context.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.text) == ("aborted", "Half")
    assert (context.running, context.loop_id) == (False, None)


async def test_a_signal_stops_one_answer_without_an_exception() -> None:
    """house.md: `CancelledError` is never swallowed; but a signal is no cancel of the caller's task."""
    signal = CancelToken()
    context, config = AgentContext(messages=["Hello"]), AgentLoopConfig(model=ScriptedModel(stall("Half")).model)
    asyncio.get_running_loop().call_later(1, signal.cancel)
    message = await stream_assistant_response(context, config, signal, create_agent_stream())
    task = asyncio.current_task()
    assert (message.stop_reason, None if task is None else task.cancelling()) == ("aborted", 0)


async def test_a_signal_does_not_take_back_the_cancel_of_another() -> None:
    """house.md: `CancelledError` is never swallowed. Here the signal comes first, and the stream ignores cancels."""
    signal = CancelToken()
    model = ScriptedModel(stall("Half", ignored_cancels=3)).model
    context, config = AgentContext(messages=["Hello"]), AgentLoopConfig(model=model)
    asyncio.get_running_loop().call_later(1, signal.cancel)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.5):
            await stream_assistant_response(context, config, signal, create_agent_stream())
    task = asyncio.current_task()
    assert (None if task is None else task.cancelling()) == 0
