"""Waiting for the journal: a run goes on once what it did is kept, or once it is known that it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from steersman.loop.run import Run
from steersman.types.content import ToolCall
from steersman.types.errors import describe_exception
from steersman.types.events import CustomEvent


async def save(run: Run) -> None:
    """Wait until what was told so far is kept."""
    if run.journal is not None:
        try:
            await run.journal.save()
            _tell(run, run.journal.degraded)
        except Exception as error:  # noqa: BLE001  # a journal that breaks must not break the run it is for
            run.report(f"The journal raised {describe_exception(error)}.")


async def intend(run: Run, calls: Sequence[ToolCall]) -> None:
    """Wait until it is kept that these calls are about to start."""
    if run.journal is not None:
        try:
            await run.journal.record_intent(calls)
            _tell(run, run.journal.degraded)
        except Exception as error:  # noqa: BLE001  # as above
            run.report(f"The journal raised {describe_exception(error)}.")


def _tell(run: Run, degraded: str | None) -> None:
    """Say so when what happens can no longer be kept, and when it can be again."""
    if degraded != run.unkept:
        run.unkept = degraded
        name = "session_kept" if degraded is None else "session_degraded"
        run.emit(CustomEvent, name=name, data={} if degraded is None else {"reason": run.redacted(degraded)})


async def save_end(run: Run) -> None:
    """Wait until the end of the run is kept, even while it is being cancelled, but not for ever."""
    if run.journal is None:
        return
    loop = asyncio.get_running_loop()
    patience = run.config.gate_timeout
    deadline = None if patience is None else loop.time() + patience
    saving = loop.create_task(save(run))
    while not saving.done() and (deadline is None or loop.time() < deadline):
        try:
            await asyncio.wait((saving,), timeout=None if deadline is None else deadline - loop.time())
        except asyncio.CancelledError:
            # Another cancel of a run that has ended already: what it waits for is what makes the end known.
            run.interrupt()
    if not saving.done():
        saving.cancel()
        run.report("The journal could not say in time that the end of the run is kept.")
