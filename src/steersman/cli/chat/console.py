"""The output of the drawn chat: one write per frame, and it notices when the terminal is closed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

if TYPE_CHECKING:
    from steersman.cli.render import RunDisplay


class Console(Vt100_Output):
    """While held, buffers what is written; calls `gone` once when the terminal is closed."""

    def __init__(self, *, color: bool, gone: Callable[[], None]) -> None:
        self._held = False
        self._gone: Callable[[], None] | None = gone
        super().__init__(
            sys.stdout,
            self._read_size,
            term=os.environ.get("TERM"),
            default_color_depth=None if color else ColorDepth.DEPTH_1_BIT,
            # A cursor position report may arrive late on a slow connection and mix with typed keys.
            enable_cpr=False,
        )

    def _read_size(self) -> Size:
        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns, rows = 80, 24
        return Size(rows=rows or 24, columns=columns or 80)

    def hold(self) -> None:
        """Buffers what is written from now on."""
        self._held = True

    def release(self) -> None:
        """Writes what was buffered."""
        self._held = False
        self.flush()

    def disable_bracketed_paste(self) -> None:
        """Does nothing: the library calls it for each redraw, and a paste in that moment would count as typed."""

    def end_bracketed_paste(self) -> None:
        """Tells the terminal that pastes need no marks any more: the chat gives it back."""
        super().disable_bracketed_paste()

    def flush(self) -> None:
        """Writes the buffer, unless it is held."""
        if self._held:
            return
        if self._gone is None:
            self._buffer.clear()
            return
        try:
            super().flush()
        except OSError:  # the window was closed
            gone, self._gone = self._gone, None
            gone()


async def take_in_steps(show: RunDisplay, output: Console) -> AsyncIterator[str]:
    """Yields all finished output of a run, step by step; other tasks run between the steps."""
    yield show.take_finished(output.get_size().columns)
    while show.page.waiting:
        await asyncio.sleep(0)
        yield show.take_finished(output.get_size().columns)
