"""The page in Chromium: prompt, stream, steer, queue, approve, deny, stop, continue, branch (server.md 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import expect
from tests.server.kit import Gate, make_agent, run_server
from tests.server.page.kit import Tab, needs_browser, open_page

from steersman import Agent, tool
from steersman.testing import ScriptedModel, answer, call, error, stall, thinking

pytestmark = [pytest.mark.real_time, needs_browser]
PRESS_WHEN_ONE_IS_LEFT = """() => {
  const cards = document.querySelector("#approvals");
  new MutationObserver((_, observer) => {
    if (cards.children.length !== 1) return;
    observer.disconnect();
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "y", bubbles: true }));
  }).observe(cards, { childList: true });
}"""


async def test_a_prompt_is_answered_and_the_session_is_listed() -> None:
    """Section 4: the conversation with thinking and Markdown; sessions with search."""
    script = answer(thinking("Let me count."), "# Result\n\nIt is **4**, see `sum`.\n\n- one\n- two", deltas=10)
    async with run_server(make_agent(script, "Again.")) as client, open_page(client) as tab:
        await expect(tab.find("#empty")).to_be_visible()
        await expect(tab.find("#inspector")).to_be_hidden()
        await tab.say("What is 2 + 2?")
        await tab.wait_until_idle()
        assert "token" not in tab.page.url
        await expect(tab.find(".row-user .bubble")).to_have_text("What is 2 + 2?")
        await expect(tab.answer.locator("strong")).to_have_text("4")
        await expect(tab.answer.locator("li")).to_have_text(["one", "two"])
        await expect(tab.find(".thinking")).not_to_have_attribute("open", "")
        await tab.find(".thinking summary").click()
        await expect(tab.find(".thinking .prose")).to_have_text("Let me count.")
        await expect(tab.find("#sessions a")).to_have_count(1)
        await tab.find("#search").fill("nothing like it")
        await expect(tab.find("#sessions a")).to_have_count(0)
        await tab.find("#search").fill("2 + 2")
        await expect(tab.find("#sessions a")).to_contain_text(["What is 2 + 2?"])
        await tab.say("And now?")
        await expect(tab.answer).to_contain_text("Again.")


async def test_a_run_is_steered_and_a_follow_up_is_queued() -> None:
    """Section 4: the box steers while it runs, and queues with Alt+Enter."""
    gate = Gate()
    script = (answer("Working. ", call("wait")), "Shorter.", "In French.")
    async with run_server(make_agent(*script, tools=[gate.make_tool()])) as client, open_page(client) as tab:
        await tab.say("Begin.")
        await gate.reached.wait()
        await tab.say("Make it shorter.")
        await tab.say("Then in French.", key="Alt+Enter")
        await expect(tab.find(".row-queued")).to_contain_text(["Will be heard next", "Queued for the end"])
        gate.opened.set()
        await tab.wait_until_idle()
        rows = tab.find(".row")
        await expect(rows).to_contain_text(
            ["Begin.", "Working.", "Make it shorter.", "Shorter.", "Then in French.", "In French."]
        )


async def test_a_question_is_answered_by_key_or_by_button() -> None:
    """Section 4: approvals as cards with the preview and y, n, always in this session; a denial has a reason."""
    asks = answer(call("deploy", target="live"))
    script = (asks, "Yes.", asks, "No.", asks, "No, since.", asks, "Always.", asks, "Not asked.")
    async with run_server(make_agent(*script)) as client, open_page(client) as tab:
        for key, status, said in (("y", "done", "Yes."), ("n", "denied", "No.")):
            await tab.say("Deploy.")
            await check_question(tab)
            await tab.page.keyboard.press(key)
            await check_decision(tab, status, said)
        await tab.say("Deploy.")
        await tab.find(".approval .reason").fill("not on a Friday")
        await tab.find(".answer-deny").click()
        await check_decision(tab, "denied", "No, since.")
        await tab.find(".tool").last.locator("summary").click()
        await expect(tab.find(".tool").last).to_contain_text("not on a Friday")
        await tab.say("Deploy.")
        await check_question(tab)
        await tab.page.keyboard.press("a")
        await check_decision(tab, "done", "Always.")
        await tab.say("Deploy.")
        await check_decision(tab, "done", "Not asked.")


async def test_a_question_that_takes_the_place_of_another_takes_no_answer_at_first() -> None:
    """A key that is meant for a question which is answered elsewhere just then is no yes to the next one."""
    asks = answer(call("deploy", target="staging"), call("deploy", target="live"))
    async with run_server(make_agent(asks, "Done.")) as client, open_page(client, hurry=False) as tab:
        await tab.say("Deploy.")
        cards, allow = tab.find(".approval"), tab.find(".answer-approve")
        await expect(cards).to_have_count(2)
        await expect(allow.first).to_be_enabled()
        await tab.find("#text").press("Escape")
        await tab.page.evaluate(PRESS_WHEN_ONE_IS_LEFT)
        staging = await cards.first.get_attribute("data-id")
        await client.act(tab.session, "deny", {"id": staging})
        await expect(cards).to_have_count(1)
        await expect(allow).to_be_enabled()
        _, shown = await client.send("GET", f"/sessions/{tab.session}")
        assert [one["args"] for one in shown["approvals"]] == [{"target": "live"}]
        await tab.page.keyboard.press("y")
        await check_decision(tab, "done", "Done.")


async def test_a_key_answers_no_question_that_is_out_of_sight() -> None:
    """Of several, only one with the focus is answered: people may be reading another than the first."""
    asks = answer(*[call("deploy", target=target) for target in ("live", "staging", "test", "local")])
    async with run_server(make_agent(asks, "Done.")) as client, open_page(client) as tab:
        await tab.say("Deploy.")
        cards = tab.find(".approval")
        await expect(cards).to_have_count(4)
        await expect(tab.find(".answer-approve").first).to_have_attribute("aria-disabled", "false")
        await tab.page.evaluate("document.activeElement.blur(), document.querySelector('#approvals').scrollBy(0, 9999)")
        await expect(cards.first.locator("header")).not_to_be_in_viewport()
        await tab.page.keyboard.press("y")
        await expect(cards.first).to_be_focused()
        await expect(cards.first.locator("header")).to_be_in_viewport()
        _, shown = await client.send("GET", f"/sessions/{tab.session}")
        assert [one["args"]["target"] for one in shown["approvals"]] == ["live", "staging", "test", "local"]
        await tab.page.evaluate("document.querySelector('#approvals').scrollBy(0, 9999)")
        await tab.page.keyboard.press("y")
        await expect(cards.first.locator("header")).to_be_in_viewport()
        await tab.page.keyboard.press("n")
        await expect(cards).to_have_count(3)
        await expect(cards.first).to_be_focused()


async def check_question(tab: Tab) -> None:
    """A question is shown, typing is no answer to it, and Escape leads from the box to it."""
    await expect(tab.find(".approval .preview")).to_contain_text('"target": "live"')
    await expect(tab.find(".answer-approve")).to_be_enabled()
    await expect(tab.find("#status")).to_have_text("needs your answer")
    await tab.find("#text").press("y")
    await expect(tab.find("#text")).to_have_value("y")
    await tab.find("#text").fill("")
    await tab.find("#text").press("Escape")
    await expect(tab.find(".approval")).to_be_focused()


async def check_decision(tab: Tab, status: str, said: str) -> None:
    """The call ended so, the model has said this, and no question is left."""
    await expect(tab.answer).to_contain_text(said)
    await tab.wait_until_idle()
    await expect(tab.find(".approval")).to_have_count(0)
    await expect(tab.find(".tool").last).to_have_attribute("data-status", status)


async def test_a_run_is_stopped_and_continued() -> None:
    """Section 4: Stop and Continue; an error is shown where it happened."""
    script = (stall("word word word"), error("invalid_request", "Half of "), "Whole.")
    async with run_server(make_agent(*script)) as client, open_page(client) as tab:
        await tab.say("Write.")
        await expect(tab.answer).to_contain_text("word word word")
        await tab.find("#stop").click()
        await tab.wait_until_idle()
        await expect(tab.find(".note")).to_have_text(["Stopped."])
        await tab.say("Once more.")
        await expect(tab.find(".note-error")).to_contain_text("invalid_request")
        await tab.find("#continue").click()
        await expect(tab.answer).to_contain_text("Whole.")
        await expect(tab.find("#continue")).to_be_hidden()


async def test_branches_are_made_and_looked_at() -> None:
    """Section 4: branch from any message, and the tree of branches as a picture to jump between."""
    async with run_server(make_agent("First.", "Second.", "Other way.", "Third.")) as client, open_page(client) as tab:
        await tab.say("One")
        await expect(tab.answer).to_contain_text("First.")
        await tab.say("Two")
        await expect(tab.answer).to_contain_text("Second.")
        await tab.find(".row-user").last.hover()
        await tab.find(".row-user").last.get_by_label("Change and branch here").click()
        await expect(tab.find("#text")).to_have_value("Two")
        await tab.say("Two, but otherwise")
        await expect(tab.answer).to_contain_text("Other way.")
        await expect(tab.find(".switch")).to_have_text("2 / 2")
        await expect(tab.find(".tree .point")).to_contain_text(["One", "First.", "Two", "Second.", "Two, but", "Other"])
        assert await tab.find(".tree-picture circle").count() == 6
        await tab.find(".tree .point").nth(2).click()
        await expect(tab.answer).to_contain_text("Second.")
        await expect(tab.find("#elsewhere")).to_be_visible()
        await tab.say("Go on here")
        await expect(tab.answer).to_contain_text("Third.")
        await tab.wait_until_idle()
        texts = await tab.find(".row-user .bubble").all_inner_texts()
        assert [text.strip() for text in texts] == ["One", "Two", "Go on here"]


async def test_settings_and_deleting() -> None:
    """Sections 4 and 6: what `configure` takes can be chosen, and a session is deleted after a question."""
    async with run_server(make_agent("Hi."), models=["scripted:echo", "openai:x"]) as client, open_page(client) as tab:
        await tab.say("Hello.")
        await tab.wait_until_idle()
        await tab.find("#settings").get_by_label("Thinking").select_option("high")
        await tab.find("#settings").get_by_label("Model").select_option("scripted:echo")
        await tab.page.reload()
        await expect(tab.find("#settings").get_by_label("Thinking")).to_have_value("high")
        await expect(tab.find("#settings").get_by_label("Model")).to_have_value("scripted:echo")
        await tab.find("#sessions li").hover()
        await tab.find("#sessions").get_by_label("Delete").click()
        await tab.find("#confirm").get_by_text("Delete", exact=True).click()
        await expect(tab.find("#sessions li")).to_have_count(0)
        await expect(tab.find("#empty")).to_be_visible()


async def test_output_of_tools_is_live_and_changes_are_coloured() -> None:
    """Section 4: tool calls with arguments, live output and diffs; timeline, usage and gauge beside them."""
    opened = asyncio.Event()

    @tool
    async def build(target: str, ctx: Any) -> Any:
        """Build."""
        ctx.update({"type": "output", "text": "\x1b[32mstep 1\x1b[0m done\n"})
        await opened.wait()
        from steersman import ToolOutput

        return ToolOutput("Edited.", {"diff": "--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-old line\n+new line\n"})

    script = ScriptedModel(answer(call("build", target="all")), "Built.")
    async with run_server(lambda: Agent(script.model, tools=[build])) as client, open_page(client) as tab:
        await tab.say("Build.")
        await expect(tab.find(".tool .output")).to_have_text("step 1 done\n")
        await expect(tab.find(".tool .ansi-green")).to_have_text("step 1")
        await expect(tab.find(".row-answer")).to_have_count(1)
        opened.set()
        await expect(tab.find(".diff-added")).to_contain_text("+new line")
        await expect(tab.find(".diff-removed")).to_contain_text("-old line")
        await tab.wait_until_idle()
        await expect(tab.find(".timeline .bar-model")).to_have_count(2)
        await expect(tab.find(".timeline .bar-tool")).to_have_count(1)
        await expect(tab.find(".timeline-words")).to_contain_text("2 turns, 1 tool call")


async def test_the_end_stays_in_view_when_something_takes_room_below_it() -> None:
    """Section 4: a card for a question moves the end away just as the browser tells of an earlier scroll."""
    script = (answer("Line.\n\n" * 60), answer("# One\n\n## Two", call("deploy", target="live")))
    async with run_server(make_agent(*script)) as client, open_page(client) as tab:
        await tab.page.set_viewport_size({"width": 1400, "height": 700})
        await tab.say("Much.")
        await tab.wait_until_idle()
        await tab.page.evaluate(
            """() => {
              document.querySelector("#composer").style.paddingTop = "260px";
              document.querySelector("#scroller").dispatchEvent(new Event("scroll"));
            }"""
        )
        await tab.say("Deploy.")
        await expect(tab.find(".approval")).to_contain_text("May it run deploy?")
        await expect(tab.find(".tool").last).to_be_in_viewport()
        await expect(tab.find("#to-end")).to_be_hidden()
        await expect(tab.find("#inspector")).to_contain_text("One Two")
        await tab.find("#scroller").press("Home")
        await expect(tab.find("#to-end")).to_be_visible()
