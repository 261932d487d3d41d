"""What is said to an agent in a workflow when it is about to end, when its history is full, or by mistake."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.worker import Worker
from temporalio.workflow import ActivityConfig
from tests.durable.workflow_agent.conftest import LATE_CANCEL, OpenStage
from tests.durable.workflow_agent.stage import Stage, expect, make_agent

from steersman.durable.workflow_agent import AgentPlugin
from steersman.durable.workflow_agent.activities import END
from steersman.session import Session

pytestmark = [pytest.mark.real_time, LATE_CANCEL]


async def wait_for_the_end(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until the end of the run is to be recorded."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.activity_task_scheduled_event_attributes.activity_type.name == END:
            return


async def say_at_the_end(stage: Stage, *signals: tuple[str, str], aborted: bool = False) -> tuple[Any, str]:
    """Send signals while the end of a run waits to be recorded; its result, and the id of the session."""
    ends = f"{stage.queue}-ends"
    agents = {"actor": make_agent(stage.socket, 2)}
    plugin = AgentPlugin(agents, stage.store, session=ActivityConfig(task_queue=ends))
    async with Worker(stage.client, task_queue=stage.queue, plugins=[plugin]):
        if aborted:
            stage.held = {"look 0"}
        handle = await stage.start()
        if aborted:
            await stage.wait_for("look 0")
            await handle.signal("follow_up", "before")
            await handle.signal("abort")
        await wait_for_the_end(handle)
        for name, text in signals:
            await handle.signal(name, text)
        async with Worker(stage.client, task_queue=ends, plugins=[plugin]):
            return await stage.finish(handle), handle.id


async def test_what_is_said_while_the_end_is_recorded_is_heard(open_stage: OpenStage) -> None:
    """durable.md U7: another run of the session hears it, and counts on."""
    async with open_stage() as stage:
        result, id = await say_at_the_end(stage, ("follow_up", "and then"), ("steer", "but first"))
        said = stage.read(id)
        with Session.open(stage.store, id, write=False) as session:
            kinds = [record.type for record in session.records() if record.type in ("run_start", "run_end")]
    assert said == [
        *expect(2),
        "user: but first",
        "assistant: all done",
        "user: and then",
        "assistant: all done",
    ]
    assert (result.end_reason, result.turns, kinds) == ("done", 5, ["run_start", "run_end"] * 2)


async def test_what_an_aborted_run_leaves_waits_in_the_session(open_stage: OpenStage) -> None:
    """durable.md U7: also what comes while its end is recorded; each once."""
    async with open_stage() as stage:
        result, id = await say_at_the_end(stage, ("steer", "after"), aborted=True)
        with Session.open(stage.store, id, write=False) as session:
            waiting = [(item.kind, item.message.text) for item in session.waiting]
            ends = [record.type for record in session.records()].count("run_end")
    assert (result.end_reason, ends) == ("aborted", 1)
    assert waiting == [("follow_up", "before"), ("steering", "after")]


async def test_a_key_is_one_message_also_when_the_workflow_has_continued_as_new(open_stage: OpenStage) -> None:
    """durable.md U8: whoever is not sure that it was heard may send it again."""
    async with open_stage() as stage, stage.work():
        stage.held = {"look 2", "ask 3", "act 5"}
        handle = await stage.start(max_events=20)
        await stage.wait_for("look 2")
        await handle.signal("steer", args=["left", "wait", "once"])
        stage.let_go("look 2")
        await stage.wait_for("ask 3")
        heard_by = (await handle.describe()).run_id
        stage.let_go("ask 3")
        await stage.wait_for("act 5")
        assert (await handle.describe()).run_id != heard_by
        await handle.signal("steer", args=["left", "wait", "once"])
        stage.let_go("act 5")
        await stage.finish(handle)
    assert stage.read(handle.id).count("user: left") == 1


@pytest.mark.parametrize(
    ("signal", "arguments"),
    [("steer", ["left", "bogus"]), ("steer", [""]), ("steer", []), ("follow_up", [{"role": "bogus"}]), ("deny", [])],
)
async def test_a_signal_that_makes_no_sense_ends_no_run(
    open_stage: OpenStage, signal: str, arguments: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """durable.md U8: the mistake is that of whoever has sent it."""
    async with open_stage() as stage, stage.work(make_agent(stage.socket, 2)):
        stage.held = {"look 0"}
        handle = await stage.start()
        await stage.wait_for("look 0")
        await handle.signal(signal, args=arguments)
        stage.let_go("look 0")
        assert (await stage.finish(handle)).end_reason == "done"
    assert stage.read(handle.id) == expect(2)
    assert ("A signal was refused" in caplog.text) == (signal != "deny")


LONG = [f"{number}" * 1_000_000 for number in range(3)]


async def say_long(stage: Stage, signal: str, **fields: Any) -> WorkflowHandle[Any, Any]:
    """Start a run, and say more than Temporal passes on at once while it holds in a tool."""
    stage.held = {"look 0"}
    handle = await stage.start(**fields)
    await stage.wait_for("look 0")
    for text in LONG:
        await handle.signal(signal, text)
    return handle


async def test_more_is_heard_at_once_than_temporal_passes_on(open_stage: OpenStage) -> None:
    """durable.md U8: no task of the workflow is tried for ever."""
    async with open_stage() as stage, stage.work(make_agent(stage.socket, 2, steering_mode="all")):
        handle = await say_long(stage, "steer")
        await handle.signal("follow_up", "x" * 1_950_000)
        stage.let_go("look 0")
        assert (await stage.finish(handle)).end_reason == "done"
        assert [line for line in stage.read(handle.id) if line.startswith("user")] == [
            "user: go",
            *(f"user: {text}" for text in LONG),
        ]


async def test_more_is_left_than_temporal_passes_on(open_stage: OpenStage) -> None:
    """durable.md U8: the end of an aborted run is recorded with all that it leaves."""
    async with open_stage() as stage, stage.work(make_agent(stage.socket, 2)):
        handle = await say_long(stage, "follow_up")
        await handle.signal("abort")
        assert (await stage.finish(handle)).end_reason == "aborted"
        with Session.open(stage.store, handle.id, write=False) as session:
            assert [item.message.text for item in session.waiting] == LONG


async def test_a_run_continues_as_new_once_it_can_take_its_queue_along(open_stage: OpenStage) -> None:
    """durable.md U8: until then its history grows."""
    async with open_stage() as stage, stage.work(make_agent(stage.socket, 4)):
        handle = await say_long(stage, "follow_up", max_events=20)
        stage.let_go("look 0")
        assert (await stage.finish(handle)).end_reason == "done"
        said = stage.read(handle.id)
        assert [said.count(f"user: {text}") for text in LONG] == [1, 1, 1]


async def test_a_prompt_that_is_too_long_is_told(open_stage: OpenStage) -> None:
    async with open_stage() as stage, stage.work(make_agent(stage.socket, 2)):
        with pytest.raises(WorkflowFailureError) as failed:
            await stage.finish(await stage.start("x" * 1_950_000))
    assert "A message to a workflow has at most 1,900,000 bytes as JSON, got 1,950,002." in str(failed.value.cause)
