"""How far a long piece of work is: told often enough to be watched, and not more than ten times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

_APART = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """What is being done, and how much of it; `total` is `None` where nobody knows.

    A `notice` is no work but a sentence the user should be able to read afterwards.
    """

    what: str
    done: int
    total: int | None
    notice: bool = False


Report: TypeAlias = Callable[[Progress], None]


class Reporter:
    """Tells `report` how far a piece of work is. A new piece and its end are always told."""

    __slots__ = ("_clock", "_last", "_report", "_told")

    def __init__(self, report: Report | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._told = 0.0
        self._last: Progress | None = None

    def tell(self, what: str, done: int, total: int | None) -> None:
        """Tell it, unless the same work was told of a moment ago and is not at its end."""
        if self._report is None:
            return
        now = Progress(what, done, total)
        if now == self._last:
            return
        last, moment = self._last, self._clock()
        if last is not None and last.what == what and done != total and moment - self._told < _APART:
            return
        self._last, self._told = now, moment
        self._report(now)

    def notice(self, words: str) -> None:
        """Say something that is worth more than a moment on the screen."""
        if self._report is not None:
            self._report(Progress(words, 0, None, notice=True))
