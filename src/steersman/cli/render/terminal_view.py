"""Draws a run on a terminal without input: finished lines go to the scrollback, the live part is redrawn below.

Every draw is one write that hides the cursor and shows it again, so the terminal is restored however the program ends.
A thread writes, so that a stalled terminal does not block the run. Draws are written in their order.
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

from steersman.cli.render.show import RunDisplay
from steersman.tools.threads import call_in_thread
from steersman.types.result import RunResult

if TYPE_CHECKING:
    from steersman.events.stream import EventStream

_SECONDS_BETWEEN_DRAWS = 0.05
PATIENCE = 2.0
"""How many seconds a stalled terminal may delay the end."""
_NARROWEST = 20
_LIVE_ROWS = 16

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
# A live line that the terminal measures wider must not wrap, or the next draw would start a line too low.
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_ERASE_BELOW = "\r\x1b[J"


def wants_color(fd: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a file descriptor is a terminal that should get colours."""
    if environment.get("NO_COLOR") or environment.get("TERM", "") in ("", "dumb"):
        return False
    return os.isatty(fd)


async def show_on_terminal(show: RunDisplay, stream: EventStream, *, fd: int | None = None) -> RunResult:
    """Draws a run on a terminal until it ends, and returns its result."""
    return await TerminalView(show, fd=fd).show(stream)


class TerminalView:
    """Draws a `RunDisplay` on a terminal, within `async with`."""

    def __init__(self, show: RunDisplay, *, fd: int | None = None, patience: float = PATIENCE) -> None:
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
        self._task = asyncio.get_running_loop().create_task(self._draw_repeatedly())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._wait_for_write()
        await self.settle()
        self._start_writing()
        await self._wait_for_write()

    async def show(self, stream: EventStream) -> RunResult:
        """Draws a run until it ends, and returns its result."""
        async with self:
            async for event in stream:
                self._show.show_event(event)
            return await stream

    async def settle(self) -> None:
        """Renders all that is finished, step by step; other tasks run between the steps."""
        self._drawn.append(self._render_frame(with_live=False))
        while self._show.page.waiting and not self._gone:
            await asyncio.sleep(0)
            self._drawn.append(self._render_frame(with_live=False))

    @contextmanager
    def pause(self) -> Generator[None]:
        """Removes the live part while a question is open on the same terminal; `settle` comes before it."""
        self._paused += 1
        # Also writes a draw that still waits for the thread; later it would overwrite the question.
        self._drawn.append(self._render_frame(with_live=False))
        self._write_queued()
        try:
            yield
        finally:
            self._paused -= 1

    async def _draw_repeatedly(self) -> None:
        while not self._gone:
            if self._show.changed and not self._paused:
                await self._write(self._render_frame(with_live=True))
            await asyncio.sleep(_SECONDS_BETWEEN_DRAWS)

    def _render_frame(self, *, with_live: bool) -> str:
        """Returns what to write so that the screen shows the run as it is now."""
        width, height = self._read_size()
        finished = self._show.take_finished(width)
        live = self._show.render_live(width, min(_LIVE_ROWS, height - 1)) if with_live else ""
        if not finished and not live and not self._rows:
            return ""
        up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        erase = f"{up}{_ERASE_BELOW}" if self._rows else ""
        self._rows = live.count("\n") + 1 if live else 0
        below = f"{_NO_WRAP}{live}{_WRAP}" if live else ""
        return f"{_HIDE_CURSOR}{erase}{finished}{below}{_SHOW_CURSOR}"

    def _read_size(self) -> tuple[int, int]:
        # Read each time, because the window may be resized.
        try:
            columns, rows = os.get_terminal_size(self._fd)
        except OSError:
            return 80, 24
        return max(_NARROWEST, columns or 80), max(2, rows or 24)

    async def _write(self, text: str) -> None:
        self._drawn.append(text)
        self._start_writing()
        if self._writing is not None:
            # A cancelled draw is still written completely: half of it would leave the cursor hidden.
            await asyncio.shield(self._writing)

    def _start_writing(self) -> None:
        if any(self._drawn) and not self._gone:
            self._writing = asyncio.ensure_future(call_in_thread(self._write_queued))

    async def _wait_for_write(self) -> None:
        """Waits for the current write; gives up on a stalled terminal and abandons the thread."""
        if self._writing is None or self._writing.done():
            return
        await asyncio.wait([self._writing], timeout=self._patience)
        if not self._writing.done():
            self._gone = True
            self._writing.cancel()
            await asyncio.wait([self._writing])

    def _write_queued(self) -> None:
        with self._lock:
            try:
                while self._drawn:
                    data = memoryview(self._drawn.popleft().encode("utf-8", "backslashreplace"))
                    # Not after giving up: the descriptor number may belong to another file by now.
                    while data and not self._gone:
                        data = data[os.write(self._fd, data) :]
            except OSError:
                # The terminal is closed; a signal ends the run.
                self._gone = True
