"""What the command says beside its answer: on stderr, harmless to a terminal, and never in the way of the run."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from steersman.cli.exits import keyless, without_keys
from steersman.cli.terminal.columns import wrapped
from steersman.cli.terminal.descriptors import STDERR, columns_of, is_terminal
from steersman.cli.terminal.sanitize import one_line, safe
from steersman.cli.terminal.stdout import Outlet

if TYPE_CHECKING:
    from steersman.provider.local.weights.find import Progress


_LAST_WORDS = 1.0
_REDRAW = 0.1
_BAR = 16
_STEPS = 100
_ERASE = "\r\x1b[K"


class Telling:
    """Lines to standard error. One that nobody takes is dropped; standard error that is closed is no error.

    While somebody draws on the same terminal, `instead` takes the lines. `chatty` says whether somebody wants to follow
    the work: a person at a terminal, or whoever asked with `--verbose`.
    """

    def __init__(self, *, verbose: bool) -> None:
        self.terminal = is_terminal(STDERR)
        self.chatty = verbose or self.terminal
        self.instead: Callable[[str], None] | None = None
        self._outlet: Outlet | None = None
        self._drawn = ""
        self._drawn_at = 0.0

    def tell(self, text: str) -> None:
        """Say a line with our name before it."""
        if self.instead is not None:
            self.instead(one_line(text))
        else:
            self.say("\n".join(wrapped(f"steersman: {one_line(text)}", columns_of(STDERR))))

    def say(self, text: str) -> None:
        """Say lines as they are, apart from keys: standard error ends up in logs."""
        self._write(f"{self._cleared()}{safe(keyless()(text))}\n")

    def progress(self, news: Progress) -> None:
        """Show how far a long piece of work has come: in place on a terminal, elsewhere as a line where it begins."""
        what = one_line(news.what)
        if news.notice:
            self.tell(news.what)
            return
        if not self.terminal:
            if what != self._drawn:
                self._drawn = what
                self.tell(what)
            return
        now, over = time.monotonic(), news.total is not None and news.done >= news.total
        if now - self._drawn_at < _REDRAW and not over and self._drawn:
            return
        self._drawn, self._drawn_at = what, now
        self._write(f"{_ERASE}{what} {amount(news.done, news.total)}".rstrip())

    async def close(self) -> None:
        """Wait a moment until everything is said."""
        if self._outlet is None:
            return
        if self.terminal:
            self._write(self._cleared())
        self._outlet.hurry(_LAST_WORDS)
        await asyncio.shield(self._outlet.drained())
        self._outlet.close()

    def _cleared(self) -> str:
        if not self._drawn or not self.terminal:
            return ""
        self._drawn = ""
        return _ERASE

    def _write(self, text: str) -> None:
        if self._outlet is None:
            self._outlet = Outlet(STDERR)
        if text and not self._outlet.full:
            self._outlet.write(text.encode(errors="replace"))


def amount(done: int, total: int | None) -> str:
    """How much of a piece of work is done, in bytes or in a few steps, with a bar where the whole is known."""
    if not total:
        return f"{done / 1e6:.0f} MB"
    if total <= _STEPS:
        return f"{done} of {total}" if total > 1 else ""
    full = min(_BAR, done * _BAR // total)
    return f"{'█' * full}{'░' * (_BAR - full)} {done * 100 // total}% of {total / 1e6:.0f} MB"


@contextmanager
def tamed_logs(*, verbose: bool) -> Generator[None]:
    """Take what is logged, for as long as it is entered."""
    taker = _Shown(logging.WARNING) if verbose else logging.NullHandler()
    logging.getLogger().addHandler(taker)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(taker)


class _Shown(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(f"steersman: {safe(without_keys(self.format(record)))}", file=sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody listens any more, and what was logged is not worth an end
            return
