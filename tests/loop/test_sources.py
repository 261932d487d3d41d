"""A run has one clock and one source of ids, and its home is its event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import pytest

from steersman import Agent, AgentEvent, Retry, ToolContext, tool
from steersman.context import ContextConfig
from steersman.loop.run import witness
from steersman.session import MemoryStore, Record, Session
from steersman.testing import ScriptedModel, answer, call, error, stall

T = TypeVar("T")


def count_time() -> Callable[[], float]:
    times = itertools.count(1_000)
    return lambda: float(next(times))


def count_ids() -> Callable[[str], str]:
    numbers = itertools.count(1)
    return lambda kind: f"{kind}_{next(numbers)}"


@tool(needs_approval=True)
async def deploy(ctx: ToolContext) -> str:
    """Deploy."""
    ctx.update({"step": 1})
    ctx.emit("deployed", {"to": "test"})
    return "deployed"


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(5)
    return "word " * 400


async def play() -> tuple[list[AgentEvent], list[Record], list[Any]]:
    """A run with everything that has a time or an id: calls, a question, a retry, steering, compaction, a sub-agent."""
    clock, new_id = count_time(), count_ids()
    store = MemoryStore()
    Session(store.create("one"), clock=clock, new_id=new_id).close()
    session = Session.open(store, "one")
    helper = Agent(ScriptedModel(call("look"), "helped").model, tools=[look])
    script = ScriptedModel(
        answer(call("look", id="same"), call("look", id="same")),
        error("overloaded"),
        answer(call("deploy", id="same"), call("help", prompt="now")),
        call("look"),
        "done",
        "followed",
    )
    agent = Agent(
        script.model,
        tools=[look, deploy, helper.as_tool("help", "Helps.")],
        context_config=ContextConfig(max_context_tokens=1_500),
        approve="wait",
        approve_timeout=60,
        retry=Retry(jitter=0),
        session=session,
        clock=clock,
        new_id=new_id,
    )
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    asked = asyncio.Event()
    agent.subscribe(lambda event: asked.set() if event.type == "approval_requested" else None)
    agent.steer("queued before the run")
    stream = agent.prompt("go")
    await asked.wait()
    agent.approve(agent.open_approvals[0].approval_id)
    await asyncio.sleep(1)
    agent.steer("left", key="a")
    agent.follow_up("and then")
    await stream
    await session.save()
    return events, list(session.records()), list(agent.messages)


async def test_a_run_with_the_same_clock_and_ids_repeats_itself_in_every_field() -> None:
    """durable.md U7: one clock and one id source a run, so that two replays of one history are equal in every field."""
    first = await play()
    witness.set(None)  # which has seen a run with these ids, and takes another one for its continuation
    second = await play()

    kinds = {event.type for event in first[0]}
    assert {"approval_resolved", "retry_scheduled", "compaction_ended", "custom", "tool_execution_update"} <= kinds
    assert {"intent", "result", "accepted", "delivered", "run_end"} <= {record.type for record in first[1]}
    for one, other in zip(first, second, strict=True):
        assert msgspec.to_builtins(one, enc_hook=repr) == msgspec.to_builtins(other, enc_hook=repr)


class NarrowLoop(asyncio.SelectorEventLoop):
    """An event loop that belongs to one thread, as that of a workflow: it has no methods for other threads."""

    is_narrow = False

    def call_soon_threadsafe(self, *args: Any, **named: Any) -> Any:
        if self.is_narrow:
            raise NotImplementedError
        return super().call_soon_threadsafe(*args, **named)

    def is_closed(self) -> bool:
        if self.is_narrow:
            raise NotImplementedError
        return super().is_closed()


def run_narrow(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in an event loop without the methods for other threads."""

    async def within() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NarrowLoop)
        loop.is_narrow = True
        try:
            return await work()
        finally:
            loop.is_narrow = False

    with asyncio.Runner(loop_factory=NarrowLoop) as runner:
        return runner.run(within())


@pytest.mark.real_time
def test_an_abort_ends_a_run_in_an_event_loop_of_one_thread() -> None:
    """durable.md U7: home is the running event loop; whether it is closed is not asked."""

    async def work() -> str:
        agent = Agent(ScriptedModel(stall()).model)
        stream = agent.prompt("go")
        await asyncio.sleep(0)
        agent.abort()
        return (await stream).end_reason

    assert run_narrow(work) == "aborted"


@pytest.mark.real_time
def test_steering_cancels_a_tool_in_an_event_loop_of_one_thread() -> None:
    """durable.md U7: a steering message wakes the dispatcher, and is not lost in a `NotImplementedError`."""
    begun = asyncio.Event()

    @tool
    async def hang(ctx: ToolContext) -> str:
        """Hang."""
        ctx.update("begun")
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def work() -> list[Any]:
        agent = Agent(ScriptedModel(call("hang"), "heard").model, tools=[hang])
        stream = agent.prompt("go")
        await begun.wait()
        agent.steer("left", "cancel")
        return [message.text for message in (await stream).messages]

    assert run_narrow(work) == [
        "go",
        "",
        "tool call cancelled: user requested steering interrupt",
        "left",
        "heard",
    ]


@pytest.mark.real_time
def test_an_answer_to_a_question_wakes_its_call_in_an_event_loop_of_one_thread() -> None:
    """durable.md U7"""

    async def work() -> str:
        agent = Agent(ScriptedModel(call("deploy"), "done").model, tools=[deploy], approve="wait")
        asked = asyncio.Event()
        agent.subscribe(lambda event: asked.set() if event.type == "approval_requested" else None)
        stream = agent.prompt("go")
        await asked.wait()
        agent.approve(agent.open_approvals[0].approval_id)
        return (await stream).text

    assert run_narrow(work) == "done"


def test_a_clock_and_a_source_of_ids_are_functions() -> None:
    """A mistake of the programmer raises at the call that made it."""
    with pytest.raises(TypeError, match=r"clock takes a function, got 5"):
        Agent(ScriptedModel("x").model, clock=5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"new_id is called with \(kind\)"):
        Agent(ScriptedModel("x").model, new_id=lambda: "x")  # pyright: ignore[reportArgumentType]
