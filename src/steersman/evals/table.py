"""A report as a table of plain text. Names come from outside, so all of it is safe for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steersman.evals.report import AgentReport, Comparison, Rate, Report, RunReport
from steersman.types.visible import sanitize_line

_LONGEST_NAME = 40
_LONGEST_REASON = 160


def render_table(report: Report) -> Iterator[str]:
    """The lines of a report: the agents, what their scorers say, and the comparisons."""
    times = f", {report.repeat} times each" if report.repeat > 1 else ""
    cases = report.agents[0].cases
    yield f"{_shorten(report.name)}: {cases} case{'s' if cases != 1 else ''}{times}"
    heads = ["AGENT", "PASSED", "RATE (95 %)", "CRASHED", "COST", "JUDGES", "TIME", *map(_shorten, report.scorers)]
    rows = [heads, *(_list_cells(agent, report.scorers) for agent in report.agents)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()
    yield from (describe_comparison(one) for one in report.comparisons if one.scorer == "passed")


def _list_cells(agent: AgentReport, scorers: Sequence[str]) -> list[str]:
    return [
        _shorten(agent.name),
        f"{agent.passed}/{len(agent.runs)}",
        describe_rate(agent.rate),
        str(agent.crashed),
        describe_cost(agent.cost),
        describe_cost(agent.judge_cost),
        f"{agent.duration:.1f} s",
        *(describe_percent(agent.pass_rate[scorer].mean) for scorer in scorers),
    ]


def render_failures(report: Report, most: int = 20) -> Iterator[str]:
    """The runs that failed, one line each with its session, and how many more there are."""
    failed = [(agent, run) for agent in report.agents for run in agent.runs if not run.passed]
    for _, run in failed[:most]:
        yield f"{sanitize_line(run.session)}  {explain_failure(run)}"
    if len(failed) > most:
        yield f"... and {len(failed) - most} more."


def explain_failure(run: RunReport) -> str:
    """Why a run failed, on one line; empty if it passed."""
    if run.crashed:
        return _cut(f"crashed: {run.crashed}")
    failed = [(name, score) for name, score in run.scores.items() if not score.passed]
    return _cut("; ".join(f"{name}: {_describe_score(score.error, score.reason)}" for name, score in failed))


def _describe_score(error: str, reason: str) -> str:
    return f"the scorer failed: {error}" if error else reason or "failed"


def describe_comparison(one: Comparison) -> str:
    """A comparison in one sentence."""
    verdict = {"better": "better", "worse": "WORSE", "no difference": "no difference beyond noise"}[one.verdict]
    unshared = f", {one.unshared} not in both" if one.unshared else ""
    return (
        f"{_shorten(one.agent)} against {_shorten(one.against)}: {describe_percent(one.after)} instead of "
        f"{describe_percent(one.before)}: {verdict} (p = {one.p_value:.3g}, {one.cases} cases{unshared})"
    )


def describe_rate(rate: Rate) -> str:
    """A rate with its interval."""
    return f"{describe_percent(rate.mean)} ({describe_percent(rate.low)} to {describe_percent(rate.high)})"


def describe_percent(share: float) -> str:
    """A share as a percentage."""
    return f"{share * 100:.1f} %"


def describe_cost(cost: float | None) -> str:
    """US dollars; `-` where no cost is known."""
    return "-" if cost is None else f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"


def _shorten(text: str) -> str:
    line = sanitize_line(text)
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"


def _cut(text: str) -> str:
    line = sanitize_line(" ".join(text.split()))
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"
