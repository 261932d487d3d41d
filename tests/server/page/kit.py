"""What the tests of the page share: a real Chromium, a page that is logged in, and a proxy that cuts connections."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Locator, Page, Request, async_playwright, expect
from tests.server.kit import Client

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
]
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs Chromium: install chromium-headless-shell or chromium"
)
SLOWLY = 20_000
"""The most milliseconds that a condition may take on a busy machine."""

HURRY = 'sessionStorage.setItem("steersman.pace", "0.05");'
"""The page waits a twentieth as long before it connects again or reads the list of sessions."""

expect.set_options(timeout=SLOWLY)
current_browser: ContextVar[Browser] = ContextVar("current_browser")
"""The browser of the test that runs; conftest.py sets it."""


@dataclass
class Tab:
    """A tab of the browser with the page in it; `errors` are mistakes of its scripts, `requests` what it asked for.

    `positions` are those that it named when it connected to the events of a session.
    """

    page: Page
    client: Client
    errors: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])
    positions: list[str | None] = field(default_factory=list["str | None"])

    def find(self, selector: str) -> Locator:
        """The elements of a selector."""
        return self.page.locator(selector)

    @property
    def answer(self) -> Locator:
        """The last answer."""
        return self.find(".row-answer").last

    @property
    def session(self) -> str:
        """The id of the session that is shown."""
        return self.page.url.partition("#/")[2]

    def note_request(self, request: Request) -> None:
        """Note what the page asks for."""
        self.requests.append(request.url)
        if request.url.partition("?")[0].endswith("/events"):
            self.positions.append(request.headers.get("last-event-id"))

    async def log_in(self) -> None:
        """Open the page with the token."""
        await self.page.goto(f"{self.client.url}/?token={self.client.token}")

    async def show(self, session: str) -> None:
        """Show a session."""
        await self.page.goto(f"{self.client.url}/#/{session}")

    async def say(self, text: str, key: str = "Enter") -> None:
        """Write something into the box and send it."""
        await self.find("#text").fill(text)
        await self.find("#text").press(key)

    async def wait_until_idle(self) -> None:
        """Return once no run goes on."""
        await expect(self.find("#stop")).to_be_hidden()
        await expect(self.find(".is-live, .row-queued")).to_have_count(0)

    async def open_details(self) -> None:
        """Open all that can be opened, with clicks, as a person does: what only a script opened may close again."""
        await self.page.evaluate(
            "() => document.querySelectorAll('details:not([open]) > summary').forEach((one) => one.click())"
        )


@asynccontextmanager
async def open_browser() -> AsyncGenerator[Browser]:
    """A browser, for all tests of a worker: to start one takes longer than most tests."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=BROWSER, args=FLAGS, timeout=4 * SLOWLY)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_page(client: Client, *, width: int = 1280, init: str = "", hurry: bool = True) -> AsyncGenerator[Tab]:
    """A new tab that is logged in; in the end the scripts of the page must have made no mistake.

    `init` is a script that runs before those of the page. Without `hurry` the page waits as it does for people.
    """
    context = await current_browser.get().new_context(viewport={"width": width, "height": 800})
    try:
        page = await context.new_page()
        page.set_default_timeout(SLOWLY)
        tab = Tab(page, client)
        page.on("pageerror", lambda error: tab.errors.append(str(error)))
        page.on("request", tab.note_request)
        await page.add_init_script((HURRY if hurry else "") + init)
        await tab.log_in()
        yield tab
        assert tab.errors == []
        origin = urlsplit(client.url).netloc
        assert [url for url in tab.requests if urlsplit(url).netloc != origin and not url.startswith("data:")] == []
    finally:
        await context.close()


class Proxy:
    """A way to a server that can be cut: all its connections break, in the middle of whatever they carry."""

    def __init__(self) -> None:
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts = 0
        self.loses: bytes | None = None
        """Lose the answer to the next request with this in its first line: the server acts, the page does not know."""

    def cut(self) -> None:
        """Break all connections."""
        self.cuts += 1
        for writer in list(self._open):
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to the server and back."""
        task: Any = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        lost = asyncio.Event()
        ways = [
            asyncio.ensure_future(self._copy_requests(reader, far_writer, lost)),
            asyncio.ensure_future(self._copy_answers(far_reader, writer, lost)),
        ]
        await asyncio.wait(ways)
        self._open -= {writer, far_writer}

    async def _copy_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        async for data in _read(reader):
            if self.loses is not None and self.loses in data.partition(b"\r\n")[0]:
                self.loses = None
                lost.set()
            writer.write(data)
        writer.close()

    async def _copy_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        async for data in _read(reader):
            if lost.is_set():
                # With its head it has arrived for the browser, which would else send the request again by itself.
                writer.write(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
                break
            writer.write(data)
        writer.close()

    @asynccontextmanager
    async def lead_to(self, client: Client) -> AsyncGenerator[Client]:
        """A client of the same server by way of this proxy."""
        self._port = int(client.url.rpartition(":")[2])
        server = await asyncio.start_server(self.carry, "127.0.0.1", 0)
        try:
            yield Client(client.http, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", client.token)
        finally:
            server.close()
            self.cut()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=10)


async def _read(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    try:
        while data := await reader.read(1 << 16):
            yield data
    except OSError:
        pass  # it was cut
