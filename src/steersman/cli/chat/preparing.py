"""Loads an embedded model for the chat, which may take minutes: the status line shows how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steersman.cli.setup.startup import StartedAgent
from steersman.cli.terminal.numbers import format_progress
from steersman.types.model import Model

if TYPE_CHECKING:
    from steersman.provider.local.weights.disk import Progress


class Preparation:
    """At most one model is being loaded; choosing another one, or interrupting, cancels it."""

    def __init__(self, started: StartedAgent, hint: Callable[[str], None], notice: Callable[[str], None]) -> None:
        self._started = started
        self._hint = hint
        self._notice = notice
        self._task: asyncio.Task[Any] | None = None

    @property
    def running(self) -> bool:
        """Whether a model is being loaded."""
        return self._task is not None

    async def load(self, model: Model) -> None:
        """Loads a model."""
        self.stop()
        self._task = task = asyncio.current_task()
        try:
            await self._started.prepare(model, self._show_progress)
        finally:
            if self._task is task:
                self._task = None
                self._hint("")

    def stop(self) -> None:
        """Cancels the loading."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            self._hint("")

    def _show_progress(self, news: Progress) -> None:
        if news.notice:
            self._notice(news.what)
        else:
            self._hint(f"{news.what} {format_progress(news.done, news.total)}")
