"""The plots of a report as inline SVG: no script, and every text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import TypeVar

from steersman.evals.report import AgentReport, Rate, Report, RunReport
from steersman.evals.table import describe_cost, describe_percent, describe_rate
from steersman.session.html_page import escape_text
from steersman.types.visible import sanitize_line

SERIES = 8
"""How many agents have a colour of their own; more use the same colours again."""

_WIDTH, _LEFT, _RIGHT, _TOP = 460, 126, 26, 12
_ROW, _BOTTOM = 18, 40
_PLOT = 200
_LONGEST_LABEL = 18
_MOST_DOTS = 2_000

T = TypeVar("T")


def plot_rates(report: Report) -> str:
    """The pass rate by scorer with its 95 % interval, for each agent."""
    rows: list[tuple[str, int, Rate]] = []
    for scorer in [None, *report.scorers]:
        for place, agent in enumerate(report.agents):
            rate = agent.rate if scorer is None else agent.pass_rate[scorer]
            rows.append(("all scorers" if scorer is None else scorer, place, rate))
    group = len(report.agents)
    height = _TOP + len(rows) * _ROW + (len(rows) // group) * 8 + _BOTTOM
    parts = [_draw_x_axis(height, [(share / 4, f"{share * 25} %") for share in range(5)])]
    y = _TOP + 4.0
    for place, (name, series, rate) in enumerate(rows):
        if place % group == 0:
            y += 8 if place else 0
            middle = y + group * _ROW / 2
            parts.append(_write(_LEFT - 10, middle + 4, _shorten(name), "label end"))
        at = y + _ROW / 2
        told = f"{report.agents[series].name}, {name}: {describe_rate(rate)}"
        parts.append(
            f'<g class="s{series % SERIES}">{_title(told)}'
            f'<line class="whisker" x1="{_x(rate.low)}" x2="{_x(rate.high)}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<circle cx="{_x(rate.mean)}" cy="{at:.1f}" r="5"/></g>'
        )
        y += _ROW
    return _draw(height, "Pass rate by scorer, with 95 % intervals", parts)


def plot_costs(report: Report) -> str:
    """What each run cost against its mean score; empty if no cost is known."""
    dots = [
        (run.cost, _average(run), place, run)
        for place, agent in enumerate(report.agents)
        for run in agent.runs
        if run.cost is not None
    ]
    if not dots:
        return ""
    most = max(cost for cost, *_ in dots) or 1.0
    height = _TOP + _PLOT + _BOTTOM
    parts = [_draw_x_axis(height, [(step / 4, describe_cost(most * step / 4)) for step in range(5)])]
    for step in range(5):
        y = _y(step / 4)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_write(_LEFT - 10, float(y) + 4, f"{step / 4:g}", "tick end"))
    for cost, score, place, run in _thin(dots):
        told = f"{run.case}, {report.agents[place].name}: {describe_cost(cost)}, score {score:.2f}"
        parts.append(
            f'<circle class="s{place % SERIES} dot" cx="{_x(cost / most)}" cy="{_y(score)}" r="4">'
            f"{_title(told)}</circle>"
        )
    return _draw(height, "Cost of each run (US dollars) against its mean score", parts)


def plot_times(report: Report) -> str:
    """How long the runs of each agent took: a dot for each, and a line at the median."""
    most = max((run.duration for agent in report.agents for run in agent.runs), default=0.0) or 1.0
    height = _TOP + len(report.agents) * 3 * _ROW + _BOTTOM
    parts = [_draw_x_axis(height, [(step / 4, f"{most * step / 4:.3g} s") for step in range(5)])]
    for place, agent in enumerate(report.agents):
        top = _TOP + place * 3 * _ROW
        parts.append(_write(_LEFT - 10, top + 1.5 * _ROW + 4, _shorten(agent.name), "label end"))
        parts.extend(_draw_times(agent, place, top, most))
    return _draw(height, "Duration of each run, with the median", parts)


def _draw_times(agent: AgentReport, place: int, top: float, most: float) -> Iterator[str]:
    for number, run in enumerate(_thin(agent.runs)):
        # Spread over the height of the row by number, so that equal times lie beside each other.
        y = top + _ROW * (0.6 + 1.8 * (number * 0.618034 % 1))
        told = f"{run.case}: {run.duration:.3g} s"
        yield (
            f'<circle class="s{place % SERIES} dot" cx="{_x(run.duration / most)}" cy="{y:.1f}" r="3">'
            f"{_title(told)}</circle>"
        )
    ordered = sorted(run.duration for run in agent.runs)
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    x = _x(median / most)
    yield (
        f'<line class="median" x1="{x}" x2="{x}" y1="{top + 4}" y2="{top + 3 * _ROW - 4}">'
        f"{_title(f'median: {median:.3g} s')}</line>"
    )


def list_agents(report: Report) -> str:
    """The legend: a colour for each agent."""
    items = [
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><circle class="s{place % SERIES}" cx="6" cy="6" r="5"/>'
        "</svg> "
        f"{escape_text(sanitize_line(agent.name))} <b>{describe_percent(agent.rate.mean)}</b></li>"
        for place, agent in enumerate(report.agents)
    ]
    return f'<ul class="legend">{"".join(items)}</ul>\n'


def _thin(values: Sequence[T]) -> Sequence[T]:
    """Fewer values where there are more than a plot can show."""
    step = max(1, len(values) // _MOST_DOTS)
    return values[::step]


def _average(run: RunReport) -> float:
    values = [score.value for score in run.scores.values()] or [float(run.passed)]
    return fsum(values) / len(values)


def _x(share: float) -> str:
    return f"{_LEFT + share * (_WIDTH - _LEFT - _RIGHT):.1f}"


def _y(share: float) -> str:
    return f"{_TOP + (1 - share) * _PLOT:.1f}"


def _draw_x_axis(height: float, ticks: Sequence[tuple[float, str]]) -> str:
    bottom = height - _BOTTOM
    parts: list[str] = []
    for share, text in ticks:
        parts.append(f'<line class="grid" x1="{_x(share)}" x2="{_x(share)}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(_write(float(_x(share)), bottom + 18, text, "tick middle"))
    return "".join(parts)


def _write(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape_text(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{escape_text(sanitize_line(text))}</title>"


def _shorten(text: str) -> str:
    line = sanitize_line(text)
    return line if len(line) <= _LONGEST_LABEL else line[: _LONGEST_LABEL - 1] + "…"


def _draw(height: float, told: str, parts: Sequence[str]) -> str:
    told = escape_text(told)
    return (
        f'<figure><figcaption>{told}</figcaption><svg class="plot" role="img" aria-label="{told}" '
        f'viewBox="0 0 {_WIDTH} {height:g}">{"".join(parts)}</svg></figure>\n'
    )
