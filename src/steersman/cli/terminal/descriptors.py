"""The state a process starts with: standard file descriptors, and signals that arrive before there is an event loop."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType

STDIN, STDOUT, STDERR = 0, 1, 2
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask the process to end."""

early_signals: list[int] = []
"""The signals that arrived while they were only noted."""


def open_missing_descriptors() -> None:
    """Opens standard descriptors that are closed; otherwise the next file or socket would get their numbers."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def exit_on_signals() -> None:
    """Makes a signal end the process at once with its exit code, while there is nothing to clean up."""
    # Registered first, so called last: the exit code is decided and only memory is left to free.
    atexit.register(_ignore_signals)
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _exit_now)


def record_signals() -> None:
    """From now on only notes signals, until `catch_signals` takes them."""
    for number in ENDING:
        if signal.getsignal(number) is _exit_now:
            signal.signal(number, _record_signal)


def stop_recording_signals() -> None:
    """Makes a signal end the process again, when there is nothing left to take it."""
    for number in ENDING:
        if signal.getsignal(number) is _record_signal:
            signal.signal(number, _exit_now)


def exit_silently_on_signals() -> None:
    """From now on a signal ends the process silently; nothing is left to clean up."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit_now)


def has_stdout() -> bool:
    """Whether standard output was open when the process started; Python sets `sys.stdout` to `None` if not."""
    return sys.stdout is not None


def _exit_now(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def _ignore_signals() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _record_signal(number: int, _: FrameType | None) -> None:
    early_signals.append(number)


def is_terminal(number: int) -> bool:
    """Whether a file descriptor is a terminal."""
    try:
        return os.isatty(number)
    except OSError:
        return False


def count_columns(descriptor: int) -> int | None:
    """Returns the width of the terminal behind a file descriptor; `None` if unknown."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None
