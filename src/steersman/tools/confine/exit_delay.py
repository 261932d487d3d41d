"""Delays the end of the program until its commands have ended, and what they made under protected names is set aside.

A run does not wait long for a call that it has cancelled, and the program may end before the thread of the call does.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_SECONDS = 10.0  # a command that is killed ends in a moment; then its workspace is searched
_working: dict[threading.Event, Callable[[], None]] = {}


@contextmanager
def delay_exit(stop: Callable[[], None]) -> Generator[None]:
    """Let the program end only after this block, which runs in a thread; `stop` is called to bring its end about."""
    _wait_at_exit()
    done = threading.Event()
    _working[done] = stop
    try:
        yield
    finally:
        _working.pop(done, None)
        done.set()


@functools.cache
def _wait_at_exit() -> None:
    # Here and not on import: exit functions run in reverse order, and temporary folders must be removed later.
    atexit.register(_wait_for_all)


def _wait_for_all() -> None:
    working = list(_working.items())
    for _, stop in working:
        stop()
    end = time.monotonic() + _SECONDS
    for done, _ in working:
        done.wait(max(0.0, end - time.monotonic()))


os.register_at_fork(after_in_child=_working.clear)  # a forked child has none of these threads
