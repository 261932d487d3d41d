"""The page and its connection: reload, cuts, restarts, two tabs, a slow network (server.md S1-S5, sections 3 and 4)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from playwright.async_api import expect
from tests.server.kit import Client, make_agent, run_server
from tests.server.page.kit import Proxy, needs_browser, open_browser, open_page, open_tab
from tests.server.test_restart import run_program

from steersman.server import Server
from steersman.testing import answer

pytestmark = [pytest.mark.real_time, needs_browser]
TEXT = " ".join(f"w{number}" for number in range(300))
# Whatever is shown of the answer is a beginning of it and never gets shorter, at every change of the document.
CHECK_EVERY_CHANGE = """
window.wrong = [];
window.longest = 0;
new MutationObserver(() => {
  const shown = document.querySelector(".row-answer .prose")?.textContent ?? "";
  if (!TEXT.startsWith(shown) || shown.length < window.longest) window.wrong.push(shown.slice(-60));
  if (document.querySelectorAll(".row-answer").length > 1) window.wrong.push("the answer is shown twice");
  window.longest = Math.max(window.longest, shown.length);
}).observe(document, { subtree: true, childList: true, characterData: true });
""".replace("TEXT", json.dumps(TEXT))


def make_writer() -> object:
    """An agent that writes for about two seconds."""
    return make_agent(answer(TEXT, deltas=300, pace=0.007))


async def test_no_character_is_lost_or_repeated_when_the_connection_is_cut() -> None:
    """S2: at every moment the page shows a beginning of the answer, over ten cuts in its middle."""
    proxy = Proxy()
    async with (
        run_server(make_writer()) as client,
        proxy.lead_to(client) as through,
        open_page(through, init=CHECK_EVERY_CHANGE) as tab,
    ):
        await tab.say("Write.")
        for word in range(20, 220, 20):
            await expect(tab.answer).to_contain_text(f"w{word} ")
            proxy.cut()
        await expect(tab.answer.locator(".prose")).to_have_text(TEXT)
        await tab.wait_until_idle()
        assert proxy.cuts == 10
        assert tab.positions[0] is None
        assert len(tab.positions) > 3  # a busy machine cuts some connections before they are made
        assert None not in tab.positions[1:]
        assert await tab.page.evaluate("() => window.wrong") == []
        assert await tab.page.evaluate("() => window.longest") == len(TEXT)


async def test_a_reload_in_mid_stream_goes_on() -> None:
    """S2, S3: the run belongs to the server, and the page that comes back gets the answer so far."""
    async with run_server(make_writer()) as client, open_page(client, init=CHECK_EVERY_CHANGE) as tab:
        await tab.say("Write.")
        await expect(tab.answer).to_contain_text("w40 ")
        await tab.page.reload()
        await expect(tab.answer).to_contain_text("w41 ")
        await expect(tab.find(".row-user")).to_have_count(1)
        await expect(tab.answer.locator(".prose")).to_have_text(TEXT)
        assert await tab.page.evaluate("() => window.wrong") == []


async def test_two_tabs_show_the_same() -> None:
    """S3, S4: what one tab says, the other one shows; each question is asked in both and answered once."""
    async with run_server() as client, open_browser() as browser:
        one, two = [await open_tab(browser, client) for _ in range(2)]
        await one.say("Deploy.")
        await expect(one.find(".approval")).to_be_visible()
        await two.show(one.session)
        await two.find(".answer-approve").click()
        for tab in (one, two):
            await expect(tab.find(".approval")).to_have_count(0)
            await expect(tab.answer).to_contain_text("Done.")
            await expect(tab.find(".row")).to_have_count(3)
        await two.say("And?")
        await expect(one.answer).to_contain_text("And again.")
        assert one.errors == two.errors == []


async def test_a_slow_network_only_takes_longer() -> None:
    """S4, S5: pieces come joined; a message that is sent counts once."""
    async with run_server(make_writer()) as client, open_page(client, init=CHECK_EVERY_CHANGE) as tab:
        protocol: Any = await tab.page.context.new_cdp_session(tab.page)
        slow = {"offline": False, "latency": 300, "downloadThroughput": 30_000, "uploadThroughput": 30_000}
        await protocol.send("Network.emulateNetworkConditions", slow)
        await tab.say("Write.")
        await expect(tab.find(".row-queued")).to_contain_text("Write.")  # at once, long before the server has it
        await expect(tab.answer.locator(".prose")).to_have_text(TEXT)
        await expect(tab.find(".row-user")).to_have_count(1)
        assert await tab.page.evaluate("() => window.wrong") == []


async def test_a_message_sent_while_the_server_is_away_counts_once(tmp_path: Path) -> None:
    """S5: it is sent again with its key until the server has it."""
    async with run_program(tmp_path, "ask") as (program, client), open_page(client) as tab:
        await tab.say("Deploy.")
        await tab.find(".answer-deny").click()
        await expect(tab.answer).to_contain_text("Done.")
        await program.end(signal.SIGKILL)
        await expect(tab.find("#banner")).to_contain_text("cannot be reached")
        await tab.say("Again.")
        await expect(tab.find(".row-queued")).to_contain_text("Waiting for the server")
        await program.start()
        await expect(tab.find(".approval")).to_be_visible()
        await expect(tab.find("#banner")).to_be_hidden()
        await expect(tab.find(".row-user")).to_have_count(2)


@pytest.mark.parametrize("path", [b"POST /sessions ", b"/prompt ", b"/branch "])
async def test_a_message_whose_receipt_is_lost_counts_once(path: bytes) -> None:
    """S5: the server has acted, the answer to the page is lost, and the same key is sent again."""
    proxy = Proxy()
    async with (
        run_server(make_agent("First.", "Second.", "Third.", "Fourth.")) as client,
        proxy.lead_to(client) as through,
        open_page(through) as tab,
    ):
        proxy.loses = path
        await tab.say("One")
        await expect(tab.answer).to_contain_text("First.")
        await tab.find(".row-answer").get_by_label("Branch from here").click()
        await tab.say("Two")
        await expect(tab.answer).to_contain_text("Second.")
        await tab.wait_until_idle()
        assert proxy.loses is None
        _, listed = await client.send("GET", "/sessions")
        _, tree = await client.send("GET", f"/sessions/{tab.session}/tree")
        assert len(listed["sessions"]) == 1
        assert [node["title"] for node in tree] == ["One", "First.", "Two", "Second."]


async def test_a_kill_in_mid_answer_is_told_and_the_run_is_continued(tmp_path: Path) -> None:
    """Section 3: the page goes on after a restart, and the run can be continued."""
    async with run_program(tmp_path, "slow") as (program, client), open_page(client) as tab:
        await tab.say("Count.")
        await expect(tab.answer).to_contain_text("ten. One two")
        await program.end(signal.SIGKILL)
        await expect(tab.find("#banner")).to_contain_text("Connecting again")
        await expect(tab.answer).to_contain_text("ten. One two")
        await program.start()
        await expect(tab.find(".cut")).to_be_visible()
        await tab.find("#continue").click()
        await expect(tab.find(".is-live")).to_contain_text("ten. One two")
        await expect(tab.find(".row-answer")).to_have_count(1)
        await tab.find("#stop").click()
        await tab.wait_until_idle()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_an_open_question_is_answered_after_a_restart(tmp_path: Path, number: signal.Signals) -> None:
    """S7: the question is still open, on a page that stayed and on one that comes."""
    async with run_program(tmp_path, "ask") as (program, client), open_page(client) as tab:
        await tab.say("Deploy.")
        await expect(tab.find(".approval")).to_be_visible()
        await program.end(number)
        await expect(tab.find("#banner")).to_contain_text("cannot be reached")
        await program.start()
        await expect(tab.find("#banner")).to_be_hidden()
        if number == signal.SIGTERM:
            await tab.page.reload()
        await tab.find(".answer-approve").click()
        await expect(tab.answer).to_contain_text("Done.")
        await expect(tab.find(".tool")).to_have_attribute("data-status", "done")
        await expect(tab.find(".approval")).to_have_count(0)


async def test_a_server_that_is_about_to_stop_is_told() -> None:
    """Section 3: while it drains no run starts, the page says so, and the message waits for the server to be back."""
    server = Server(make_agent("Hi.", "Ho."))
    runner = web.AppRunner(server.app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http:
        client = Client(http, f"http://127.0.0.1:{runner.addresses[0][1]}", server.token)
        async with open_page(client) as tab:
            await tab.say("Hello.")
            await expect(tab.answer).to_contain_text("Hi.")
            server.sessions.draining = True
            await tab.say("Again.")
            await expect(tab.find("#banner")).to_contain_text("about to stop")
            await expect(tab.find(".row-queued")).to_contain_text("Waiting for the server")
            server.sessions.draining = False
            await expect(tab.answer).to_contain_text("Ho.")
            await expect(tab.find("#banner")).to_be_hidden()
    await runner.cleanup()
