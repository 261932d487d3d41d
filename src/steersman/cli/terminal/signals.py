"""Signals: the first asks for an orderly end, a second Ctrl-C leaves at once, and nobody ever sees a traceback.

The orderly end is bounded too: whoever holds it up for longer than `PATIENCE` seconds is left behind. What a tool
started ends with this process in either case, since those who watch over it notice.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from steersman.cli.exits import ERROR, PIPE
from steersman.cli.terminal.descriptors import ENDING, early
from steersman.cli.terminal.stdout import Outlet

READER_SECONDS = 2.0
"""How long a reader who takes nothing may hold up the end after a signal."""


class Stopping:
    """Asked by a signal, or by an output that takes no more. Until a run can be told, the work is cancelled."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._stop: Callable[[], None] | None = self._cancel
        self._cancelled = False
        self.asked = False
        self.outlet: Outlet | None = None
        self.failure: OSError | None = None

    @property
    def code(self) -> int | None:
        """The exit code for an output that failed: a reader that left is nobody's mistake."""
        if self.failure is None:
            return None
        return PIPE if self.failure.errno == errno.EPIPE else ERROR

    def ask(self) -> None:
        """Come to an end now, in order."""
        if self.outlet is not None:
            self.outlet.hurry(READER_SECONDS)
        if not self.asked:
            self.asked = True
            if self._stop is not None:
                self._stop()

    def ask_because(self, failure: OSError) -> None:
        """Come to an end because nothing can be written any more."""
        self.failure = self.failure or failure
        self.ask()

    @contextmanager
    def reaching(self, stop: Callable[[], None]) -> Generator[None]:
        """From here on to stop is to call this function, and afterwards nothing is left to be stopped."""
        self._stop = stop
        if self.asked:
            stop()
        try:
            yield
        finally:
            self._stop = None

    def let_finish(self) -> None:
        """From here on only the last of the output is written, which nobody cancels."""
        self._stop = None

    def was_it(self, _: asyncio.CancelledError) -> bool:
        """Whether a cancel was ours, which is then over."""
        if not self._cancelled:
            return False
        self._cancelled = False
        return self._task.uncancel() == 0

    def _cancel(self) -> None:
        self._cancelled = True
        self._task.cancel()


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
