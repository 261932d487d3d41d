"""An agent in a workflow, against a real Temporal server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from tests.durable.workflow_agent.conftest import LATE_CANCEL, OpenStage
from tests.durable.workflow_agent.stage import TURNS, expect, make_agent, start_program

from steersman import Stop, tool
from steersman.context.repair import UNKNOWN
from steersman.session import Session

pytestmark = [pytest.mark.real_time, LATE_CANCEL]


async def test_a_run_of_many_turns_has_few_events_a_turn_and_the_same_bytes(open_stage: OpenStage) -> None:
    """durable.md U8: activities get positions, so history is O(1) a turn. Without a cache each step is replayed."""
    turns = 12
    async with open_stage() as stage, stage.work(make_agent(stage.socket, turns), max_cached_workflows=0):
        handle = await stage.start()
        result = await stage.finish(handle)
        events = (await handle.fetch_history()).events

    assert (result.end_reason, result.text, result.turns) == ("done", "all done", turns + 1)
    assert stage.read(handle.id) == expect(turns)
    assert stage.steps == [step for n in range(turns) for step in (f"ask {n}", f"{'act' if n % 2 else 'look'} {n}")] + [
        f"ask {turns}"
    ]
    kinds = Counter(EventType.Name(event.event_type) for event in events)
    assert kinds["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] == 2 * turns + 2
    assert len(events) <= 20 * (turns + 1)
    assert len(events) <= 13 * (turns + 1)
    sizes = [
        len(payload.data)
        for event in events
        for payload in event.activity_task_scheduled_event_attributes.input.payloads
    ]
    asked, called = sizes[2:-1:2], sizes[1:-1:2]
    assert max(asked) - min(asked) <= 10, "what an activity gets does not grow with the conversation"
    assert max(called) - min(called) <= 10
    with Session.open(stage.store, handle.id, write=False) as session:
        kept = [record.type for record in session.records()]
    assert [kept.count(type) for type in ("run_start", "run_end", "intent", "result")] == [1, 1, turns, turns]


async def test_a_call_that_is_not_idempotent_is_never_begun_twice(open_stage: OpenStage) -> None:
    """durable.md U9: its worker is killed in mid-call, another one goes on, and the model reads recovery's words."""
    async with open_stage() as stage:
        stage.held = {"act 3"}
        with start_program(stage) as program:
            handle = await stage.start()
            os.kill(await stage.wait_for("act 3"), signal.SIGKILL)
            program.wait()
        stage.held = set()
        async with stage.work():
            result = await stage.finish(handle)

    assert result.end_reason == "done"
    assert stage.steps.count("act 3") == 1
    assert stage.read(handle.id) == expect(call_3=UNKNOWN)


@pytest.mark.parametrize("step", ["ask 3", "look 2"])
async def test_an_answer_and_an_idempotent_call_are_tried_again_elsewhere(open_stage: OpenStage, step: str) -> None:
    """durable.md U8: their worker is killed, another one does them again, and nothing is said twice."""
    async with open_stage() as stage:
        stage.held = {step}
        with start_program(stage) as program:
            handle = await stage.start()
            os.kill(await stage.wait_for(step), signal.SIGKILL)
            program.wait()
        stage.held = set()
        async with stage.work():
            result = await stage.finish(handle)

    assert result.end_reason == "done"
    assert stage.steps.count(step) == 2
    assert stage.read(handle.id) == expect()


async def test_steering_from_outside_is_heard_at_the_next_turn(open_stage: OpenStage) -> None:
    """loop.md T11 in a workflow; `cancel` cancels the running activity."""
    async with open_stage() as stage, stage.work():
        stage.held = {"look 2", "act 3"}
        handle = await stage.start()
        await stage.wait_for("look 2")
        await handle.signal("steer", args=["left", "wait"])
        await handle.signal("follow_up", "and then")
        stage.let_go("look 2")
        await stage.wait_for("act 3")
        await handle.signal("steer", args=["right", "cancel"])
        await stage.finish(handle)

    said = stage.read(handle.id)
    cancelled = "tool_result: tool call cancelled: user requested steering interrupt"
    assert said[6:12] == [
        "tool_result: looked 2",
        "user: left",
        "assistant: ",
        cancelled,
        "user: right",
        "assistant: ",
    ]
    assert said[-3:] == ["assistant: all done", "user: and then", "assistant: all done"]


