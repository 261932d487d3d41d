"""A store's handle that holds a run up while the store does not answer.

A session alone goes on in memory. A supervised one must not: another worker could repeat what the log does not know.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from steersman.session.records import Record
from steersman.session.stores.store import (
    Finishing,
    Problem,
    SessionError,
    SessionNotFound,
    SessionTaken,
    SharedHandle,
    can_begin,
    can_look,
    is_followed,
)

_PAUSE = 0.25


class HeldHandle:
    """A handle whose `append` waits for the store at most `patience` seconds, and then ends the run."""

    def __init__(self, handle: SharedHandle, patience: float) -> None:
        self._handle = handle
        self._patience = patience
        self._released = threading.Event()
        self._began: float | None = None
        self.session_id = handle.session_id
        self.writable = handle.writable
        self.failure: str | None = None
        """Why the run was ended: the store did not answer."""
        self.left: Sequence[tuple[int, bytes]] | None = None
        """What was queued when it had been closed; `None` if that is not known."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What was found damaged."""
        return self._handle.problems

    @property
    def epoch(self) -> int:
        """The number of this owner."""
        return self._handle.epoch

    @property
    def last_seq(self) -> int:
        """The number of the last record."""
        return self._handle.last_seq

    def append(self, records: Sequence[Record], /) -> None:
        """Append records; tries again while the store fails, so that whatever waits for a save waits too."""
        began, self._began = self._began or time.monotonic(), None
        deadline = began + self._patience
        while True:
            try:
                return self._handle.append(records)
            except (SessionTaken, SessionNotFound) as error:
                raise SessionTaken(str(error)) from error
            except SessionError as error:
                if time.monotonic() > deadline or self._released.wait(_PAUSE):
                    self.failure = str(error)
                    raise SessionTaken(f"The run ends here, since it cannot be saved. {error}") from error

    def begin_append(self, records: Sequence[Record], tell: Callable[[bool], None], /) -> Finishing | None:
        """Append records from the event loop; what fails there is for `append`, and its patience begins here."""
        if not can_begin(self._handle):
            return None
        self._began = time.monotonic()

        def note(is_saved: bool) -> None:
            if is_saved:
                self._began = None
            tell(is_saved)

        return self._handle.begin_append(records, note)

    def release(self) -> None:
        """Wait for the store no more."""
        self._released.set()

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        """The encoded records after a number."""
        return self._handle.lines(after)

    def read_queue(self, after: int = 0, /) -> Sequence[tuple[int, bytes]]:
        """What waits in the queue after a number."""
        return self._handle.read_queue(after)

    def watch_queue(self, wake: Callable[[], None], /) -> Callable[[], None]:
        """Call `wake` when something may have been queued."""
        return self._handle.watch_queue(wake)

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
        """Close the session, and look what is queued."""
        if can_look(self._handle):
            self.left = self._handle.close_and_look()
        else:
            self._handle.close()


def _ignore() -> None:
    """There is nothing to end."""
