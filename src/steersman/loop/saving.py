"""The journal of a run: it is a write-ahead log, and the run waits for it. Without a journal nothing is done."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.loop.run import Run
from steersman.types.content import ToolCall
from steersman.types.errors import describe_exception
from steersman.types.events import CustomEvent


async def save(run: Run) -> None:
    """Wait until the journal has saved what was emitted so far."""
    if run.journal is not None:
        try:
            await run.journal.save()
            _report_saving(run, run.journal.degraded)
        except Exception as error:  # noqa: BLE001  # a journal that breaks must not break the run it records
            run.log_problem(f"The journal raised {describe_exception(error)}.")


async def save_intent(run: Run, calls: Sequence[ToolCall]) -> None:
    """Wait until the journal has saved that these calls are about to start."""
    if run.journal is not None:
        try:
            await run.journal.record_intent(calls)
            _report_saving(run, run.journal.degraded)
        except Exception as error:  # noqa: BLE001  # as above
            run.log_problem(f"The journal raised {describe_exception(error)}.")


def _report_saving(run: Run, failure: str | None) -> None:
    """Emit when what happens can no longer be saved, and when it can be again."""
    if failure != run.save_failure:
        run.save_failure = failure
        name = "session_kept" if failure is None else "session_degraded"
        run.emit(CustomEvent, name=name, data={} if failure is None else {"reason": run.redact(failure)})
