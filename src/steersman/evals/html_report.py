"""A report as one HTML file that needs nothing else: no script, no request, all text escaped, transcripts included.

A content security policy in the file forbids what the escaping already prevents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from steersman.evals.case_run import EVALUATED, find_record
from steersman.evals.plots import list_agents, plot_costs, plot_rates, plot_times
from steersman.evals.report import AgentReport, Report, RunReport
from steersman.evals.table import describe_comparison, describe_cost, describe_percent, describe_rate, explain_failure
from steersman.session.html_page import POLICY, TRANSCRIPT_STYLE, escape_text, render_entries
from steersman.session.opening import Where, open_store
from steersman.session.session import Session
from steersman.session.stores.store import SessionError, Store
from steersman.types.visible import sanitize_line

MAX_TRANSCRIPTS = 20_000_000
"""The most characters of transcripts in one file; what follows is named, and can be shown by the command."""

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1a; --soft: #5c5b57; --line: #8883; --page: #fcfcfb; --good: #1a7f37;
  --bad: #c62f2f; --c0: #2a78d6; --c1: #d9622b; --c2: #178f7a; --c3: #8a52c9; --c4: #b98a00; --c5: #c2417e;
  --c6: #4f7d1f; --c7: #6b6f76; }
@media (prefers-color-scheme: dark) { :root { --ink: #ecebe7; --soft: #a8a7a1; --page: #1a1a19; --good: #4cc06a;
  --bad: #ff7b72; --c0: #5a9cf0; --c1: #f08a55; --c2: #3fc1a8; --c3: #b58af0; --c4: #dcb13c; --c5: #e879ae;
  --c6: #8fbf57; --c7: #a5a9b0; } }
body { max-width: 76rem; background: var(--page); color: var(--ink); }
h2.part { font-size: 1.1rem; margin: 2rem 0 .5rem; opacity: 1; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td, th { overflow-wrap: normal; }
th.number { text-align: right; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.passed { color: var(--good); } .failed-run, .worse { color: var(--bad); } .better { color: var(--good); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; } figcaption { font-weight: 600; font-size: .9rem; margin-bottom: .3rem; }
svg.plot { width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg text.label { fill: var(--ink); } .end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--line); } .median { stroke: var(--ink); stroke-width: 2; }
.whisker { stroke: currentColor; stroke-width: 2; } svg g, svg circle { fill: currentColor; }
svg circle.dot { fill-opacity: .55; stroke: currentColor; stroke-opacity: .9; }
.s0 { color: var(--c0); } .s1 { color: var(--c1); } .s2 { color: var(--c2); } .s3 { color: var(--c3); }
.s4 { color: var(--c4); } .s5 { color: var(--c5); } .s6 { color: var(--c6); } .s7 { color: var(--c7); }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
.legend svg { width: .8rem; height: .8rem; vertical-align: -.05rem; }
body:has(article:target) main { display: none; }
article { display: none; border-top: 2px solid var(--line); margin-top: 2rem; padding-top: .5rem; }
article:target { display: block; }
article h2.part { margin-top: .5rem; }
a { color: var(--c0); }
@media (max-width: 44rem) {
  .rows thead { display: none; } .rows tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .rows td { display: flex; justify-content: space-between; gap: 1rem; padding: .1rem 0; border: 0; min-width: 0;
    overflow-wrap: anywhere; white-space: normal; text-align: right; }
  .rows td::before { content: attr(data-head); color: var(--soft); text-align: left; flex: none; max-width: 50%; }
  .rows td:empty { display: none; } .plots { grid-template-columns: minmax(0, 1fr); }
}
"""


class Cell(NamedTuple):
    """A cell of a table, as HTML, and its class."""

    html: str
    kind: str = ""


_RUN_HEADS = (
    *(Cell("Case"), Cell("#", "number"), Cell("Result"), Cell("Why")),
    *(Cell(head, "number") for head in ("Turns", "Calls", "Cost", "Time")),
)


def render_report(report: Report, store: Where | None = None) -> str:
    """The document of a report."""
    name = escape_text(sanitize_line(report.name)) or "An evaluation"
    opened = None if store is None else open_store(store)
    transcripts = {} if opened is None else _number_transcripts(report)
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n',
            '<meta name="viewport" content="width=device-width">\n<meta name="referrer" content="no-referrer">\n',
            f"<title>{name}</title>\n<style>{TRANSCRIPT_STYLE}{_STYLE}</style>\n</head>\n<body>\n",
            f'<main>\n<h1 id="top">{name}</h1>\n',
            *_render_summary(report),
            *_render_plots(report),
            *(piece for agent in report.agents for piece in _render_runs(agent, transcripts)),
            "</main>\n",
            *([] if opened is None else _render_transcripts(report, opened, transcripts)),
            "</body>\n</html>\n",
        ]
    )


