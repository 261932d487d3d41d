"""Writes messages beside the answer to standard error: sanitized, without keys, and without blocking the run."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from steersman.cli.redact import make_key_redactor, redact_keys
from steersman.cli.terminal.columns import wrap
from steersman.cli.terminal.descriptors import STDERR, count_columns, is_terminal
from steersman.cli.terminal.numbers import format_progress
from steersman.cli.terminal.sanitize import sanitize, sanitize_line
from steersman.cli.terminal.stdout import OutputWriter

if TYPE_CHECKING:
    from steersman.provider.local.weights.find import Progress


_CLOSE_SECONDS = 1.0
_REDRAW_SECONDS = 0.1
_ERASE = "\r\x1b[K"


class StderrMessages:
    """Messages on standard error. A message that the reader does not take is dropped; a closed stderr is not an error.

    While a view draws on the same terminal, `redirect` receives the messages. `shows_work` is true if the user wants
    to follow the work: on a terminal, or with `--verbose`.
    """

    def __init__(self, *, verbose: bool) -> None:
        self.terminal = is_terminal(STDERR)
        self.shows_work = verbose or self.terminal
        self.redirect: Callable[[str], None] | None = None
        self._writer: OutputWriter | None = None
        self._drawn = ""
        self._drawn_at = 0.0

    def notify(self, text: str) -> None:
        """Writes one line that starts with the name of the command."""
        # Before it is wrapped, as a key on two lines would not be found.
        text = make_key_redactor()(sanitize_line(text))
        if self.redirect is not None:
            self.redirect(text)
        else:
            self.write_lines("\n".join(wrap(f"steersman: {text}", count_columns(STDERR))))

    def write_lines(self, text: str) -> None:
        """Writes lines as they are, but sanitized and without keys."""
        self._write(f"{self._erase_progress()}{sanitize(make_key_redactor()(text))}\n")

    def show_progress(self, news: Progress) -> None:
        """Shows progress: on a terminal in place, elsewhere one line when a new step begins."""
        what = sanitize_line(news.what)
        if news.notice:
            self.notify(news.what)
            return
        if not self.terminal:
            if what != self._drawn:
                self._drawn = what
                self.notify(what)
            return
        now, over = time.monotonic(), news.total is not None and news.done >= news.total
        if now - self._drawn_at < _REDRAW_SECONDS and not over and self._drawn:
            return
        self._drawn, self._drawn_at = what, now
        self._write(f"{_ERASE}{what} {format_progress(news.done, news.total)}".rstrip())

    async def flush(self) -> None:
        """Waits until all messages are written, as before a question, which is not written here."""
        if self._writer is not None:
            self._write(self._erase_progress())
            await asyncio.shield(self._writer.drain())

    async def close(self) -> None:
        """Writes the last messages; waits about a second for a slow reader."""
        if self._writer is None:
            return
        self._writer.drop_if_stalled(_CLOSE_SECONDS)
        await self.flush()
        self._writer.close()

    def _erase_progress(self) -> str:
        if not self._drawn or not self.terminal:
            return ""
        self._drawn = ""
        return _ERASE

    def _write(self, text: str) -> None:
        if self._writer is None:
            self._writer = OutputWriter(STDERR)
        if text and not self._writer.full:
            self._writer.write(text.encode(errors="replace"))


@contextmanager
def capture_logs(*, verbose: bool, server: bool = False) -> Generator[None]:
    """Prints warnings and errors that are logged if `verbose`, and hides them otherwise; a `server` prints its own."""
    takers: dict[str | None, logging.Handler] = {
        None: _StderrLog(logging.WARNING) if verbose else logging.NullHandler()
    }
    if server and not verbose:
        takers["steersman"] = _StderrLog(logging.WARNING)
    for name, taker in takers.items():
        logging.getLogger(name).addHandler(taker)
    try:
        yield
    finally:
        for name, taker in takers.items():
            logging.getLogger(name).removeHandler(taker)


class _StderrLog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(f"steersman: {sanitize(redact_keys(self.format(record)))}", file=sys.stderr, flush=True)
        except (OSError, ValueError):  # stderr has no reader; a log record must not end the command
            return
