"""What a caller may decide about a run: hooks, policies, filters, limits, approval. A guard that raises denies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.policy.approval import Approval, Approved, fingerprint
    from steersman.policy.filters import InputFilter
    from steersman.policy.hooks import HookError, Hooks, Policy, PolicyView
    from steersman.policy.limits import ExecutionLimits
    from steersman.policy.repetition import RepeatedCalls
    from steersman.policy.verdicts import FilterVerdict, Inject, Pass, Reject, Rewrite, Skip, Stop, Verdict, Warn

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "approval": "Approval Approved fingerprint",
        "filters": "InputFilter",
        "hooks": "HookError Hooks Policy PolicyView",
        "limits": "ExecutionLimits",
        "repetition": "RepeatedCalls",
        "verdicts": "FilterVerdict Inject Pass Reject Rewrite Skip Stop Verdict Warn",
    },
)

__all__ = [
    "Approval",
    "Approved",
    "ExecutionLimits",
    "FilterVerdict",
    "HookError",
    "Hooks",
    "Inject",
    "InputFilter",
    "Pass",
    "Policy",
    "PolicyView",
    "Reject",
    "RepeatedCalls",
    "Rewrite",
    "Skip",
    "Stop",
    "Verdict",
    "Warn",
    "fingerprint",
]
