"""One lock for one file, whoever asks for it in this process and through whichever workspace."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator

_STRIPES = 256
_locks = [threading.Lock() for _ in range(_STRIPES)]


class _Here(threading.local):
    held = False


_here = _Here()


@contextlib.contextmanager
def lock_of(path: str) -> Generator[None]:
    """Hold a file, by its real path. Two files may share a lock; two spellings that differ by case alone always do.

    A thread that holds one already gets no second: a link that is turned round in between cannot make two threads wait
    for each other.
    """
    if _here.held:
        yield
        return
    with _locks[hash(path.casefold()) % _STRIPES]:
        _here.held = True
        try:
            yield
        finally:
            _here.held = False


def _forget() -> None:
    """In a forked child the threads that held a lock are gone, and would hold it for ever."""
    _locks[:] = [threading.Lock() for _ in range(_STRIPES)]


os.register_at_fork(after_in_child=_forget)
