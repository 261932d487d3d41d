"""A workflow of a user, in a module of its own: the sandbox imports it again."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from steersman.durable.workflow_agent import Carried, WorkflowAgent


@workflow.defn
class Trip:
    """A workflow with an agent in it."""

    @workflow.init
    def __init__(self, city: str, carried: Carried | None = None) -> None:
        self.agent = WorkflowAgent("actor", carried=carried, max_events=30)

    @workflow.run
    async def run(self, city: str, carried: Carried | None = None) -> list[Any]:
        result = await self.agent.run(f"to {city}")
        if result.carried is not None:
            workflow.continue_as_new(args=[city, result.carried])
        return [result.text, result.turns, city]
