"""The page and its connection: reload, cuts, restarts, two tabs, a slow network (server.md S1-S5, sections 3 and 4)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from playwright.async_api import expect
from tests.server.kit import Client, make_agent, run_server
from tests.server.page.kit import Proxy, needs_browser, open_page
from tests.server.program import run_program

from steersman import Agent
from steersman.server import Server
from steersman.testing import ScriptedModel, answer
from steersman.types import Model, Request, StreamEvent, StreamOptions, TextDelta

pytestmark = [pytest.mark.real_time, needs_browser]
WORDS = 120
TEXT = " ".join(f"w{number}" for number in range(WORDS))
# Whatever is shown of the answer is a beginning of it and never gets shorter, at every change of the document.
CHECK_EVERY_CHANGE = """
window.wrong = [];
window.longest = 0;
new MutationObserver(() => {
  const shown = document.querySelector(".row-answer .prose")?.textContent ?? "";
  if (!TEXT.startsWith(shown) || shown.length < window.longest) window.wrong.push(shown.slice(-60));
  if (document.querySelectorAll(".row-answer").length > 1) window.wrong.push("the answer is shown twice");
  window.queued ||= document.querySelector(".row-queued")?.textContent;
  window.longest = Math.max(window.longest, shown.length);
}).observe(document, { subtree: true, childList: true, characterData: true });
""".replace("TEXT", json.dumps(TEXT))


# How often each message was shown at the same time, at most.
COUNT_EVERY_CHANGE = """
window.most = {};
new MutationObserver(() => {
  const shown = [...document.querySelectorAll(".bubble")].map((one) => one.textContent);
  for (const text of shown)
    window.most[text] = Math.max(window.most[text] ?? 0, shown.filter((other) => other === text).length);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""


class Pen:
    """A model that writes as far as the test lets it."""

    def __init__(self) -> None:
        self._script = ScriptedModel(answer(TEXT, deltas=WORDS))
        self._most = 0
        self._more = asyncio.Event()

    def let_write(self, words: int = WORDS) -> None:
        """Let it write until it has written so many words."""
        self._most = words
        self._more.set()

    def make_agent(self) -> Agent:
        """An agent with this model."""
        return Agent(self._script.model, stream_fn=self._stream)

    async def _stream(self, model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[StreamEvent]:
        written = 0
        async for event in self._script(model, request, options):
            if isinstance(event, TextDelta):
                while written >= self._most:
                    self._more.clear()
                    await self._more.wait()
                written += 1
                await asyncio.sleep(0.002)  # a model writes a word at a time
            yield event


async def test_no_character_is_lost_or_repeated_when_the_connection_is_cut() -> None:
    """S2: at every moment the page shows a beginning of the answer, over ten cuts in its middle."""
    proxy = Proxy()
    pen = Pen()
    async with (
        run_server(pen.make_agent) as client,
        proxy.lead_to(client) as through,
        open_page(through, init=CHECK_EVERY_CHANGE) as tab,
    ):
        await tab.say("Write.")
        for word in range(0, 100, 10):
            pen.let_write(word + 10)
            await expect(tab.answer).to_contain_text(f"w{word} ")
            proxy.cut()  # while the words after it are on their way
        pen.let_write()
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
    pen = Pen()
    async with run_server(pen.make_agent) as client, open_page(client, init=CHECK_EVERY_CHANGE) as tab:
        await tab.say("Write.")
        pen.let_write(60)
        await expect(tab.answer).to_contain_text("w40 ")
        await tab.page.reload()
        await expect(tab.answer).to_contain_text("w41 ")
        await expect(tab.find(".row-user")).to_have_count(1)
        pen.let_write()
        await expect(tab.answer.locator(".prose")).to_have_text(TEXT)
        assert await tab.page.evaluate("() => window.wrong") == []


async def test_two_tabs_show_the_same() -> None:
    """S3, S4: what one tab says, the other one shows; each question is asked in both and answered once."""
    async with run_server() as client, open_page(client) as one, open_page(client) as two:
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


async def test_a_slow_network_only_takes_longer() -> None:
    """S4, S5: pieces come joined; a message that is sent counts once."""
    pen = Pen()
    pen.let_write()
    async with run_server(pen.make_agent) as client, open_page(client, init=CHECK_EVERY_CHANGE) as tab:
        protocol: Any = await tab.page.context.new_cdp_session(tab.page)
        slow = {"offline": False, "latency": 200, "downloadThroughput": 60_000, "uploadThroughput": 30_000}
        await protocol.send("Network.emulateNetworkConditions", slow)
        await tab.say("Write.")
        await expect(tab.answer.locator(".prose")).to_have_text(TEXT)
        await expect(tab.find(".row-user")).to_have_count(1)
        assert await tab.page.evaluate("() => window.queued") == "Write.Sending…"  # long before the server had it
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


async def test_a_message_whose_receipt_is_lost_counts_once() -> None:
    """S5: the server has acted, the answer to the page is lost, and the same key is sent again."""
    proxy = Proxy()
    async with (
        run_server(make_agent("First.", "Second.", "Third.", "Fourth.", "Fifth.", "Sixth.")) as client,
        proxy.lead_to(client) as through,
        open_page(through, init=COUNT_EVERY_CHANGE) as tab,
    ):
        proxy.loses = b"POST /sessions "
        await tab.say("One")
        await expect(tab.answer).to_contain_text("First.")
        await tab.wait_until_idle()
        assert proxy.loses is None
        proxy.loses = b"/prompt "
        await tab.say("Two")
        await expect(tab.answer).to_contain_text("Second.")
        await tab.wait_until_idle()
        assert proxy.loses is None
        proxy.loses = b"/branch "
        await tab.answer.get_by_label("Branch from here").click()
        await tab.say("Three")
        await expect(tab.answer).to_contain_text("Third.")
        await tab.wait_until_idle()
        assert proxy.loses is None
        assert await tab.page.evaluate("() => window.most") == {"One": 1, "Two": 1, "Three": 1}
        _, listed = await client.send("GET", "/sessions")
        _, tree = await client.send("GET", f"/sessions/{tab.session}/tree")
        assert len(listed["sessions"]) == 1
        assert [node["title"] for node in tree] == ["One", "First.", "Two", "Second.", "Three", "Third."]


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


async def test_an_open_question_is_answered_after_restarts(tmp_path: Path) -> None:
    """S7: the question is still open after a kill and after a stop, on a page that stayed and on one that comes."""
    async with run_program(tmp_path, "ask") as (program, client), open_page(client) as tab:
        await tab.say("Deploy.")
        await expect(tab.find(".approval")).to_be_visible()
        for number in (signal.SIGKILL, signal.SIGTERM):
            await program.end(number)
            await expect(tab.find("#banner")).to_contain_text("cannot be reached")
            await program.start()
            await expect(tab.find("#banner")).to_be_hidden()
            await expect(tab.find(".approval")).to_be_visible()
            if number == signal.SIGTERM:
                await tab.page.reload()
            await tab.find(".answer-approve").click()
            await expect(tab.answer).to_contain_text("Done.")
            await expect(tab.find(".tool").last).to_have_attribute("data-status", "done")
            await expect(tab.find(".approval")).to_have_count(0)
            if number == signal.SIGKILL:
                await tab.say("Again.")
                await expect(tab.find(".approval")).to_be_visible()


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
