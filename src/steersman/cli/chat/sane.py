"""A terminal that is left as it was found, however the chat ends."""

from __future__ import annotations

import os
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager

from steersman.cli.terminal.descriptors import STDIN, STDOUT, is_terminal

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
