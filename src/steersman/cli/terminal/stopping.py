"""Why the command should end before it is done, whoever says so, and what that means at the moment it is said."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Generator
from contextlib import contextmanager

from steersman.cli.exits import ERROR, PIPE
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
