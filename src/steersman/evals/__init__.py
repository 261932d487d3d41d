"""Evaluations: cases in, a report out. Every run of a case is a session; a crashed case is a failed case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.evals.case import Case, Dataset, DatasetError
    from steersman.evals.case_run import CaseRun
    from steersman.evals.evaluation import Progress, evaluate, evaluate_sync
    from steersman.evals.judging import JudgeFailed, Judgement, judge
    from steersman.evals.report import (
        AgentReport,
        Comparison,
        Rate,
        Report,
        ReportError,
        RunReport,
        ScoreResult,
    )
    from steersman.evals.scorers import (
        Score,
        Scorer,
        calls,
        contains,
        equals,
        json_schema,
        matches,
        max_cost,
        max_duration,
        never_calls,
    )
    from steersman.evals.tapes import Cassettes

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "case": "Case Dataset DatasetError",
        "case_run": "CaseRun",
        "evaluation": "Progress evaluate evaluate_sync",
        "judging": "JudgeFailed Judgement judge",
        "report": "AgentReport Comparison Rate Report ReportError RunReport ScoreResult",
        "scorers": "Score Scorer calls contains equals json_schema matches max_cost max_duration never_calls",
        "tapes": "Cassettes",
    },
)

__all__ = [
    "AgentReport",
    "Case",
    "CaseRun",
    "Cassettes",
    "Comparison",
    "Dataset",
    "DatasetError",
    "JudgeFailed",
    "Judgement",
    "Progress",
    "Rate",
    "Report",
    "ReportError",
    "RunReport",
    "Score",
    "ScoreResult",
    "Scorer",
    "calls",
    "contains",
    "equals",
    "evaluate",
    "evaluate_sync",
    "json_schema",
    "judge",
    "matches",
    "max_cost",
    "max_duration",
    "never_calls",
]
