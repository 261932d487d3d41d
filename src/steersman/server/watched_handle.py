"""A store's handle that tells which records were saved, so that watchers see only what a crash cannot undo."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from steersman.session.records import Record
from steersman.session.stores.store import Handle, Problem, is_followed, is_shared

_log = logging.getLogger("steersman.server")


class WatchedHandle:
    """A store's handle that tells a hub which records were saved. The journal's thread calls it."""

    def __init__(self, handle: Handle, tell: Callable[[Sequence[Record]], None]) -> None:
        self._handle = handle
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self.session_id = handle.session_id
        self.writable = handle.writable

    @property
    def problems(self) -> Sequence[Problem]:
        """What was found damaged."""
        return self._handle.problems

    @property
    def epoch(self) -> int:
        """The number of this owner."""
        return self._handle.epoch if is_shared(self._handle) else 0

    @property
    def last_seq(self) -> int:
        """The number of the last record."""
        return self._handle.last_seq

    def append(self, records: Sequence[Record], /) -> None:
        """Append records, and tell the hub once they are saved."""
        self._handle.append(records)
        try:
            self._loop.call_soon_threadsafe(self._tell, list(records))
        except RuntimeError:
            _log.debug("Records of %r were saved after the server ended.", self.session_id)

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number."""
        return self._handle.lines(after)

    def read_queue(self, after: int = 0, /) -> Sequence[tuple[int, bytes]]:
        """What waits in the queue after a number."""
        return self._handle.read_queue(after) if is_shared(self._handle) else ()

    def watch_queue(self, wake: Callable[[], None], /) -> Callable[[], None]:
        """Call `wake` when something may have been queued."""
        return self._handle.watch_queue(wake) if is_shared(self._handle) else _ignore

    def watch_followers(self, came: Callable[[], None], /) -> Callable[[], None]:
        """Call `came` when another process begins to follow the session, or asks."""
        return self._handle.watch_followers(came) if is_followed(self._handle) else _ignore

    def broadcast(self, data: bytes, /) -> bool:
        """Send data to the processes that follow the session; returns whether there may be any."""
        return is_followed(self._handle) and self._handle.broadcast(data)

    def set_title(self, title: str, /) -> None:
        """Set the title that a list shows."""
        self._handle.set_title(title)

    def close(self) -> None:
        """Close the session."""
        self._handle.close()


def _ignore() -> None:
    """There is nothing to end."""
