"""Signals: the first asks for an orderly end, a second Ctrl-C leaves at once, and nobody ever sees a traceback.

The orderly end is bounded too: whoever holds it up for longer than `PATIENCE` seconds is left behind. What a tool
started ends with this process in either case, since those who watch over it notice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from steersman.cli.terminal.descriptors import ENDING, early

PATIENCE = 10.0


class Signals:
    """What has come so far: `code` is the exit code it asks for, `None` as long as nothing came."""

    __slots__ = ("_leaving", "_loop", "_stop", "code")

    def __init__(self, stop: Callable[[], None], leaving: Callable[[], None] | None = None) -> None:
        self.code: int | None = None
        self._stop = stop
        self._leaving = leaving
        self._loop = asyncio.get_running_loop()

    def hear(self, number: int, _: FrameType | None = None) -> None:
        """Take a signal, between any two steps of the program."""
        if self.code is None:
            self.code = 128 + number
            watchdog = threading.Timer(PATIENCE, self._leave, (self.code,))
            watchdog.daemon = True
            watchdog.start()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop)
        elif number == signal.SIGINT:
            # Only a person is impatient; a closing terminal sends its signals twice and means the same.
            self._leave(self.code)

    def _leave(self, code: int) -> None:
        """End the process now: a session on disk is whole at any moment, and tools end with us."""
        if self._leaving is not None:
            self._leaving()
        os._exit(code)


@contextmanager
def heard(stop: Callable[[], None], *, leaving: Callable[[], None] | None = None) -> Generator[Signals]:
    """Take the signals that ask for an end, inside an event loop: `stop` is called there, once.

    `leaving` is called just before the process leaves at once, to put a terminal right; it must not wait. A signal that
    was ignored when the process began stays ignored, as `nohup` and background jobs want it.
    """
    signals = Signals(stop, leaving)
    before = {number: taker for number in ENDING if (taker := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, signals.hear)
    for number in early[:1]:
        signals.hear(number)
    early.clear()
    try:
        yield signals
    finally:
        for number, taker in before.items():
            signal.signal(number, taker)
