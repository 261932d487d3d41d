"""The loop as a workflow of Temporal: each model call and each tool call is an activity.

The workflow decides, and activities do: nothing here asks a model, runs a tool or opens a session in workflow code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily
from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.durable.workflow_agent.agent_workflow import AgentInput, AgentWorkflow
    from steersman.durable.workflow_agent.plugin import AgentPlugin
    from steersman.durable.workflow_agent.values import AgentResult, Carried
    from steersman.durable.workflow_agent.workflow_run import WorkflowAgent


def _explain(error: ModuleNotFoundError) -> Exception | None:
    if (error.name or "").partition(".")[0] == "temporalio":
        return MissingExtra("steersman.durable needs temporalio: pip install 'steersman[temporal]'.")
    return None


__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "agent_workflow": "AgentInput AgentWorkflow",
        "plugin": "AgentPlugin",
        "values": "AgentResult Carried",
        "workflow_run": "WorkflowAgent",
    },
    explain=_explain,
)

__all__ = ["AgentInput", "AgentPlugin", "AgentResult", "AgentWorkflow", "Carried", "WorkflowAgent"]
