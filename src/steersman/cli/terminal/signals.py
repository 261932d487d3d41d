"""Signals: the first one ends the run in an orderly way, a second Ctrl-C exits at once.

An orderly end takes at most `PATIENCE` seconds; then the process exits. Processes that tools started end with this
process in both cases, because their watchers notice its end.
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
from steersman.cli.terminal.descriptors import ENDING, early_signals
from steersman.cli.terminal.stdout import OutputWriter

READER_SECONDS = 2.0
"""How long a stalled reader may delay the end after a signal."""


PATIENCE = 10.0
"""Seconds an orderly end may take after the first signal."""


class StopRequest:
    """A request to stop early, by a signal or by a failed output. Before a run can be aborted, it cancels the task."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._stop: Callable[[], None] | None = self._cancel
        self._cancelled = False
        self.requested = False
        self.writer: OutputWriter | None = None
        self.failure: OSError | None = None

    @property
    def code(self) -> int | None:
        """The exit code for a failed output; a closed pipe is not an error."""
        if self.failure is None:
            return None
        return PIPE if self.failure.errno == errno.EPIPE else ERROR

    def request(self) -> None:
        """Asks for an orderly end."""
        if self.writer is not None:
            self.writer.drop_if_stalled(READER_SECONDS)
        if not self.requested:
            self.requested = True
            if self._stop is not None:
                self._stop()

    def fail(self, failure: OSError) -> None:
        """Asks for an orderly end because the output failed."""
        self.failure = self.failure or failure
        self.request()

    @contextmanager
    def call_on_stop(self, stop: Callable[[], None]) -> Generator[None]:
        """While entered, a stop calls this function; afterwards there is nothing left to stop."""
        self._stop = stop
        if self.requested:
            stop()
        try:
            yield
        finally:
            self._stop = None

    def finish(self) -> None:
        """From now on a stop cancels nothing: only the last output is being written."""
        self._stop = None

    def consume_cancel(self, _: asyncio.CancelledError) -> bool:
        """Whether a cancellation came from this request; if so, takes it back."""
        if not self._cancelled:
            return False
        self._cancelled = False
        return self._task.uncancel() == 0

    def _cancel(self) -> None:
        self._cancelled = True
        self._task.cancel()


class Signals:
    """The signals received so far; `code` is the exit code of the first one, or `None`."""

    __slots__ = ("_loop", "_on_leave", "_stop", "code")

    def __init__(self, stop: Callable[[], None], on_leave: Callable[[], None] | None = None) -> None:
        self.code: int | None = None
        self._stop = stop
        self._on_leave = on_leave
        self._loop = asyncio.get_running_loop()

    def receive(self, number: int, _: FrameType | None = None) -> None:
        """Takes a signal; Python calls this between two instructions of the main thread."""
        if self.code is None:
            self.code = 128 + number
            watchdog = threading.Timer(PATIENCE, self._exit_now, (self.code,))
            watchdog.daemon = True
            watchdog.start()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop)
        elif number == signal.SIGINT:
            # Only Ctrl-C counts as a second request: a closing terminal may send its signals twice.
            self._exit_now(self.code)

    def _exit_now(self, code: int) -> None:
        """Ends the process now; the session file is consistent at any moment."""
        if self._on_leave is not None:
            self._on_leave()
        os._exit(code)


@contextmanager
def catch_signals(stop: Callable[[], None], *, on_leave: Callable[[], None] | None = None) -> Generator[Signals]:
    """Takes the signals that ask for an end, inside an event loop; calls `stop` there, once.

    `on_leave` is called right before the process exits at once, to restore a terminal; it must not block. A signal that
    was ignored when the process started stays ignored, as `nohup` and background jobs need.
    """
    signals = Signals(stop, on_leave)
    before = {number: taker for number in ENDING if (taker := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, signals.receive)
    for number in early_signals[:1]:
        signals.receive(number)
    early_signals.clear()
    try:
        yield signals
    finally:
        for number, taker in before.items():
            signal.signal(number, taker)