@pytest.mark.parametrize("step", ["ask 1", "act 1"])
async def test_an_abort_ends_the_run(open_stage: OpenStage, step: str) -> None:
    """loop.md T12 in a workflow: in mid-answer and in mid-tool."""
    async with open_stage() as stage, stage.work():
        stage.held = {step}
        handle = await stage.start()
        await stage.wait_for(step)
        await handle.signal("abort")
        result = await stage.finish(handle)

    assert (result.end_reason, result.detail) == ("aborted", "operation aborted")
    last = "assistant: " if step == "ask 1" else "tool_result: tool call cancelled: operation aborted"
    assert stage.read(handle.id)[-1] == last
    with Session.open(stage.store, handle.id, write=False) as session:
        assert [record.type for record in session.records()][-1] == "run_end"


async def test_a_question_waits_for_a_signal(open_stage: OpenStage) -> None:
    """loop.md D3 in a workflow: the questions are found by a query, and answered by a signal."""

    @tool(needs_approval=True)
    async def look(n: int) -> str:
        """Look."""
        return f"approved {n}"

    async with open_stage() as stage:
        agent = make_agent(stage.socket, turns=1, approve="wait")
        agent.tools = [look]
        async with stage.work(agent):
            handle = await stage.start()
            await handle.signal("approve", "no such question")
            async with asyncio.timeout(30):
                questions = await handle.query("open_approvals")
                while not questions:
                    questions = await handle.query("open_approvals")
            await handle.signal("approve", questions[0]["approval_id"])
            result = await stage.finish(handle)

    assert result.end_reason == "done"
    assert stage.read(handle.id)[2] == "tool_result: approved 0"


async def test_a_long_run_continues_as_new_with_what_it_has_counted(open_stage: OpenStage) -> None:
    """durable.md U8: continue-as-new before the history is full; the limits count on, and queued messages are kept."""
    async with open_stage() as stage, stage.work():
        stage.held = {"look 0"}
        handle = await stage.start(max_events=30)
        await stage.wait_for("look 0")
        await handle.signal("follow_up", "and then")
        stage.let_go("look 0")
        result = await stage.finish(handle)
        last = stage.client.get_workflow_handle(handle.id)
        events = (await last.fetch_history()).events

    assert (result.end_reason, result.turns) == ("done", TURNS + 2)
    assert stage.read(handle.id) == [*expect(), "user: and then", "assistant: all done"]
    assert len(events) < 60
    with Session.open(stage.store, handle.id, write=False) as session:
        kept = [record.type for record in session.records()]
    assert [kept.count(type) for type in ("run_start", "run_end")] == [1, 1]


async def test_a_failure_in_workflow_code_fails_the_workflow(open_stage: OpenStage) -> None:
    """durable.md U8: it never tries the task for ever."""

    def broken(_messages: object, _turn: int) -> Stop | None:
        raise ZeroDivisionError("in a hook")

    async with open_stage() as stage, stage.work(make_agent(stage.socket, before_turn=broken)):
        handle = await stage.start()
        with pytest.raises(WorkflowFailureError) as failed:
            await stage.finish(handle)
        other = await stage.start(["no", {"prompt": 1}])
        with pytest.raises(WorkflowFailureError) as refused:
            await stage.finish(other)

    assert isinstance(failed.value.cause, ApplicationError)
    assert (failed.value.cause.type, "in a hook" in failed.value.cause.message) == ("AgentFailed", True)
    assert "prompt" in str(refused.value.cause)
