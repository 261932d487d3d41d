"""The terminal as prompt_toolkit writes to it: each picture in one piece, and no fuss when the terminal is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output


class Console(Vt100_Output):
    """While it is held, what is written is kept; `gone` is called once when nothing can be written any more."""

    def __init__(self, *, color: bool, gone: Callable[[], None]) -> None:
        self._held = False
        self._gone: Callable[[], None] | None = gone
        super().__init__(
            sys.stdout,
            self._size,
            term=os.environ.get("TERM"),
            default_color_depth=None if color else ColorDepth.DEPTH_1_BIT,
            # Asking where the cursor is brings answers that a slow line may mix with what is typed.
            enable_cpr=False,
        )

    def _size(self) -> Size:
        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns, rows = 80, 24
        return Size(rows=rows or 24, columns=columns or 80)

    def hold(self) -> None:
        """Keep what is written from here on."""
        self._held = True

    def release(self) -> None:
        """Write what was kept."""
        self._held = False
        self.flush()

    def flush(self) -> None:
        """Write what was given so far, unless it is held."""
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
