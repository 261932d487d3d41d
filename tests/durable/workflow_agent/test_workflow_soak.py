"""Agents in workflows for long: a thousand turns, and workers that are killed all the time."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from temporalio.client import WorkflowHandle
from tests.durable.workflow_agent.conftest import LATE_CANCEL, OpenStage
from tests.durable.workflow_agent.stage import Stage, expect, make_agent, start_program

from steersman.context.repair import UNKNOWN

pytestmark = [pytest.mark.real_time, pytest.mark.soak, LATE_CANCEL]


async def test_a_thousand_turns_have_few_events_and_the_same_bytes_each(
    open_stage: OpenStage, measured: Callable[[str], None]
) -> None:
    """durable.md section 3: at most 20 events a turn and constant bytes a turn, with continue-as-new."""
    turns = 1_000
    async with open_stage() as stage, stage.work(make_agent(stage.socket, turns, limits=None)):
        handle = await stage.start(max_events=2_500)
        async with asyncio.timeout(1_500):
            result = await handle.result()
        sizes = await _measure_executions(stage, handle)

    assert (result.end_reason, result.turns) == ("done", turns + 1)
    assert stage.read(handle.id) == expect(turns)
    measured(f"executions, events and bytes of each: {sizes}")
    events, size = sum(events for events, _ in sizes), sum(size for _, size in sizes)
    measured(f"{events / turns:.2f} events and {size / turns:.0f} bytes a turn")
    assert len(sizes) > 1
    assert events <= 20 * turns
    full = [size / events for events, size in sizes[:-1]]
    assert max(full) <= min(full) * 1.05, "bytes an event do not grow with the conversation"


async def test_a_run_survives_workers_that_are_killed_all_the_time(open_stage: OpenStage) -> None:
    """durable.md U8, U9: nothing is lost or said twice, and no call that is not idempotent begins twice."""
    chance = random.Random(7)
    turns, kills = 6, 0
    async with open_stage() as stage:
        for number in range(20):
            stage.steps.clear()
            step = f"{chance.choice(('ask', 'look', 'act'))} {chance.randrange(turns)}"
            stage.held = {step}
            handle = await stage.start()
            with start_program(stage), start_program(stage):
                finished = asyncio.ensure_future(handle.result())
                arrived = asyncio.ensure_future(stage.wait_for(step))
                await asyncio.wait((finished, arrived), return_when=asyncio.FIRST_COMPLETED)
                if arrived.done():
                    os.kill(arrived.result(), signal.SIGKILL)
                    kills += 1
                arrived.cancel()
                stage.let_go(step)
                async with asyncio.timeout(60):
                    result = await finished
            begun = Counter(stage.steps)
            assert result.end_reason == "done", number
            assert all(begun[f"act {n}"] <= 1 for n in range(turns)), begun
            lost = {f"call_{step[4:]}": UNKNOWN} if step.startswith("act") and begun[step] else {}
            assert stage.read(handle.id) == expect(turns, **lost), number
            stage.forget()
    assert kills > 5


async def _measure_executions(stage: Stage, handle: WorkflowHandle[object, object]) -> list[tuple[int, int]]:
    """The events and bytes of each execution, from the first to the last."""
    sizes: list[tuple[int, int]] = []
    run_id: str | None = handle.first_execution_run_id
    while run_id:
        found = stage.client.get_workflow_handle(handle.id, run_id=run_id)
        events = (await found.fetch_history()).events
        sizes.append((len(events), sum(event.ByteSize() for event in events)))
        run_id = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return sizes
