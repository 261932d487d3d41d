"""The progress of an evaluation: on a terminal one line that is drawn again; elsewhere nothing."""

from __future__ import annotations

import asyncio
import time
from typing import TextIO

from steersman.cli.terminal.numbers import format_money
from steersman.evals.evaluation import Progress

_BAR = 24
_REDRAW_SECONDS = 0.1
_ERASE = "\r\x1b[K"


class ProgressBar:
    """Counts finished runs. Only numbers are drawn, so no text of a case can reach the terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._passed = 0
        self._crashed = 0
        self._cost = 0.0
        self._drawn_at: float | None = None
        self._later: asyncio.TimerHandle | None = None

    def show(self, news: Progress) -> None:
        """Counts a finished run and draws the line, at most ten times a second; the last news is always drawn."""
        self._passed += news.run.passed
        self._crashed += bool(news.run.crashed)
        self._cost += (news.run.cost or 0.0) + (news.run.judge_cost or 0.0)
        if self._stream is None:
            return
        if self._later is not None:
            self._later.cancel()
        pause = 0.0 if self._drawn_at is None else self._drawn_at + _REDRAW_SECONDS - time.monotonic()
        if pause > 0 and news.done < news.total:
            self._later = asyncio.get_running_loop().call_later(pause, self._draw, news.done, news.total)
        else:
            self._draw(news.done, news.total)

    def _draw(self, done: int, total: int) -> None:
        self._drawn_at = time.monotonic()
        full = done * _BAR // total
        failed = done - self._passed
        parts = [
            f"{'█' * full}{'░' * (_BAR - full)} {done} of {total}",
            f"{self._passed} passed",
            f"{failed} failed ({self._crashed} crashed)" if self._crashed else f"{failed} failed",
            *([format_money(self._cost)] if self._cost else []),
        ]
        self._write(f"{_ERASE}{', '.join(parts)}")

    def close(self) -> None:
        """Removes the line."""
        if self._later is not None:
            self._later.cancel()
        if self._drawn_at is not None:
            self._drawn_at = None
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the terminal is gone; the evaluation is not
            self._stream = None
