"""Who keeps what a run does, so that it can go on after a crash: here is only the waiting for it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from steersman.types.content import ToolCall


class Journal(Protocol):
    """Waited for before the model is asked, before tools start, and at the end of a run.

    What cannot be kept is the journal's business: it never raises because a disk is full, and a run goes on without it.
    """

    @property
    def degraded(self) -> str | None:
        """Why what happens is in memory only at the moment; `None` when it is kept."""
        ...

    def redact(self, secrets: Set[str], /) -> None:
        """Leave these keys out of what is kept; the set is the run's and may grow."""
        ...

    async def record_intent(self, calls: Sequence[ToolCall], /) -> None:
        """Return once it is kept that these calls are about to start."""
        ...

    async def save(self) -> None:
        """Return once everything told so far is kept."""
        ...
