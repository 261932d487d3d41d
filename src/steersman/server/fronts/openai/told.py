"""What was told of one response: its events, encoded once for all who read them, with their numbers as places."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from steersman.server.fronts.openai.responses import Frame, Translator
from steersman.server.fronts.sse import encode_data

KEPT_BYTES: Final = 32 << 20
"""About the most bytes of responses that have ended; older ones are made again from the log."""
BEAT: Final = 10.0
"""Seconds between signs of life in a stream."""


class Told:
    """The events of one response, so far or to its end."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.frames: list[bytes] = []
        self.size = 0
        self.question: str | None = None
        self._news = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether the response is over."""
        return self.translator.ended

    def add(self, frames: Sequence[Frame]) -> None:
        """Add events and wake those who wait for them."""
        for frame in frames:
            data = b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), encode_data(frame))
            self.frames.append(data)
            self.size += len(data)
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Return once the response is over."""
        while not self.ended:
            await self._news.wait()

    async def read(self, after: int = -1) -> AsyncGenerator[bytes]:
        """The events after a number, as they come; the last one in any case. Comments are signs of life."""
        place = after + 1
        while True:
            if place < len(self.frames):
                yield self.frames[place]
                place += 1
            elif self.ended:
                if after + 1 > len(self.frames):
                    yield self.frames[-1]
                return
            else:
                try:
                    async with asyncio.timeout(BEAT):
                        await self._news.wait()
                except TimeoutError:
                    yield b": beat\n\n"


class Shelf:
    """The responses that are told now or were told lately, by id."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, Told] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()

    def find(self, id: str) -> Told | None:
        """A response that is kept here."""
        found = self._told.get(id)
        if found is not None and found.question is not None:
            del self._told[id]  # the run may have gone on since
            return None
        return found

    def add(self, id: str, told: Told) -> None:
        """Keep a response, and drop the oldest ones that have ended if there are too many."""
        self._told[id] = told
        size = sum(one.size for one in self._told.values())
        for old, one in list(self._told.items()):
            if size <= KEPT_BYTES:
                break
            if one.ended and old != id:
                size -= one.size
                del self._told[old]

    def run(self, work: Any) -> None:
        """Keep a task alive that tells a response."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
