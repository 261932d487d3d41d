"""Waiting for the journal: how often, and what happens when it breaks, gives no answer, or is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from typing import Any

import pytest

from steersman import Agent, Session, ToolCall, tool
from steersman.session.recorder import Recorder
from steersman.session.stores.memory import MemoryStore
from steersman.testing import ScriptedModel, answer, call, stall


class Kept(Recorder):
    """A session's recorder that writes down when it is waited for, and may do something about it."""

    def __init__(self, session: Session, act: Callable[[str], Any] = lambda _: None) -> None:
        super().__init__(session.recorder.journal, session.recorder.index)
        self.waits: list[str] = []
        self._act = act

    async def record_intent(self, calls: Sequence[ToolCall], /) -> None:
        self.waits.append(f"intend {' '.join(asked.name for asked in calls)}")
        await self._do("intend")

    async def save(self) -> None:
        self.waits.append("save")
        await self._do("save")

    async def _do(self, what: str) -> None:
        if asyncio.iscoroutine(done := self._act(what)):
            await done

    def register_secrets(self, secrets: Set[str], /) -> None:
        self.waits.append("hide")


@tool
async def work() -> str:
    """Work."""
    return "worked"


def _agent(act: Callable[[str], Any], *turns: Any, **options: Any) -> tuple[Agent, Kept]:
    session = Session.create(MemoryStore())
    kept = Kept(session, act)
    session.recorder = kept
    return Agent(ScriptedModel(*turns).model, tools=[work], session=session, **options), kept


def _nothing(_: str) -> None:
    return None


async def test_a_turn_waits_three_times_at_most() -> None:
    """Before the model is asked, before tools start, and at the end of the run."""
    agent, kept = _agent(_nothing, answer(call("work"), call("work")), "Done.")
    await agent.run("Go.")
    assert kept.waits == ["hide", "save", "intend work work", "save", "save"]


async def test_calls_one_after_the_other_are_intended_one_after_the_other() -> None:
    agent, kept = _agent(_nothing, answer(call("work"), call("work")), "Done.", tool_execution="sequential")
    await agent.run("Go.")
    assert kept.waits == ["hide", "save", "intend work", "intend work", "save", "save"]


async def test_a_call_that_is_not_run_is_not_intended() -> None:
    agent, kept = _agent(_nothing, answer(call("nope"), call("work", extra=1)), "Done.")
    await agent.run("Go.")
    assert kept.waits == ["hide", "save", "save", "save"]


async def test_a_journal_that_raises_does_not_break_the_run(caplog: pytest.LogCaptureFixture) -> None:
    def fail(what: str) -> None:
        raise OSError(f"no {what}")

    agent, _ = _agent(fail, answer(call("work")), "Done.")
    result = await agent.run("Go.")
    assert (result.end_reason, result.text) == ("done", "Done.")
    assert [record.message for record in caplog.records] == [
        "The journal raised OSError: no save.",
        "The journal raised OSError: no intend.",
        "The journal raised OSError: no save.",
        "The journal raised OSError: no save.",
    ]


async def test_a_journal_that_gives_no_answer_at_the_end_is_not_waited_for_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits = iter([None, 10_000.0])

    def hang(_: str) -> Any:
        seconds = next(waits)
        return None if seconds is None else asyncio.sleep(seconds)

    agent, _ = _agent(hang, "Done.", gate_timeout=7.0)
    began = asyncio.get_running_loop().time()
    result = await agent.run("Go.")
    assert (result.end_reason, asyncio.get_running_loop().time() - began) == ("done", pytest.approx(7.0))
    assert "did not confirm in time" in caplog.text


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancel_does_not_skip_the_end(times: int) -> None:
    """failures.md F4: however often it comes, the end is kept before the result is known."""
    kept_at: list[float] = []
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    async def slowly() -> None:
        await asyncio.sleep(5)
        kept_at.append(loop.time())
        asked.set()

    agent, kept = _agent(lambda _: slowly(), stall())
    task = loop.create_task(agent.run("Go."))
    await asked.wait()
    await asyncio.sleep(0.5)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.5)
    with pytest.raises(asyncio.CancelledError):
        await task
    await agent.wait_for_idle()  # a caller that was cancelled again does not wait, the run does
    assert kept.waits == ["hide", "save", "save"]
    assert len(kept_at) == 2
    assert not agent.is_running


async def test_a_cancel_of_the_run_itself_while_its_end_is_kept_does_not_skip_it() -> None:
    """failures.md F4"""
    kept_at: list[float] = []
    loop = asyncio.get_running_loop()
    waits = iter([False, True])

    async def slowly() -> None:
        await asyncio.sleep(5)
        kept_at.append(loop.time())

    agent, _ = _agent(lambda _: slowly() if next(waits) else None, "Done.")
    ended = asyncio.Event()
    agent.subscribe(lambda event: ended.set() if event.type == "agent_end" else None)
    caller = loop.create_task(agent.run("Go."))
    await ended.wait()
    await asyncio.sleep(1)
    run = next(task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "run_loop")
    for _ in range(3):
        run.cancel()
        await asyncio.sleep(1)
    assert (kept_at, agent.is_running) == ([], True)
    assert (await caller).end_reason == "done"
    assert kept_at == [5.0]


async def test_an_abort_while_the_intents_are_kept_starts_nothing() -> None:
    """loop.md T12, D6: the calls are answered as not started."""
    ran: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    session = Session.create(MemoryStore())

    def abort(what: str) -> None:
        if what == "intend":
            agent.abort()

    session.recorder = Kept(session, abort)
    agent = Agent(ScriptedModel(answer(call("pay"))).model, tools=[pay], session=session)
    result = await agent.run("Go.")
    assert (result.end_reason, ran) == ("aborted", [])
    assert [message.details for message in result.messages if message.role == "tool_result"] == [
        {"status": "not_started"}
    ]


async def test_steering_while_the_intents_are_kept_skips_them() -> None:
    """loop.md D6"""

    def steer(what: str) -> None:
        if what == "intend":
            agent.steer("Stop.")

    agent, _ = _agent(steer, answer(call("work")), "Stopped.")
    result = await agent.run("Go.")
    assert [message.text for message in result.messages] == [
        "Go.",
        "",
        "Skipped due to queued user message.",
        "Stop.",
        "Stopped.",
    ]


async def test_without_a_session_there_is_no_waiting_and_no_listener() -> None:
    agent = Agent(ScriptedModel(answer(call("work")), "Done.").model, tools=[work])
    await agent.run("Go.")
    assert agent.session is None
    assert agent.dispatcher.callbacks == ()
    assert agent.context.log.listener is None
    agent.close()
