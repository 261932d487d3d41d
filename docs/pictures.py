"""Takes the pictures of the server's page and of an evaluation's report, in a real Chromium on real sessions.

python -m docs.pictures            the pictures of the documents, into docs/images
python -m docs.pictures FOLDER     every scene at 380, 800 and 1600 pixels, light and dark, to look at
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aiohttp import web
from docs.eval_scene import write_report
from docs.scenes import LONG_TEXT, PROGRAM, REPORT, Answers, make_long_messages
from playwright.async_api import Browser, Page, async_playwright

from steersman import Agent, Approval, tool
from steersman.server import Server
from steersman.session.session import Session
from steersman.testing import ScriptedModel
from steersman.tools import builtin_tools

IMAGES = Path(__file__).parent / "images"
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
Scheme = Literal["light", "dark"]
QUESTION = "The tide page shows nothing late in the evening. Find out why and fix it."


@dataclass
class Stage:
    """A server with a page on it; `folder` is the workspace of its agent."""

    page: Page
    server: Server
    runner: web.AppRunner
    folder: Path

    async def say(self, text: str) -> None:
        """Write into the box and send it."""
        await self.page.fill("#text", text)
        await self.page.press("#text", "Enter")

    async def wait_for(self, selector: str, *, state: Literal["visible", "hidden"] = "visible") -> None:
        """Wait until an element is there, or is not."""
        await self.page.locator(selector).last.wait_for(state=state)


async def show_empty(_: Stage) -> None:
    """Before the first message."""


async def show_stream(stage: Stage) -> None:
    """An answer that is being written, while thinking and a first step are above it."""
    await stage.say(QUESTION)
    await stage.wait_for("text=Heligoland")


async def show_tool(stage: Stage) -> None:
    """A command that runs, with its output so far, and a message that waits to be heard."""
    await stage.say(QUESTION)
    await stage.wait_for(".tool .output")
    await stage.say("Also look at the station of Brest.")
    await stage.wait_for(".row-queued")


async def show_question(stage: Stage) -> None:
    """A change that waits for approval."""
    await stage.say(QUESTION)
    await stage.wait_for(".approval")


async def show_error(stage: Stage) -> None:
    """A provider that failed after some words."""
    await show_question(stage)
    await stage.page.press(".approval", "y")
    await stage.wait_for(".note-error")
    await stage.wait_for("#stop", state="hidden")


async def show_branches(stage: Stage) -> None:
    """A finished run, and two ways to go on."""
    await show_question(stage)
    await stage.page.press(".approval", "y")
    await stage.wait_for("text=move the station table")
    await stage.say("Thanks! Where should the stations live?")
    await stage.wait_for("text=stations.toml")
    await stage.wait_for("#stop", state="hidden")
    await stage.page.locator(".row-user").last.hover()
    await stage.page.get_by_label("Change and branch here").last.click()
    await stage.say("Use a table instead?")
    await stage.wait_for(".switch")
    await stage.wait_for("#stop", state="hidden")
    if await stage.page.locator("#run-choice").is_visible():
        await stage.page.select_option("#run-choice", label="Run 1")


async def show_restart(stage: Stage) -> None:
    """A server that is away, and a message that waits for it."""
    await show_question(stage)
    await stage.page.press(".approval", "y")
    await stage.wait_for("text=move the station table")
    await stage.wait_for("#stop", state="hidden")
    await stage.runner.cleanup()
    await stage.say("Yes, please.")
    await stage.wait_for("#banner")
    await stage.wait_for("text=Waiting for the server")


async def show_draining(stage: Stage) -> None:
    """A server that is about to stop."""
    stage.server.sessions.draining = True
    await stage.say("Hello?")
    await stage.wait_for("#banner")


async def show_wide(stage: Stage) -> None:
    """Long lines of code, a wide table, long output, long words."""
    await stage.say("Show me " + "a-word-that-does-not-end" * 8)
    await stage.wait_for("text=The end of it")
    await stage.wait_for("#stop", state="hidden")
    await stage.page.evaluate("() => document.querySelectorAll('.tool').forEach((one) => (one.open = true))")


async def show_long(stage: Stage) -> None:
    """A session of 10,000 messages."""
    [id] = [one["id"] for one in (await read_json(stage, "sessions"))["sessions"]]
    await stage.page.goto(f"{stage.page.url.partition('#')[0]}#/{id}")
    await stage.wait_for("text=Answer 5000")


async def read_json(stage: Stage, path: str) -> Any:
    """What the API says."""
    return await stage.page.evaluate("async (path) => (await fetch(path)).json()", path)


SCENES: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "empty": show_empty,
    "stream": show_stream,
    "tool": show_tool,
    "question": show_question,
    "error": show_error,
    "branches": show_branches,
    "restart": show_restart,
    "draining": show_draining,
    "wide": show_wide,
    "long": show_long,
}
# The pictures of the documents: name, scene, width, height, colours.
PICTURES: list[tuple[str, str, int, int, Scheme]] = [
    ("page-question", "question", 1500, 900, "light"),
    ("page-branches", "branches", 1500, 900, "dark"),
    ("page-narrow", "question", 380, 760, "dark"),
    ("page-error", "error", 1600, 760, "light"),
    ("page-restart", "restart", 1280, 640, "light"),
]


def make_agent(scene: str, folder: Path) -> Agent:
    """An agent that plays a scene."""
    script = ScriptedModel(*Answers.of(scene), context_window=64_000, id="helmsman-2")
    if scene != "tool":
        tools = [*builtin_tools(folder, sandbox="off"), print_much]
        return Agent(script.model, tools=tools, approval=Approval("ask", allow=["print_much"]))
    return Agent(script.model, tools=[run_slowly])


@tool(name="bash")
async def run_slowly(command: str, ctx: Any) -> str:
    """Run a command."""
    for station in ("Cuxhaven", "Heligoland", "Brest"):
        ctx.update(
            {"type": "output", "text": f"\x1b[32mPASS\x1b[0m tests/test_{station.lower()}.py \x1b[2m0.4 s\x1b[0m\n"}
        )
    await asyncio.Event().wait()
    return command


@tool
def print_much(lines: int) -> str:
    """Print much."""
    return "\n".join(f"{line:4} \x1b[33mwarning\x1b[0m tides.py:{line}: " + LONG_TEXT for line in range(lines))


@asynccontextmanager
async def open_stage(browser: Browser, scene: str, size: tuple[int, int], scheme: Scheme) -> AsyncGenerator[Stage]:
    """A server that plays a scene, and a page that is logged in."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "tides"
        folder.mkdir()
        (folder / "tides.py").write_text(PROGRAM, "utf-8")
        store = Path(name) / "sessions.db"
        if scene == "long":
            await asyncio.to_thread(write_long_session, store)
        server = Server(lambda: make_agent(scene, folder), store=store, models=["helmsman-2", "helmsman-2-small"])
        runner = web.AppRunner(server.app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
        )
        page = await context.new_page()
        try:
            await page.goto(f"http://127.0.0.1:{runner.addresses[0][1]}/?token={server.token}")
            stage = Stage(page, server, runner, folder)
            await SCENES[scene](stage)
            yield stage
        finally:
            await context.close()
            await runner.cleanup()


