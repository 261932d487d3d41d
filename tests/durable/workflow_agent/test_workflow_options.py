"""What users of Temporal do with an agent in a workflow: own workflows, task queues, retry policies, cancels."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Worker
from temporalio.workflow import ActivityConfig
from tests.durable.workflow_agent.conftest import LATE_CANCEL, OpenStage
from tests.durable.workflow_agent.stage import Stage, expect, make_agent
from tests.durable.workflow_agent.trip import Trip
from tests.session.database import Database

from steersman import Agent, Rewrite, Skip, ToolCall, ToolContext, tool
from steersman.context.repair import UNKNOWN
from steersman.durable.workflow_agent import AgentInput, AgentPlugin, AgentWorkflow
from steersman.policy import Approval
from steersman.session import Session
from steersman.testing import ScriptedModel, answer, call, error
from steersman.types.errors import ErrorInfo

pytestmark = [pytest.mark.real_time, LATE_CANCEL]


async def test_an_agent_in_a_workflow_of_ones_own_with_tools_on_another_task_queue(open_stage: OpenStage) -> None:
    """durable.md U8: each call is an activity with its own task queue; the run goes on through continue-as-new."""
    async with open_stage() as stage:
        tools = {"look": ActivityConfig(task_queue=f"{stage.queue}-looks")}
        plugin = AgentPlugin({"actor": make_agent(stage.socket)}, stage.store, tools=tools)
        elsewhere = Worker(stage.client, task_queue=f"{stage.queue}-looks", plugins=[plugin])
        async with Worker(stage.client, task_queue=stage.queue, workflows=[Trip], plugins=[plugin]), elsewhere:
            handle = await stage.client.start_workflow(
                Trip.run, args=["Rome"], id=f"trip-{stage.queue}", task_queue=stage.queue
            )
            result = await stage.finish(handle)
            first = stage.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
            history = await first.fetch_history()

    queues = {
        event.activity_task_scheduled_event_attributes.task_queue.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    }
    assert result == ["all done", 7, "Rome"]
    assert queues == {stage.queue, f"{stage.queue}-looks"}
    assert stage.read(handle.id)[1:] == expect()[1:]


async def test_the_retry_policy_of_temporal_decides_about_a_model_that_fails(open_stage: OpenStage) -> None:
    """loop.md section 8: what may pass is tried again, what will not ends the run; no failed try is in the session."""
    busy = error(ErrorInfo("overloaded", "busy", "scripted", 529, retry_after=0.01))
    script = ScriptedModel(busy, busy, "at last", error("invalid_request"), busy, busy, busy)
    policy = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=3)
    async with open_stage() as stage:
        plugin = AgentPlugin({"actor": Agent(script.model)}, stage.store, model=ActivityConfig(retry_policy=policy))
        async with Worker(stage.client, task_queue=stage.queue, plugins=[plugin]):
            first = await stage.start()
            result = await stage.finish(first)
            refused = await _fail(stage)
            exhausted = await _fail(stage)

    assert (result.text, stage.read(first.id)) == ("at last", ["user: go", "assistant: at last"])
    assert (script.left, refused.type, exhausted.type) == (0, "AgentFailed", "AgentFailed")
    assert "busy" in exhausted.message


async def _fail(stage: Stage) -> ApplicationError:
    handle = await stage.start()
    with pytest.raises(WorkflowFailureError) as failed:
        await stage.finish(handle)
    assert isinstance(failed.value.cause, ApplicationError)
    said = stage.read(handle.id)
    assert [line.partition(":")[0] for line in said] == ["user", "assistant"], "the failure is told once"
    return failed.value.cause


async def test_calls_of_one_answer_run_side_by_side_on_postgresql(open_stage: OpenStage, postgres: Database) -> None:
    """loop.md D1: several activities write to one session; each has its record, and results come in source order."""
    met = asyncio.Barrier(3)

    @tool
    async def meet(n: int) -> str:
        """Meet the others."""
        await met.wait()
        return f"met {n}"

    script = ScriptedModel(answer(*(call("meet", n=n) for n in range(3))), "done")
    async with open_stage() as stage:
        stage.store = postgres.store()
        async with stage.work(Agent(script.model, tools=[meet])):
            handle = await stage.start()
            await stage.finish(handle)

    assert stage.read(handle.id) == [
        "user: go", "assistant: ", "tool_result: met 0", "tool_result: met 1", "tool_result: met 2", "assistant: done",
    ]  # fmt: skip


async def test_a_workflow_that_is_cancelled_ends_its_run(open_stage: OpenStage) -> None:
    """loop.md T12: the end of the run is in the session, and the workflow is cancelled."""
    async with open_stage() as stage, stage.work():
        stage.held = {"act 1"}
        handle = await stage.start()
        await stage.wait_for("act 1")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as cancelled:
            await stage.finish(handle)

    assert isinstance(cancelled.value.cause, CancelledError)
    with Session.open(stage.store, handle.id, write=False) as session:
        last = list(session.records())[-1]
    assert (last.type, last.payload["end_reason"]) == ("run_end", "aborted")


async def test_gates_that_are_plain_functions_decide_in_the_workflow(open_stage: OpenStage) -> None:
    """loop.md D3: elsewhere they run in threads, which a workflow has none of; a preview is not made there."""

    def refuse(call: ToolCall) -> Skip | Rewrite | None:
        return Skip("not here") if call.arguments["n"] == 0 else Rewrite({"n": 7})

    def preview(_arguments: dict[str, Any], _ctx: ToolContext | None) -> str:
        raise AssertionError("not called in a workflow")

    @tool(preview=preview)
    async def look(n: int) -> str:
        """Look."""
        return f"looked {n}"

    asked: list[str] = []

    def agree(call: ToolCall) -> bool:
        asked.append(call.name)
        return True

    script = ScriptedModel(answer(call("look", n=0), call("look", n=1)), "done")
    agent = Agent(
        script.model,
        tools=[look],
        before_tool_execution=refuse,
        approval=Approval("ask"),
        approve=agree,
    )
    async with open_stage() as stage, stage.work(agent):
        handle = await stage.start()
        await stage.finish(handle)

    assert stage.read(handle.id)[2:4] == ["tool_result: not here", "tool_result: looked 7"]
    assert asked == ["look"]


async def test_a_worker_that_ends_in_mid_call_leaves_the_rest_to_others(open_stage: OpenStage) -> None:
    """durable.md U9: what it had begun and cannot be repeated is told as unknown."""
    async with open_stage() as stage:
        stage.held = {"act 1"}
        async with stage.work():
            handle = await stage.start()
            await stage.wait_for("act 1")
        stage.let_go("act 1")
        async with stage.work():
            await stage.finish(handle)

    assert stage.steps.count("act 1") == 1
    assert stage.read(handle.id) == expect(call_1=UNKNOWN)


async def test_a_session_goes_on_in_a_workflow_and_after_it(open_stage: OpenStage) -> None:
    """durable.md U8: the session is an ordinary one, before the workflow and after it."""
    async with open_stage() as stage:
        with Session.create(stage.store, "known") as session:
            await Agent(ScriptedModel("first").model, session=session).run("one")
        agent = Agent(ScriptedModel("second", "third").model)
        async with stage.work(agent):
            await stage.finish(await stage.start("two", session_id="known"))
        with Session.open(stage.store, "known") as session:
            result = await Agent(agent.model, session=session).run("three")

    assert result.text == "third"
    assert stage.read("known") == [
        "user: one", "assistant: first", "user: two", "assistant: second", "user: three", "assistant: third",
    ]  # fmt: skip


def test_a_mistake_is_told_at_the_call_that_made_it(tmp_path: Path) -> None:
    """house.md: a programmer's mistake raises at the call that made it."""
    wrong: Any = {"a": 5}
    with pytest.raises(TypeError, match=r"agents is a dict of names and Agent\(...\), got 'a': 5"):
        AgentPlugin(wrong, tmp_path / "x")
    with pytest.raises(ValueError, match=r"'a' has no tool 'lok'\. Its tools: "):
        AgentPlugin({"a": make_agent(tmp_path)}, tmp_path / "x", tools={"lok": ActivityConfig()})


@pytest.mark.filterwarnings("ignore:coroutine .*run_workflow.* was never awaited:RuntimeWarning")
async def test_an_agent_that_no_worker_has_fails_the_workflow(open_stage: OpenStage) -> None:
    """durable.md U8: it does not wait for ever."""
    async with open_stage() as stage, stage.work():
        with pytest.raises(WorkflowFailureError) as failed:
            await stage.client.execute_workflow(
                AgentWorkflow.run, AgentInput("nope", "go"), id=f"no-{stage.queue}", task_queue=stage.queue
            )
        told = str(failed.value.cause)

    assert "This worker has no agent 'nope', but 'actor'" in told
    gc.collect()  # Temporal's worker leaves a coroutine behind where the constructor of a workflow raises
