"""The terminal as prompt_toolkit writes to it: each picture in one piece, and no fuss when the terminal is gone."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from steersman.cli.terminal.descriptors import STDIN, STDOUT, is_terminal


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


_UNDO = b"\x1b[0m\x1b[?2004l\x1b[?25h\r\n"
"""Plain letters, no bracketed paste, the cursor shown, and a line of its own for what comes next."""


@contextmanager
def kept_sane() -> Generator[Callable[[], None]]:
    """Put the terminal right at the end, and give a function that does so at once."""
    try:
        before = termios.tcgetattr(STDIN) if is_terminal(STDIN) else None
    except termios.error:
        before = None

    def restore() -> None:
        try:
            if before is not None and termios.tcgetattr(STDIN) != before:
                termios.tcsetattr(STDIN, termios.TCSANOW, before)
                os.write(STDOUT, _UNDO)
        except (termios.error, OSError):  # it is gone, and nobody looks at it any more
            return

    try:
        yield restore
    finally:
        restore()
