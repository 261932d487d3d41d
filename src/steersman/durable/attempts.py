"""How many attempts in a row a run has had in vain, which is the bound of one that kills its workers every time.

Temporal numbers all attempts of a run. Those up to a number are forgiven: the last attempt that got on with the run,
and one more for each that a stopped worker or the store has ended. Temporal keeps that number from one attempt to the
next, as the details of a heartbeat, and beside it which attempt has closed the session: one that follows it need not
take the session over, and so takes it from no other program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from temporalio import activity

from steersman.session.stores.store import SessionError

MAX_ATTEMPTS: Final = 5


class WorkersLost(SessionError):
    """Attempts in a row have come to nothing."""


class Attempts:
    """The attempts of the run whose activity this is called in."""

    def __init__(self) -> None:
        info = activity.info()
        self.number = info.attempt
        forgiven, self._closed = _read_details(info.heartbeat_details)
        self._forgiven = min(forgiven, self.number - 1)
        self.is_first = self.number == 1 or self._closed == self.number - 1
        """Whether no attempt before this one may still have the session open."""

    @property
    def in_vain(self) -> int:
        """How many there were in a row, with this one, unless it has got on with the run."""
        return self.number - self._forgiven

    def check(self) -> None:
        """Raise `WorkersLost` if there were enough before this one; before the session is read, which may be why."""
        if self.in_vain > MAX_ATTEMPTS:
            raise WorkersLost(
                f"Its last {MAX_ATTEMPTS} workers were lost before they had ended a turn or asked for an approval."
            )

    def note_progress(self) -> None:
        """Forgive all attempts up to this one."""
        if self._forgiven < self.number:
            self._forgiven = self.number
            if self.number > 1:  # a first one tells it with the next heartbeat, since each costs a request
                self.beat()

    def forgive(self) -> None:
        """Do not count this attempt, which ends for a reason that has nothing to do with the run."""
        self._forgiven = min(self._forgiven + 1, self.number)
        self.beat()

    def note_closed(self) -> None:
        """Note that this attempt has closed the session in good order, or will before it ends."""
        self._closed = self.number

    def beat(self) -> None:
        """Tell Temporal that this worker is alive."""
        activity.heartbeat(self._forgiven, self._closed)


def _read_details(details: Sequence[Any]) -> tuple[int, int]:
    """The two numbers of the last heartbeat; a worker of another version may have told fewer."""
    given: list[Any] = [*details, 0, 0]
    forgiven, closed = (value if isinstance(value, int) else 0 for value in given[:2])
    return forgiven, closed
