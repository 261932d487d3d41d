"""Reports: as JSON and back, as a table without control sequences, as HTML without markup of others, and compared."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from steersman import Agent
from steersman.evals import Case, CaseRun, Dataset, Report, ReportError, Score, contains, evaluate
from steersman.evals import report as reports
from steersman.evals.table import render_failures
from steersman.session import MemoryStore
from steersman.testing import ScriptedModel, Turn, answer
from steersman.types import Request, Usage

HOSTILE = '\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e{{x}}'


async def explain(run: CaseRun) -> Score:
    return Score(0.25, passed=False, reason=HOSTILE)


async def make_report(answers: dict[str, str], name: str = "cases", store: MemoryStore | None = None) -> Report:
    """A report of cases that answer so."""

    def reply(request: Request) -> Turn:
        return answer(answers[request.messages[-1].text], usage=Usage(input=3, output=2, cost=0.002))

    agent = Agent(ScriptedModel(reply, repeat_last=True).model)
    cases = [Case(prompt, id=f"id-{prompt}") for prompt in answers]
    return await evaluate(
        {"agent": agent}, Dataset(cases, name=name), [contains("yes")], store=store, clock=lambda: 0.0
    )


async def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    report = await make_report({"a": "yes", "b": "no"})
    report.write_json(tmp_path / "deep" / "report.json")
    assert Report.load(tmp_path / "deep" / "report.json") == report
    assert report.to_json().endswith(b"}\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "Cannot read the report .*: No such file or directory."),
        ("{", "is no report of an evaluation: Input data was truncated."),
        ("[]", "is no report of an evaluation: Expected `object`, got `array`."),
        ('{"format": "2.0"}', "has the format 2.0, and this version reads 1.0; update Steersman."),
        ('{"format": "1.0"}', "is no report of an evaluation: Object missing required field `name`."),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text)
    with pytest.raises(ReportError, match=told):
        Report.load(tmp_path / "r.json")


async def test_a_baseline_is_compared_over_the_cases_that_both_have() -> None:
    many = {f"q{number}": "yes" for number in range(10)}
    before = await make_report(many)
    after = await make_report({**{name: "no" for name in many}, "new": "yes"})
    compared = after.compare(before)
    first = compared.comparisons[0]
    assert (first.cases, first.unshared, first.before, first.after) == (10, 1, 1.0, 0.0)
    assert (first.verdict, first.baseline, compared.worse) == ("worse", True, True)
    assert before.compare(after).comparisons[0].verdict == "better"
    same = before.compare(before)
    assert (same.comparisons[0].p_value, same.worse) == (1.0, False)
    little = (await make_report({"q0": "no", "q1": "yes"})).compare(before)
    assert (little.comparisons[0].verdict, little.worse) == ("no difference", False)


async def test_a_baseline_of_other_cases_or_agents_is_refused() -> None:
    report, other = await make_report({"a": "yes"}), await make_report({"b": "yes"})
    with pytest.raises(ReportError, match="The baseline has none of these cases"):
        report.compare(other)
    two = msgspec.structs.replace(other, agents=[msgspec.structs.replace(other.agents[0], name=n) for n in "xy"])
    with pytest.raises(ReportError, match="The baseline has the agents x, y, and none of agent"):
        report.compare(two)


async def make_hostile_report(store: MemoryStore) -> Report:
    """A report in which every text that comes from outside is hostile."""
    script = ScriptedModel(lambda request: answer(HOSTILE + request.messages[-1].text), repeat_last=True)
    report = await evaluate({"agent": Agent(script.model)}, [Case(HOSTILE)], [explain], store=store)
    [agent] = report.agents
    run = msgspec.structs.replace(agent.runs[0], case=HOSTILE, detail=HOSTILE)
    crashed = msgspec.structs.replace(run, crashed=HOSTILE, repeat=2)
    made = reports.summarize(HOSTILE, HOSTILE, [run, crashed], ["explain"])
    return msgspec.structs.replace(report, name=HOSTILE, agents=[made])


async def test_the_table_has_no_control_characters() -> None:
    report = await make_hostile_report(MemoryStore())
    lines = [*str(report).split("\n"), *render_failures(report)]
    assert [line for line in lines if not line.isprintable()] == []
    assert "␛]0;owned" in str(report)


class Tags(HTMLParser):
    """Collects the tags and attributes of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.names |= {f"href={value}" for name, value in attrs if name == "href" and not (value or "").startswith("#")}


async def test_hostile_text_becomes_no_markup_in_the_html_report() -> None:
    store = MemoryStore()
    found = Tags()
    found.feed((await make_hostile_report(store)).to_html(store))
    assert found.tags.isdisjoint({"script", "img", "iframe", "object", "form", "base"})
    assert not any(name.startswith(("on", "href=", "src")) for name in found.names)
    assert {"svg", "article", "table", "figure"} <= found.tags


async def test_the_html_report_has_its_transcripts() -> None:
    store = MemoryStore()
    report = await make_report({"what is it?": "yes it is"}, store=store)
    html = report.to_html(store)
    assert '<a href="#t1">id-what is it?</a>' in html
    assert '<article id="t1">' in html
    assert "yes it is" in html
    assert "yes it is" not in report.to_html()
    assert report.to_html(store) == html


async def test_a_transcript_that_is_gone_is_named() -> None:
    report = await make_report({"a": "yes"})
    assert "The transcript cannot be read: " in report.to_html(MemoryStore())


async def test_each_cell_of_a_table_has_the_head_that_a_narrow_screen_shows_before_it() -> None:
    report = await make_report({"a": "yes", "b": "no"})
    found: list[tuple[str | None, ...]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "tr":
                found.append(())
            elif tag == "td":
                found[-1] += (dict(attrs).get("data-head"),)

    Reader().feed(report.to_html())
    summary = ("Agent", "Model", "Passed", "Rate (95 %)", "Crashed", "Cost", "Judges", "Time", "contains")
    runs = ("Case", "#", "Result", "Why", "Turns", "Calls", "Cost", "Time")
    assert found == [(), summary, (), runs, runs]
