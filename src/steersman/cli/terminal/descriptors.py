"""What a process is born with: its standard descriptors, and the signals before anybody can hear them."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType

STDIN, STDOUT, STDERR = 0, 1, 2
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask for an end."""

early: list[int] = []
"""The signals that came while they were only noted."""


def hold_descriptors() -> None:
    """Open those that were closed when the process began; the next file or socket would get their numbers."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def leave_on_signals() -> None:
    """Let a signal end the process with the exit code for it, while there is nothing to clean up."""
    # Registered first and so called last: then only memory is left to be freed, and the exit code is decided.
    atexit.register(_ignore_signals)
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _leave)


def note_signals() -> None:
    """Only remember signals from here on: whoever is being loaded will hear them in a moment."""
    for number in ENDING:
        if signal.getsignal(number) is _leave:
            signal.signal(number, _note)


def stop_noting() -> None:
    """Whoever would have heard a signal has gone, and it ends the process again."""
    for number in ENDING:
        if signal.getsignal(number) is _note:
            signal.signal(number, _leave)


def end_quietly() -> None:
    """From here on a signal ends the process without a word: nothing is left that would have to be cleaned up."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def has_stdout() -> bool:
    """Whether the process was started with a standard output: Python has none where that was closed."""
    return sys.stdout is not None


def _leave(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def _ignore_signals() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _note(number: int, _: FrameType | None) -> None:
    early.append(number)


def is_terminal(number: int) -> bool:
    """Whether a person is at the other end."""
    try:
        return os.isatty(number)
    except OSError:
        return False


def columns_of(descriptor: int) -> int | None:
    """How many columns the window behind a descriptor has, where there is one and it is known."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None
