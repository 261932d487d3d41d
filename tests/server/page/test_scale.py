"""A session of 10,000 messages: first paint, and scrolling that never jumps (server.md 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.server.kit import make_agent, run_server
from tests.server.page.kit import Tab, needs_browser, open_page

from steersman import Agent
from steersman.session.session import Session
from steersman.testing import ScriptedModel

pytestmark = [pytest.mark.real_time, needs_browser]
MESSAGES = 10_000
# When the last message was painted, in milliseconds since the navigation.
WATCH_FOR_THE_LAST = """
new MutationObserver((_, observer) => {
  const last = document.querySelector("#feed .row:last-child");
  if (!last?.textContent.includes("Answer 5000")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => (window.painted = performance.now())));
}).observe(document, { subtree: true, childList: true });
"""
# Scroll up through 40 screens, a frame at a time; the row that is read must move exactly as far as was scrolled.
SCROLL_UP = """async () => {
  const scroller = document.querySelector("#scroller");
  const nextFrame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const jumps = [];
  let longest = 0;
  for (let step = 0; step < 120; step++) {
    const middle = document.elementFromPoint(scroller.getBoundingClientRect().x + 400, 350).closest(".row");
    const before = middle?.getBoundingClientRect().top;
    const since = performance.now();
    scroller.scrollTop -= 250;
    await nextFrame();
    longest = Math.max(longest, performance.now() - since);
    if (middle?.isConnected) jumps.push(Math.abs(middle.getBoundingClientRect().top - before - 250));
  }
  return { jumps, longest, rows: document.querySelectorAll(".row").length };
}"""


def make_messages() -> list[dict[str, Any]]:
    """Questions and answers of different lengths, with lists and code in some."""
    found: list[dict[str, Any]] = []
    for number in range(1, MESSAGES // 2):
        more = "\n\n```python\nprint('x')\n```\n" * (number % 7 == 0) + "\n- point\n- point" * (number % 5 == 0)
        text = f"**Answer {number}**. " + "Some words of it. " * (number % 23) + more
        found.append({"role": "user", "content": f"Question {number}"})
        found.append({"role": "assistant", "content": text})
    return found


def write_session(path: Path) -> str:
    """A session with many messages; returns its id."""
    with Session.create(path) as session:
        agent = Agent(ScriptedModel("Answer 5000").model, session=session)
        agent.context.messages = make_messages()
        agent.run_sync("Question 5000")
        assert session.flush()
        return session.id


async def test_ten_thousand_messages(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """The last message is painted soon, few rows are in the document, and what is read stays in its place."""
    path = tmp_path / "sessions.db"
    id = await asyncio.to_thread(write_session, path)
    async with (
        run_server(make_agent("Hello."), store=path) as client,
        open_page(client, init=WATCH_FOR_THE_LAST) as tab,
    ):
        await tab.show(id)
        await tab.page.reload()
        await expect(tab.answer).to_contain_text("Answer 5000")
        painted: float = await tab.page.evaluate("() => window.painted")
        record_property("first_paint_ms", painted)
        print(f"first paint of {MESSAGES} messages after {painted:.0f} ms")
        assert painted < 5_000  # a second on an idle machine
        await check_scrolling(tab)


async def check_scrolling(tab: Tab) -> None:
    """Scroll up, to the beginning, to the end, and go on talking."""
    moved: dict[str, Any] = await tab.page.evaluate(SCROLL_UP)
    print(f"longest frame while scrolling {moved['longest']:.0f} ms, {moved['rows']} rows in the document")
    assert len(moved["jumps"]) > 100
    assert max(moved["jumps"]) <= 2
    assert moved["rows"] < 80
    await tab.find("#scroller").press("Home")
    await expect(tab.find(".row").first).to_contain_text("Question 1")
    await expect(tab.find("#to-end")).to_be_visible()
    await tab.find("#to-end").click()
    await expect(tab.answer).to_contain_text("Answer 5000")
    await tab.say("More.")
    await expect(tab.answer).to_contain_text("Hello.")
    await expect(tab.answer).to_be_in_viewport()
