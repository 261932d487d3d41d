"""Compares agents case by case, and says whether a difference is more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import msgspec

from steersman.evals.report import AgentReport, Comparison, Report, ReportError, Verdict
from steersman.evals.significance import ALPHA, compute_p_value


def compare_reports(report: Report, baseline: Report) -> list[Comparison]:
    """Each agent with the one of the same name in the baseline; with the only one, if both have one agent.

    Raises `ReportError` if no agent, or no case, is in both.
    """
    named = {agent.name: agent for agent in baseline.agents}
    alone = len(report.agents) == len(baseline.agents) == 1
    pairs = [(agent, baseline.agents[0] if alone else named.get(agent.name)) for agent in report.agents]
    found = [(agent, before) for agent, before in pairs if before is not None]
    if not found:
        raise ReportError(
            f"The baseline has the agents {', '.join(named)}, and none of {', '.join(a.name for a in report.agents)}."
        )
    scorers = [scorer for scorer in report.scorers if scorer in baseline.scorers]
    made = [_compare(agent, before, scorer) for agent, before in found for scorer in (None, *scorers)]
    if not any(one.cases for one in made):
        raise ReportError("The baseline has none of these cases. Compare reports of the same dataset.")
    return [msgspec.structs.replace(one, against="the baseline", baseline=True) for one in made]


def compare_agents(agent: AgentReport, other: AgentReport, scorers: Sequence[str]) -> list[Comparison]:
    """One agent with another: all scorers together, then each."""
    return [_compare(agent, other, scorer) for scorer in (None, *scorers)]


def _compare(agent: AgentReport, other: AgentReport, scorer: str | None) -> Comparison:
    old, new = other.group(scorer), agent.group(scorer)
    shared = [case for case in new if case in old]
    before, after = [old[case] for case in shared], [new[case] for case in shared]
    p_value = compute_p_value(before, after)
    low, high = _average(before), _average(after)
    verdict: Verdict = "no difference"
    if p_value < ALPHA:
        verdict = "better" if high > low else "worse"
    unshared = len(old) + len(new) - 2 * len(shared)
    return Comparison(agent.name, other.name, scorer or "passed", len(shared), unshared, low, high, p_value, verdict)


def _average(cases: Sequence[Sequence[float]]) -> float:
    return fsum(fsum(values) / len(values) for values in cases) / len(cases) if cases else 0.0
