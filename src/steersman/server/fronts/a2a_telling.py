"""What is told of one A2A task, for those who wait for its end and those who read its updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from steersman.server.fronts.a2a import Frame, Translator

_BEAT = 10.0


class Telling:
    """What is told of one task: its updates, and the task as it is."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.frames: list[Frame] = []
        self.is_over = False
        self._news = asyncio.Event()

    def add(self, frames: list[Frame]) -> None:
        """Add updates and wake those who wait for them."""
        self.frames += frames
        self.is_over = self.is_over or self.translator.ended
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Return once the task has ended or waits for input."""
        while not self.is_over:
            await self._news.wait()

    async def read(self, place: int) -> AsyncGenerator[Frame | None]:
        """The updates from a place on; `None` is a sign of life."""
        while True:
            if place < len(self.frames):
                yield self.frames[place]
                place += 1
            elif self.is_over:
                return
            else:
                try:
                    async with asyncio.timeout(_BEAT):
                        await self._news.wait()
                except TimeoutError:
                    yield None
