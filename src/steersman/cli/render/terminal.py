"""A run on a terminal nobody types into: finished lines go up into the scrollback, the live part is drawn below them.

Every draw is one write that hides the cursor, does its work and shows it again, so that however the program ends, the
terminal is left as it was. Writing is done in a thread: a terminal that stands still does not hold up the run. What was
drawn first is written first, whoever writes it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steersman.cli.render.show import Show
from steersman.tools.threads import in_thread
from steersman.types.result import RunResult

if TYPE_CHECKING:
    from steersman.events.stream import EventStream

_SECONDS_BETWEEN_DRAWS = 0.05
PATIENCE = 2.0
"""How many seconds a terminal that takes nothing may hold up the end."""
_NARROWEST = 20
_LIVE_ROWS = 16

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
# A live line that is wider than the terminal thinks must not wrap, or the next draw would begin a line too low.
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_ERASE_BELOW = "\r\x1b[J"


def wants_color(fd: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a descriptor is a terminal that should be sent colours."""
    if environment.get("NO_COLOR") or environment.get("TERM", "") in ("", "dumb"):
        return False
    return os.isatty(fd)


async def show_on_terminal(show: Show, stream: EventStream, *, fd: int | None = None) -> RunResult:
    """Watch a run on a terminal until it is over, and give its result."""
    return await TerminalView(show, fd=fd).show(stream)


class TerminalView:
    """A `Show` drawn on a terminal, from the beginning to the end of an `async with`."""

    def __init__(self, show: Show, *, fd: int | None = None, patience: float = PATIENCE) -> None:
        self._show = show
        self._fd = sys.stdout.fileno() if fd is None else fd
        self._patience = patience
        self._rows = 0
        self._paused = 0
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._drawn: deque[str] = deque()
        self._gone = False
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._draw_again_and_again())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._settle()
        self._begin(self._frame(with_live=False))
        await self._settle()

    async def show(self, stream: EventStream) -> RunResult:
        """Watch a run until it is over, and give its result."""
        async with self:
            async for event in stream:
                self._show.hear(event)
            return await stream

    @contextmanager
    def paused(self) -> Generator[None]:
        """Take the live part away while somebody is asked something on the same terminal."""
        self._paused += 1
        # With a draw that its thread has not come to yet: behind the question it would be drawn over it.
        self._drawn.append(self._frame(with_live=False))
        self._write_drawn()
        try:
            yield
        finally:
            self._paused -= 1

    async def _draw_again_and_again(self) -> None:
        while not self._gone:
            if self._show.changed and not self._paused:
                await self._write(self._frame(with_live=True))
            await asyncio.sleep(_SECONDS_BETWEEN_DRAWS)

    def _frame(self, *, with_live: bool) -> str:
        """What to write so that the screen shows the run as it stands."""
        width, height = self._size()
        finished = self._show.finished(width)
        live = self._show.live(width, min(_LIVE_ROWS, height - 1)) if with_live else ""
        if not finished and not live and not self._rows:
            return ""
        up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        erase = f"{up}{_ERASE_BELOW}" if self._rows else ""
        self._rows = live.count("\n") + 1 if live else 0
        below = f"{_NO_WRAP}{live}{_WRAP}" if live else ""
        return f"{_HIDE_CURSOR}{erase}{finished}{below}{_SHOW_CURSOR}"

    def _size(self) -> tuple[int, int]:
        # Asked anew each time: the window may have been resized since.
        try:
            columns, rows = os.get_terminal_size(self._fd)
        except OSError:
            return 80, 24
        return max(_NARROWEST, columns or 80), max(2, rows or 24)

    async def _write(self, text: str) -> None:
        self._begin(text)
        if self._writing is not None:
            # A draw that is cancelled is written to its end all the same: half of it would leave the cursor hidden.
            await asyncio.shield(self._writing)

    def _begin(self, text: str) -> None:
        if text and not self._gone:
            self._drawn.append(text)
            self._writing = asyncio.ensure_future(in_thread(self._write_drawn))

    async def _settle(self) -> None:
        """Wait for the write under way; a terminal that takes nothing is given up, and the thread left behind."""
        if self._writing is None or self._writing.done():
            return
        await asyncio.wait([self._writing], timeout=self._patience)
        if not self._writing.done():
            self._gone = True
            self._writing.cancel()
            await asyncio.wait([self._writing])

    def _write_drawn(self) -> None:
        with self._lock:
            try:
                while self._drawn:
                    data = memoryview(self._drawn.popleft().encode("utf-8", "backslashreplace"))
                    # Not once it was given up: the number of its descriptor may be somebody else's by now.
                    while data and not self._gone:
                        data = data[os.write(self._fd, data) :]
            except OSError:
                # The terminal is gone. The run is told by the signal that comes with it.
                self._gone = True
