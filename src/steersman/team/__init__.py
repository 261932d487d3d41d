"""Several agents: the work of a sub-agent counts for its parent, within its limits, its permissions and its cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.team.branches import BranchesResult, Branching, run_branches
    from steersman.team.choice import BranchOutcome, ChoiceResult, first_good, highest
    from steersman.team.handoff import Handoff
    from steersman.team.parallel import Judge, Parallel, PartAnswer, gather, judge
    from steersman.team.pattern import Part, Pattern, PatternOptions
    from steersman.team.sequence import Loop, Pipeline
    from steersman.team.supervisor import Supervisor
    from steersman.team.task import TaskKind, task_tool

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "branches": "BranchesResult Branching run_branches",
        "choice": "BranchOutcome ChoiceResult first_good highest",
        "handoff": "Handoff",
        "parallel": "Judge Parallel PartAnswer gather judge",
        "pattern": "Part Pattern PatternOptions",
        "sequence": "Loop Pipeline",
        "supervisor": "Supervisor",
        "task": "TaskKind task_tool",
    },
)

__all__ = [
    "BranchOutcome",
    "BranchesResult",
    "Branching",
    "ChoiceResult",
    "Handoff",
    "Judge",
    "Loop",
    "Parallel",
    "Part",
    "PartAnswer",
    "Pattern",
    "PatternOptions",
    "Pipeline",
    "Supervisor",
    "TaskKind",
    "first_good",
    "gather",
    "highest",
    "judge",
    "run_branches",
    "task_tool",
]