def write_long_session(path: Path) -> None:
    """A session with 10,000 messages."""
    with Session.create(path) as session:
        agent = Agent(ScriptedModel("**Answer 5000**\n\n" + REPORT).model, session=session)
        agent.context.messages = make_long_messages(10_000)
        agent.run_sync("Question 5000")
        assert session.flush()


async def take_pictures(folder: Path | None) -> None:
    """Take the pictures of the documents, or every scene in every form."""
    async with async_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        browser = await playwright.chromium.launch(executable_path=BROWSER, args=flags)
        if folder is None:
            for name, scene, width, height, scheme in PICTURES:
                async with open_stage(browser, scene, (width, height), scheme) as stage:
                    await stage.page.screenshot(path=IMAGES / f"{name}.png")
            page = await browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
            await page.set_content(await write_report())
            await page.screenshot(path=IMAGES / "eval-report.png")
        else:
            await take_every_form(browser, folder)
        await browser.close()


async def take_every_form(browser: Browser, folder: Path) -> None:
    """Every scene at three widths, light and dark."""
    schemes: list[Scheme] = ["light", "dark"]
    for scene in SCENES:
        async with open_stage(browser, scene, (1600, 900), "light") as stage:
            for width in (380, 800, 1600):
                await stage.page.set_viewport_size({"width": width, "height": 780 if width == 380 else 900})
                for scheme in schemes:
                    await stage.page.emulate_media(color_scheme=scheme)
                    await stage.page.wait_for_timeout(100)  # the page lays itself out again
                    await stage.page.screenshot(path=folder / f"{scene}-{width}-{scheme}.png")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    (target or IMAGES).mkdir(parents=True, exist_ok=True)
    asyncio.run(take_pictures(target))
