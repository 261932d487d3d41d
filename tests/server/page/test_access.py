"""The page for everyone: keyboard, roles, narrow and wide, light and dark; axe-core finds no serious problem."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, web
from playwright.async_api import expect
from tests.server.judging import JUDGES
from tests.server.kit import Client, make_agent, run_server
from tests.server.page.kit import Tab, needs_browser, open_page

from steersman.server import Server
from steersman.testing import answer, call, error, thinking

pytestmark = [pytest.mark.real_time, needs_browser]
TEXT = """# Result

A [link](https://example.org), `code` and **more**.

| Station | Country | Latitude | Longitude | Reference level | Constants | Measured |
|---|---|---|---|---|---|---|
| Heligoland | Germany | 54.17900 | 7.889000 | Normalhöhennull | Bundesamt | yesterday |

```py
x = 1  # y
```
"""
AXE = JUDGES / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = "async (options) => (await axe.run({ resultTypes: ['violations'], ...options })).violations"
COUNT_LINES_OF_CELLS = """() => [...document.querySelectorAll("td")].map((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].map((one) => one.top)).size;
})"""
# Only the contrast is another one in the other colours.
VARIANTS: list[tuple[int, Literal["light", "dark"], dict[str, Any]]] = [
    (1600, "light", {}),
    (1600, "dark", {"runOnly": ["color-contrast"]}),
    (380, "dark", {}),
    (380, "light", {"runOnly": ["color-contrast"]}),
]


async def check_with_axe(tab: Tab, where: str) -> None:
    """Fail if axe-core finds a serious or critical problem at 380 or 1,600 px, light or dark."""
    if not await tab.page.evaluate("() => typeof axe === 'object'"):
        await tab.page.evaluate(AXE.read_text("utf-8"))
    for width, scheme, options in VARIANTS:
        await tab.page.set_viewport_size({"width": width, "height": 800})
        await tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found: list[dict[str, Any]] = await tab.page.evaluate(RUN_AXE, options)
        bad = [
            (one["id"], [(node["target"], node["failureSummary"]) for node in one["nodes"]][:3])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert bad == [], f"{where}, {width} px, {scheme}"
        assert await tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: `make test` does it where npm is")
async def test_axe_finds_no_serious_problem() -> None:
    """Section 4: works at 380 px and 1,600 px, light and dark; nothing is wider than the window."""
    script = (answer(thinking("Hm."), TEXT, call("deploy", target="live")), error("invalid_request", "Half"))
    async with run_server(make_agent(*script)) as client, open_page(client) as tab:
        await expect(tab.find("#empty")).to_be_visible()
        await check_with_axe(tab, "empty")
        await tab.say("Go.")
        await expect(tab.find(".approval")).to_be_visible()
        await check_with_axe(tab, "with a question")
        await tab.find(".answer-approve").click()
        await expect(tab.find(".note-error")).to_be_visible()
        await tab.open_details()
        await tab.page.set_viewport_size({"width": 380, "height": 800})
        assert await tab.page.evaluate(COUNT_LINES_OF_CELLS) == [1] * 7
        await tab.find("#open-inspector").click()
        await expect(tab.find("#inspector")).to_be_visible()
        await check_with_axe(tab, "after an error")


async def test_the_page_works_by_keyboard_alone() -> None:
    """Section 4: by keyboard, in an order that makes sense; the switch of colours is kept."""
    async with run_server(make_agent("Hi.", "Ho.")) as client, open_page(client) as tab:
        press = tab.page.keyboard.press
        await press("Tab")
        await expect(tab.find(".skip")).to_be_focused()
        await press("Enter")
        await expect(tab.find("#text")).to_be_focused()
        await tab.find("#scroller").focus()
        await press("/")
        await expect(tab.find("#text")).to_be_focused()
        await tab.page.keyboard.type("Hello")
        await press("Shift+Enter")
        await tab.page.keyboard.type("there")
        await press("Enter")
        await expect(tab.answer).to_contain_text("Hi.")
        await expect(tab.find(".row-user .bubble")).to_have_text("Hello\nthere")
        await press("Control+k")
        await expect(tab.find("#search")).to_be_focused()
        await press("Tab")
        await expect(tab.find("#sessions a").first).to_be_focused()
        await press("Alt+n")
        await expect(tab.find("#empty")).to_be_visible()
        await expect(tab.find("#text")).to_be_focused()
        await press("Shift+Tab")
        await press("?")
        await expect(tab.find("#keys")).to_be_visible()
        await press("Escape")
        await expect(tab.find("#keys")).to_be_hidden()
        await tab.find("#theme").press("Enter")
        await tab.find("#theme").press("Enter")
        await tab.page.reload()
        await expect(tab.find("html")).to_have_attribute("data-theme", "dark")
        await tab.find("#sessions a").first.press("Enter")
        await expect(tab.answer).to_contain_text("Hi.")
        await expect(tab.find("#feed")).to_have_attribute("role", "feed")


async def test_the_page_works_below_another_path() -> None:
    """Section 3: `Server(...).app` is mounted elsewhere, and all addresses of the page are relative."""
    server = Server(make_agent("Hi."))
    outer = web.Application()
    outer.add_subapp("/agents/", server.app)
    runner = web.AppRunner(outer, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession() as http:
        client = Client(http, f"http://127.0.0.1:{runner.addresses[0][1]}/agents", server.token)
        async with open_page(client) as tab:
            await tab.say("Hello.")
            await expect(tab.answer).to_contain_text("Hi.")
            assert {urlsplit(url).path.split("/")[1] for url in tab.requests} == {"agents"}
    await runner.cleanup()
