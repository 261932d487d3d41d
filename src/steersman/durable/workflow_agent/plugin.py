"""`AgentPlugin`: gives a Temporal worker agents, their activities, and a sandbox that lets the loop through."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from temporalio.plugin import SimplePlugin
from temporalio.worker import ReplayerConfig, WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import ActivityConfig

from steersman.agent.agent import Agent
from steersman.durable.workflow_agent.activities import AgentActivities
from steersman.durable.workflow_agent.agent_workflow import AgentWorkflow
from steersman.durable.workflow_agent.registry import Registered, register
from steersman.session.opening import Where, open_store

PASSED_THROUGH = ("aiohttp", "attr", "frozenlist", "idna", "msgspec", "multidict", "propcache", "steersman", "yarl")
"""The modules that a workflow shares with its worker: the loop and what it imports have no state of their own there."""

_FAILURES = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, TypeError, ValueError)
_STICKY = timedelta(seconds=1)


class AgentPlugin(SimplePlugin):
    """Agents by name for the workflows of a worker, with the store of their sessions.

        Worker(client, task_queue="agents", plugins=[AgentPlugin({"coder": agent}, store=PostgresStore(...))])

    `model`, `tools` and `session` are options of the activities that ask the model, run tools and record the end of a
    run: retry policies, timeouts, task queues. `tools` is by the name of the tool, with `"*"` for all others. A tool
    that is not idempotent is tried once, whatever its retry policy says.

    The worker also gets `AgentWorkflow`. A failure in workflow code fails the workflow, so that no task is tried for
    ever. A workflow of a worker that died goes on elsewhere after 1 s, unless the worker says otherwise.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent[Any]],
        store: Where,
        *,
        model: ActivityConfig | None = None,
        tools: Mapping[str, ActivityConfig] | None = None,
        session: ActivityConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        options = model or ActivityConfig(), tools or {}, session or ActivityConfig()
        register({name: Registered(agent, *options) for name, agent in agents.items()})
        activities = AgentActivities(dict(agents), open_store(store), clock)
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  # its activities are bare callables
            "steersman.AgentPlugin",
            activities=activities.list(),
            workflows=[AgentWorkflow],
            workflow_runner=_let_through,
            workflow_failure_exception_types=[Exception],
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Let another worker take a workflow soon."""
        config = super().configure_worker(config)
        given = cast(dict[str, Any], config)
        if given.get("sticky_queue_schedule_to_start_timeout") == timedelta(seconds=10):  # Temporal's default
            given["sticky_queue_schedule_to_start_timeout"] = _STICKY
        return config

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Let a replay report nondeterminism: where that fails a workflow, a replay never ends."""
        config = super().configure_replayer(config)
        config["workflow_failure_exception_types"] = _FAILURES
        return config


def _let_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner or SandboxedWorkflowRunner()
    return replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*PASSED_THROUGH))
