"""Writes the groups of a journal in an event loop, where no thread waits for the store.

A thread that writes each group costs several switches between threads: to it, to wait for the store, and back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from steersman.session.records import Record
from steersman.session.stores.store import Finishing, LoopHandle
from steersman.tools.threads import is_running_in


class LoopWriter:
    """Writes one group at a time. `end` is called with the group, and whether it is saved; `write` when one is due."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handle: LoopHandle,
        lag: float,
        write: Callable[[], None],
        end: Callable[[list[Record], bool], None],
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._lag = lag
        self._write, self._end = write, end
        self._begun: Finishing | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a group is being written."""
        return self._begun is not None

    def plan(self) -> bool:
        """Call `write` in the event loop, a moment later; false if it is closed. For any thread."""
        if is_running_in(self._loop):
            self._start_timer()
            return True
        try:
            self._loop.call_soon_threadsafe(self._start_timer)
        except RuntimeError:
            return False
        return True

    def begin(self, group: list[Record]) -> bool:
        """Begin to write a group; false if that is for a thread: this is not the event loop, or it would have to wait.

        The caller holds the lock under which it ends, and there is no other group.
        """
        if not is_running_in(self._loop):
            return False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._begun = self._handle.begin_append(group, lambda is_saved: self._end(group, is_saved))
        except Exception:  # noqa: BLE001  # the thread finds the same, and says so
            return False
        return self._begun is not None

    def note_end(self) -> None:
        """Note that the group is written, or not."""
        self._begun = None

    def finish(self) -> None:
        """Wait until nothing is being written; blocks, in any thread."""
        if (begun := self._begun) is not None:
            begun.finish()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._lag, self._call_write)

    def _call_write(self) -> None:
        self._timer = None
        self._write()


def make_settled() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """A future of the running event loop, and what settles it, from any thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def tell() -> None:
        if is_running_in(loop):
            settle()
            return
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the event loop is closed, and with it what waited

    return done, tell
