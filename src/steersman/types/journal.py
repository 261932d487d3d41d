"""The `Journal` protocol: a write-ahead log of a run, so that the run can be resumed after a crash."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from steersman.types.content import ToolCall


class Journal(Protocol):
    """The loop waits for it before it asks the model, before tools start, and at the end of a run.

    It never raises because a record could not be written, such as on a full disk: the run continues without it.
    """

    @property
    def degraded(self) -> str | None:
        """Why records are kept in memory only at the moment; `None` when they are written."""
        ...

    def register_secrets(self, secrets: Set[str], /) -> None:
        """Redact these keys in every record from now on; the set belongs to the run and may grow."""
        ...

    async def record_intent(self, calls: Sequence[ToolCall], /) -> None:
        """Return once the log says that these calls are about to start."""
        ...

    async def save(self) -> None:
        """Return once every record so far is saved."""
        ...
