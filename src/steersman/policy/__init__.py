"""What a caller may decide about a run: hooks, policies, filters, limits, approval. A guard that raises denies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.policy.approval import Approval, Approved, fingerprint
    from steersman.policy.filters import InputFilter
    from steersman.policy.hooks import HookError, Hooks, Policy, PolicyView
    from steersman.policy.limits import ExecutionLimits, RepeatedCalls
    from steersman.policy.ready.audit import AuditLog
    from steersman.policy.ready.audit_chain import AuditAnchor, AuditError, AuditReport, verify_audit_log
    from steersman.policy.ready.budget import BudgetError, DailyBudget, Spent
    from steersman.policy.ready.content_filter import ContentFilter, JudgeError, ModelJudge
    from steersman.policy.ready.injection import InjectionGuard, fence_text
    from steersman.policy.ready.personal_data import find_personal_data
    from steersman.policy.ready.redaction import PiiRedaction
    from steersman.policy.ready.suspicion import Suspicion, score_text
    from steersman.policy.ready.tool_list import ToolAllowList
    from steersman.policy.verdicts import FilterVerdict, Inject, Pass, Reject, Rewrite, Skip, Stop, Verdict, Warn

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "approval": "Approval Approved fingerprint",
        "filters": "InputFilter",
        "hooks": "HookError Hooks Policy PolicyView",
        "limits": "ExecutionLimits RepeatedCalls",
        "ready.audit": "AuditLog",
        "ready.audit_chain": "AuditAnchor AuditError AuditReport verify_audit_log",
        "ready.budget": "BudgetError DailyBudget Spent",
        "ready.content_filter": "ContentFilter JudgeError ModelJudge",
        "ready.injection": "InjectionGuard fence_text",
        "ready.personal_data": "find_personal_data",
        "ready.redaction": "PiiRedaction",
        "ready.suspicion": "Suspicion score_text",
        "ready.tool_list": "ToolAllowList",
        "verdicts": "FilterVerdict Inject Pass Reject Rewrite Skip Stop Verdict Warn",
    },
)

__all__ = [
    "Approval",
    "Approved",
    "AuditAnchor",
    "AuditError",
    "AuditLog",
    "AuditReport",
    "BudgetError",
    "ContentFilter",
    "DailyBudget",
    "ExecutionLimits",
    "FilterVerdict",
    "HookError",
    "Hooks",
    "Inject",
    "InjectionGuard",
    "InputFilter",
    "JudgeError",
    "ModelJudge",
    "Pass",
    "PiiRedaction",
    "Policy",
    "PolicyView",
    "Reject",
    "RepeatedCalls",
    "Rewrite",
    "Skip",
    "Spent",
    "Stop",
    "Suspicion",
    "ToolAllowList",
    "Verdict",
    "Warn",
    "fence_text",
    "find_personal_data",
    "fingerprint",
    "score_text",
    "verify_audit_log",
]