def _render_summary(report: Report) -> Iterator[str]:
    times = f", {report.repeat} times each" if report.repeat > 1 else ""
    yield f"<p>{report.agents[0].cases} cases{times}. A case that crashed has failed and is counted.</p>\n"
    heads = ["Passed", "Rate (95 %)", "Crashed", "Cost", "Judges", "Time", *map(sanitize_line, report.scorers)]
    rows = [
        [
            Cell(escape_text(sanitize_line(agent.name))),
            Cell(escape_text(sanitize_line(agent.model))),
            Cell(f"{agent.passed} of {len(agent.runs)}", "number"),
            Cell(describe_rate(agent.rate), "number"),
            Cell(str(agent.crashed), "number"),
            Cell(describe_cost(agent.cost), "number"),
            Cell(describe_cost(agent.judge_cost), "number"),
            Cell(f"{agent.duration:.1f} s", "number"),
            *(Cell(describe_percent(agent.pass_rate[scorer].mean), "number") for scorer in report.scorers),
        ]
        for agent in report.agents
    ]
    yield from _render_table(
        [Cell("Agent"), Cell("Model"), *(Cell(escape_text(head), "number") for head in heads)], rows
    )
    for one in report.comparisons:
        kind = one.verdict if one.verdict != "no difference" else "same"
        scorer = "" if one.scorer == "passed" else f"{sanitize_line(one.scorer)}: "
        yield f'<p class="{kind}">{escape_text(scorer + describe_comparison(one))}</p>\n'


def _render_plots(report: Report) -> Iterator[str]:
    yield list_agents(report)
    yield f'<div class="plots">\n{plot_rates(report)}{plot_costs(report)}{plot_times(report)}</div>\n'


def _render_runs(agent: AgentReport, transcripts: Mapping[str, int]) -> Iterator[str]:
    yield f'<h2 class="part">{escape_text(sanitize_line(agent.name))}</h2>\n'
    yield from _render_table(_RUN_HEADS, [_render_run(run, transcripts.get(run.session)) for run in agent.runs])


def _render_run(run: RunReport, transcript: int | None) -> list[Cell]:
    case = escape_text(sanitize_line(run.case))
    return [
        Cell(case if transcript is None else f'<a href="#t{transcript}">{case}</a>'),
        Cell(str(run.repeat), "number"),
        Cell(
            "passed" if run.passed else "crashed" if run.crashed else "failed", "passed" if run.passed else "failed-run"
        ),
        Cell(escape_text(explain_failure(run))),
        Cell(str(run.turns), "number"),
        Cell(str(run.tool_calls), "number"),
        Cell(describe_cost(run.cost), "number"),
        Cell(f"{run.duration:.2f} s", "number"),
    ]


def _render_table(heads: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """A table; on a narrow screen, where its heads are not shown, each cell has a line with its head before it."""
    yield '<div class="scroll"><table class="rows"><thead><tr>'
    yield "".join(f"<th{_name_class(head.kind)}>{head.html}</th>" for head in heads)
    yield "</tr></thead><tbody>\n"
    for row in rows:
        cells = zip(heads, row, strict=True)
        yield "<tr>"
        yield "".join(f'<td{_name_class(cell.kind)} data-head="{head.html}">{cell.html}</td>' for head, cell in cells)
        yield "</tr>\n"
    yield "</tbody></table></div>\n"


def _name_class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _number_transcripts(report: Report) -> dict[str, int]:
    runs = [run for agent in report.agents for run in agent.runs]
    return {run.session: number for number, run in enumerate(runs, 1)}


def _render_transcripts(report: Report, store: Store, transcripts: Mapping[str, int]) -> Iterator[str]:
    size = 0
    for agent in report.agents:
        for run in agent.runs:
            text = _render_transcript(store, run) if size <= MAX_TRANSCRIPTS else _name_session(run)
            size += len(text)
            title = escape_text(sanitize_line(f"{run.case} #{run.repeat}, {agent.name}"))
            yield f'<article id="t{transcripts[run.session]}">\n<h2 class="part">{title}</h2>\n'
            yield f'<p><a href="#top">Back</a> · session {escape_text(sanitize_line(run.session))}</p>\n'
            yield from _render_scores(run)
            yield f"{text}</article>\n"


def _render_scores(run: RunReport) -> Iterator[str]:
    if run.crashed:
        yield f'<p class="failed-run">crashed: {escape_text(run.crashed)}</p>\n'
    for name, score in run.scores.items():
        kind, why = ("passed" if score.passed else "failed-run"), score.error or score.reason
        told = f"{sanitize_line(name)}: {score.value:.2f}{f', {why}' if why else ''}"
        yield f'<p class="{kind}">{escape_text(told)}</p>\n'


def _render_transcript(store: Store, run: RunReport) -> str:
    try:
        with Session.open(store, run.session, write=False) as session:
            leaf = (find_record(session, EVALUATED) or {}).get("leaf")
            return "".join(render_entries(session.entries(leaf))) if isinstance(leaf, str) else ""
    except (SessionError, ValueError) as error:
        return f'<p class="note">The transcript cannot be read: {escape_text(str(error))}</p>\n'


def _name_session(run: RunReport) -> str:
    return f'<p class="note">Left out for its size: steersman sessions show {escape_text(run.session)}</p>\n'
