"""Runs that outlive a machine: sessions in a shared store, supervised by Temporal.

The session is the log. Temporal only knows that a run is to be going on: it holds no conversation and calls no tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily
from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.durable.client import Client
    from steersman.durable.errors import DurableError
    from steersman.durable.job import Outcome
    from steersman.durable.questions import OpenQuestion
    from steersman.durable.worker import Worker


def _explain(error: ModuleNotFoundError) -> Exception | None:
    if (error.name or "").partition(".")[0] == "temporalio":
        return MissingExtra("steersman.durable needs temporalio: pip install 'steersman[temporal]'.")
    return None


__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "client": "Client",
        "errors": "DurableError",
        "job": "Outcome",
        "questions": "OpenQuestion",
        "worker": "Worker",
    },
    explain=_explain,
)

__all__ = [
    "Client",
    "DurableError",
    "OpenQuestion",
    "Outcome",
    "Worker",
]
