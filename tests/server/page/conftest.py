"""One Chromium for all tests of the page in a worker, and one event loop, since its driver belongs to a loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
from playwright.async_api import Browser
from tests.server.page.kit import current_browser, open_browser


@pytest.fixture(scope="package", autouse=True)
def chromium() -> Iterator[tuple[asyncio.Runner, Browser]]:
    """The loop of these tests and the browser on it; each tab is a context of its own, without cookies of others."""
    with asyncio.Runner() as runner:
        opening = open_browser()
        browser = runner.run(opening.__aenter__())
        try:
            yield runner, browser
        finally:
            runner.run(opening.__aexit__(None, None, None))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Run an `async def` test on the loop of the browser; it leaves no task and no tab behind."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return
    running: Any = pyfuncitem.funcargs["chromium"]
    runner: asyncio.Runner = running[0]
    browser: Browser = running[1]

    async def run_and_look(*args: Any, **kwargs: Any) -> None:
        current_browser.set(browser)
        before = asyncio.all_tasks()
        await function(*args, **kwargs)
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert not left, f"Tasks left when the test was over: {left!r}"
        assert browser.contexts == [], "Tabs left when the test was over."

    @functools.wraps(function)
    def test(*args: Any, **kwargs: Any) -> None:
        try:
            runner.run(run_and_look(*args, **kwargs), context=copy_context())
        finally:
            runner.run(_close_tabs(browser))

    pyfuncitem.obj = test


async def _close_tabs(browser: Browser) -> None:
    for context in browser.contexts:
        await context.close()
