"""The report of an evaluation in a real browser: hostile text stays text, and each case leads to its transcript."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.page.kit import SLOWLY, current_browser, needs_browser
from tests.server.page.test_hostile import CORPUS

from steersman import Agent
from steersman.evals import Case, CaseRun, Dataset, Score, evaluate
from steersman.session import MemoryStore
from steersman.testing import ScriptedModel, Turn, answer
from steersman.types import Request, Usage

pytestmark = [pytest.mark.real_time, needs_browser]
FOUND = """() => [...document.querySelectorAll("*")].flatMap((one) => [
  ...("script iframe object embed base link form img template video audio".split(" ").includes(one.localName)
    ? [one.localName] : []),
  ...[...one.attributes].filter(({ name, value }) => name.startsWith("on") || (name === "href" && value[0] !== "#"))
    .map(({ name }) => name),
])"""


def quote(run: CaseRun) -> Score:
    return Score(0.5, passed=False, reason=run.case.expected)


async def write_report(path: Path) -> int:
    """A report whose prompts, answers, reasons and names are the corpus; the number of its runs."""
    store = MemoryStore()
    texts = [text for text in CORPUS if text.strip()]

    def reply(request: Request) -> Turn:
        return answer(request.messages[-1].text, usage=Usage(input=1, output=1, cost=0.01))

    agent = Agent(ScriptedModel(reply, repeat_last=True).model)
    cases = [Case(text, expected=text) for text in texts]
    report = await evaluate({"<b>x": agent, "y": agent.variant()}, Dataset(cases, name=CORPUS[0]), [quote], store=store)
    report.write_html(path, store)
    return 2 * len(cases)


async def test_the_report_shows_plots_and_leads_to_transcripts(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    runs = await write_report(file)
    context = await current_browser.get().new_context()
    try:
        page = await context.new_page()
        page.set_default_timeout(SLOWLY)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(file.as_uri())
        assert await page.evaluate(FOUND) == []
        assert await page.evaluate("() => window.hacked") is None
        assert asked == [file.as_uri()]
        assert await page.locator("svg.plot").count() == 3
        assert await page.locator("svg.plot >> nth=1").locator("circle").count() == runs
        assert await page.locator("article:visible").count() == 0
        await page.locator("tbody a").nth(0).click()
        shown = page.locator("article:visible")
        assert await shown.count() == 1
        assert CORPUS[0][:40] in await shown.inner_text()
        assert not await page.locator("main").is_visible()
        await shown.get_by_text("Back").click()
        assert await page.locator("main").is_visible()
    finally:
        await context.close()
