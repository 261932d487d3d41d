"""The files of a session on the page, in Chromium: listed in the panel, and downloaded by a link."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Download, expect
from tests.server.kit import make_agent, run_server
from tests.server.page.kit import needs_browser, open_page
from tests.server.test_artifacts import HOSTILE, keep

from steersman.testing import answer, call

pytestmark = [pytest.mark.real_time, needs_browser]


async def _read(download: Download) -> str:
    return await asyncio.to_thread((await download.path()).read_text, "utf-8")


async def test_files_are_listed_as_they_are_saved_and_can_be_downloaded() -> None:
    script = (
        answer(call("keep", name="a.csv", text="1,2", mime_type="text/csv")),
        "First.",
        answer(
            call("keep", name="a.csv", text="1,2,3", mime_type="text/csv"),
            call("keep", name=HOSTILE, text="<script>alert(1)</script>", mime_type="text/html"),
        ),
        "Second.",
    )
    async with run_server(make_agent(*script, tools=[keep])) as client, open_page(client) as tab:
        await tab.page.set_viewport_size({"width": 1400, "height": 900})
        await tab.say("Go.")
        await tab.wait_until_idle()
        files = tab.find("#artifacts li")
        await expect(files).to_have_text(["a.csv3 B · version 1"])
        await tab.say("Go on.")
        await tab.wait_until_idle()
        await expect(files).to_have_count(2)
        await expect(files.nth(0)).to_have_text("a.csv5 B · version 2earlier: 1 ")
        await expect(files.nth(1)).to_contain_text("<img src=x onerror=alert(1)>")
        for link, expected in (("a.csv", "1,2,3"), ("1", "1,2")):
            async with tab.page.expect_download() as started:
                await files.nth(0).get_by_text(link, exact=True).click()
            download = await started.value
            assert download.suggested_filename == "a.csv"
            assert await _read(download) == expected
        async with tab.page.expect_download() as started:
            await files.nth(1).locator("a").click()
        assert await _read(await started.value) == "<script>alert(1)</script>"
        assert tab.errors == []
