"""The journals that are open in this process: what is left is written at its end, and no fork copies one at work."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from steersman.session.journal import JournalWriter
    from steersman.session.stores.store import Handle

# Seconds that the end of the process, or a fork, waits for a store that does not answer.
_PATIENCE = 30.0

_CLOSE_PATIENCE = 1.0
BUSY_NAME: Final = "steersman-journal"
"""The name of the thread of a journal that writes."""

open_journals: WeakSet[JournalWriter] = WeakSet()


def close_in_thread(unused: JournalWriter | Handle) -> None:
    """Close what is no longer used, as a finalizer does: in another thread, and wait at most 1 s for it.

    The garbage collector may call this in a thread that holds a lock which the journal needs to write the rest.
    """
    closing = threading.Thread(target=unused.close, name="steersman-close", daemon=True)
    try:
        closing.start()
    except RuntimeError:
        unused.close()  # the interpreter is ending and starts no more threads
        return
    # A journal's own thread must not wait for another journal.
    if not threading.current_thread().name.startswith(BUSY_NAME):
        closing.join(_CLOSE_PATIENCE)


def _close_all() -> None:
    """At the end of the process: write what is left."""
    for journal in list(open_journals):
        journal.close_within(_PATIENCE)


class _Fork:
    """Makes a fork wait until no store is at work, so that no child gets a copy of a store in mid-transaction."""

    def __init__(self) -> None:
        self._held: list[threading.RLock] = []

    def before(self) -> None:
        for journal in list(open_journals):
            journal.finish_begun()
        locks = [journal.at_work for journal in list(open_journals)]
        self._held = [lock for lock in locks if lock.acquire(timeout=_PATIENCE)]

    def after_in_parent(self) -> None:
        held, self._held = self._held, []
        for lock in held:
            lock.release()

    def after_in_child(self) -> None:
        self._held = []
        for journal in list(open_journals):
            journal.disown()


_fork = _Fork()
atexit.register(_close_all)
os.register_at_fork(before=_fork.before, after_in_parent=_fork.after_in_parent, after_in_child=_fork.after_in_child)
