"""The activities of an agent in a workflow, tried again: what an earlier attempt has done is found, not done twice."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from steersman import Agent, ToolContext, tool
from steersman.durable.workflow_agent.activities import AgentActivities
from steersman.durable.workflow_agent.session_access import PATIENCE
from steersman.durable.workflow_agent.values import AskInput, CallInput, EndInput, NewEntry, Place
from steersman.session import Session, SqliteStore
from steersman.session.records import to_json_value
from steersman.testing import ScriptedModel, answer, call, stall
from steersman.types.messages import user_message
from steersman.types.usage import Usage

pytestmark = pytest.mark.real_time


class Desk:
    """Two activities of one agent and its session, and attempts at them."""

    def __init__(self, folder: Path, script: ScriptedModel, *tools: Any) -> None:
        self.store = SqliteStore(folder / "sessions.db")
        self.script = script
        agent = Agent(script.model, tools=tools)
        self.activities = AgentActivities({"actor": agent}, self.store, time.time)

    async def do(self, work: Callable[..., Any], given: Any, *, attempt: int = 1) -> Any:
        """One attempt at an activity."""
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, attempt=attempt)
        return await environment.run(work, given)

    def kinds(self) -> list[str]:
        """The types of all records."""
        with Session.open(self.store, "s", write=False) as session:
            return [record.type for record in session.records()]


def place(record: int = 0) -> Place:
    return Place("actor", "s", "agent_1", "loop_1", record)


def first_ask() -> AskInput:
    return AskInput(place(), "entry_2", [NewEntry("entry_1", to_json_value(user_message("go")))])


async def test_an_answer_that_is_recorded_is_not_asked_for_again(tmp_path: Path) -> None:
    """durable.md U8: the worker died after it had recorded the answer, and before the server heard of it."""
    desk = Desk(tmp_path, ScriptedModel("once", usage=Usage(input=3, output=1)))
    first = await desk.do(desk.activities.ask_model, first_ask())
    second = await desk.do(desk.activities.ask_model, first_ask(), attempt=2)

    assert (second, desk.script.asked) == (first, 1)
    assert desk.kinds() == ["session", "run_start", "message", "message"]


async def test_a_call_that_was_begun_and_cannot_be_repeated_is_unknown(tmp_path: Path) -> None:
    """durable.md U9: also where something else than the retry policy starts it again, such as a reset."""
    begun: list[int] = []

    @tool
    async def act(n: int) -> str:
        """Act."""
        begun.append(n)
        await asyncio.Event().wait()
        return "never"

    @tool
    async def end(n: int) -> str:
        """End."""
        begun.append(n)
        return "ended"

    script = ScriptedModel(answer(call("act", n=1, id="a"), call("end", n=2, id="e")))
    desk = Desk(tmp_path, script, act, end)
    asked = await desk.do(desk.activities.ask_model, first_ask())
    lost = CallInput(place(asked.record), "entry_2", "a")
    attempt = asyncio.ensure_future(desk.do(desk.activities.run_tool, lost))
    async with asyncio.timeout(20):
        while not begun:
            await asyncio.wait((attempt,), timeout=0.01)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    with pytest.raises(ApplicationError, match="was begun before") as refused:
        await desk.do(desk.activities.run_tool, lost)

    assert (refused.value.type, refused.value.non_retryable, begun) == ("OutcomeUnknown", True, [1])
    ended = CallInput(place(asked.record), "entry_2", "e")
    first = await desk.do(desk.activities.run_tool, ended)
    assert (await desk.do(desk.activities.run_tool, ended), begun) == (first, [1, 2])


async def test_an_attempt_that_was_given_up_writes_nothing_more(tmp_path: Path) -> None:
    """durable.md U3, U8: another worker takes the session over, and the store refuses what the first one writes."""
    asked, leave = asyncio.Event(), asyncio.Event()

    async def wait(_request: object) -> str:
        asked.set()
        await leave.wait()
        return "too late"

    desk = Desk(tmp_path, ScriptedModel(wait, "in time"))
    slow = asyncio.ensure_future(desk.do(desk.activities.ask_model, first_ask()))
    await asked.wait()
    second = await desk.do(desk.activities.ask_model, first_ask(), attempt=2)
    leave.set()
    with pytest.raises(ApplicationError, match="could not be saved"):
        await slow

    assert second.message["content"][0]["text"] == "in time"
    with Session.open(desk.store, "s", write=False) as session:
        assert [getattr(message, "text", "") for message in session.messages] == ["go", "in time"]


async def test_the_end_of_a_run_takes_the_session_from_an_answer_that_hangs(tmp_path: Path) -> None:
    """loop.md T12: an abort does not wait for an activity that has not heard of it, and ends the run once."""
    desk = Desk(tmp_path, ScriptedModel(stall()))
    slow = asyncio.ensure_future(desk.do(desk.activities.ask_model, first_ask()))
    async with asyncio.timeout(20):
        while not desk.script.asked:
            await asyncio.wait((slow,), timeout=0.01)
    end = EndInput(place(), "aborted", "", {}, 1, [NewEntry("entry_1", to_json_value(user_message("go")))], True)
    began = time.monotonic()
    for _ in range(2):
        await desk.do(desk.activities.end_run, end)
    assert time.monotonic() - began < PATIENCE, "it does not wait for the other one to give the session back"
    slow.cancel()
    await asyncio.wait((slow,))

    assert desk.kinds() == ["session", "run_start", "message", "run_end"]


@pytest.mark.parametrize("what", ["state", "artifacts"])
async def test_a_tool_that_would_keep_something_is_told_that_it_cannot(tmp_path: Path, what: str) -> None:
    """Better than to lose it: the session is not open while the tool runs."""

    @tool
    async def keep(ctx: ToolContext) -> str:
        """Keep."""
        if what == "state":
            ctx.state["a"] = 1
        else:
            ctx.artifacts.save("a", "1")
        return "kept"

    desk = Desk(tmp_path, ScriptedModel(answer(call("keep", id="call_1"))), keep)
    asked = await desk.do(desk.activities.ask_model, first_ask())
    ended = await desk.do(desk.activities.run_tool, CallInput(place(asked.record), "entry_2", "call_1"))
    assert ended.is_error
    with Session.open(desk.store, "s", write=False) as session:
        result = next(record.payload["message"] for record in session.records() if record.type == "result")
    assert "keep no state and no artifacts" in result["content"][0]["text"]
