"""Several agents: the work of a sub-agent counts for its parent, within its limits, its permissions and its cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.team.branches import BranchesResult, Branching, run_branches
    from steersman.team.choice import BranchOutcome, ChoiceResult, first_good, highest
    from steersman.team.task import TaskKind, task_tool

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "branches": "BranchesResult Branching run_branches",
        "choice": "BranchOutcome ChoiceResult first_good highest",
        "task": "TaskKind task_tool",
    },
)

__all__ = [
    "BranchOutcome",
    "BranchesResult",
    "Branching",
    "ChoiceResult",
    "TaskKind",
    "first_good",
    "highest",
    "run_branches",
    "task_tool",
]
