"""`AgentWorkflow`: a run of an agent as a workflow of its own, with signals, queries and continue-as-new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from steersman.durable.workflow_agent.values import AgentResult, Carried, Json
from steersman.durable.workflow_agent.workflow_run import MAX_EVENTS, WorkflowAgent
from steersman.types.errors import SteersmanError


@dataclass
class AgentInput:
    """A run to start: the agent by name, the prompt, and the session, whose id is that of the workflow if not given.

    `max_events` is how long a history may be before the workflow continues as new, which `carried` is for.
    """

    agent: str
    prompt: Any = None
    session_id: str | None = None
    max_events: int = MAX_EVENTS
    carried: Carried | None = None


@workflow.defn(name="SteersmanAgent")
class AgentWorkflow:
    """One run of an agent. Signals: steer, follow_up, abort, approve, deny. Queries: open_approvals, turns.

    A run that ends with an error fails the workflow, with the `AgentResult` in the details of the failure.
    """

    @workflow.init
    def __init__(self, start: AgentInput) -> None:
        self._agent = WorkflowAgent(start.agent, start.session_id, carried=start.carried, max_events=start.max_events)

    @workflow.run
    async def run(self, start: AgentInput) -> AgentResult:
        """Run to the end, through as many executions as the history needs."""
        result = await self._agent.run(start.prompt)
        if result.carried is not None:
            start.prompt, start.carried = None, result.carried
            workflow.continue_as_new(start)
        if result.end_reason == "error":
            raise ApplicationError(result.detail, result, type="AgentFailed", non_retryable=True)
        return result

    @workflow.signal
    def steer(self, x: Any = None, mode: str | None = None, key: str | None = None) -> None:
        """Queue a message for the start of the next turn."""
        _take(lambda: self._agent.steer(x, mode, key))

    @workflow.signal
    def follow_up(self, x: Any = None, key: str | None = None) -> None:
        """Queue a message for when the agent would otherwise stop."""
        _take(lambda: self._agent.follow_up(x, key))

    @workflow.signal
    def abort(self) -> None:
        """Interrupt the run."""
        self._agent.abort()

    @workflow.signal
    def approve(self, approval_id: str = "", remember: bool = False, by: str = "application") -> None:
        """Let a tool call run that waits for approval."""
        self._agent.approve(approval_id, remember=remember, by=by)

    @workflow.signal
    def deny(self, approval_id: str = "", reason: str = "", by: str = "application") -> None:
        """Deny a tool call that waits for approval; the model reads the reason."""
        self._agent.deny(approval_id, reason, by=by)

    @workflow.query
    def open_approvals(self) -> list[Json]:
        """The questions that wait for an answer, oldest first."""
        return self._agent.open_approvals

    @workflow.query
    def turns(self) -> int:
        """How many turns the run has taken."""
        return self._agent.turns


def _take(signal: Callable[[], None]) -> None:
    """Do what a signal says; a mistake of whoever sent it is logged, and ends no run."""
    try:
        signal()
    except (TypeError, ValueError, SteersmanError) as error:
        workflow.logger.warning("A signal was refused: %s", error)
