"""What the library and others log: a person sees it only with `--verbose`, harmless to a terminal and without keys.

Without this Python would print warnings, and tracebacks with them, right into what is drawn.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager

from steersman.cli.terminal.sanitize import safe
from steersman.cli.troubles import without_keys


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
