"""How a run ends: its phase, which only moves forward, its reason to end, and the cancels that lead to it.

The first reason stays, with one exception: an abort while the run ends for another reason replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from steersman.tools.threads import call_soon_in, is_running_in
from steersman.types.cancel import CancelToken
from steersman.types.errors import ErrorInfo
from steersman.types.messages import EndReason

if TYPE_CHECKING:
    from steersman.loop.run import Run

DEADLINE = "deadline"
"""The cancel reason of a run that took too long."""

ABORTED = "aborted"
"""The usual cancel reason; any other one is told as the detail of the end."""

# A cancelled task has this many seconds to clean up before it is cancelled again. After this many attempts `give_up` is
# called; without one, the attempts go on.
_AGAIN = 1.0
_ATTEMPTS = 5


class Phase(IntEnum):
    """Where a run is between its start and its end."""

    NEW = 0
    """No event was emitted."""
    RUNNING = 1
    """`agent_start` was emitted."""
    AT_LIMIT = 2
    """The notice of a limit is in the log: at most one more answer follows."""
    ENDED = 3
    """`agent_end` was emitted: no event and no message follows."""
    RELEASED = 4
    """The context is free for another run, and the result is known."""


class Ending:
    """The phase of a run, and why and how it ends."""

    __slots__ = ("cancelled_by", "cancels", "detail", "error", "is_closing", "phase", "reason")

    def __init__(self) -> None:
        self.phase = Phase.NEW
        # Whether `agent_end` is the next event, or was emitted.
        self.is_closing = False
        self.reason: EndReason | None = None
        self.detail = ""
        # What is known of the failure: of the last answer, or of what else ended the run.
        self.error: ErrorInfo | None = None
        # The canceller, once the run has noticed the cancel: its own token, or another task that cancelled its task.
        self.cancelled_by: Literal["token", "task"] | None = None
        # How many cancels of the task came from the run itself, because of its token, and were not taken back yet.
        self.cancels = 0

    def finish(self, reason: EndReason, detail: str = "") -> None:
        """Set why the run ends, unless there is a reason already."""
        if self.reason is None:
            self.reason = reason
            self.detail = detail

    def prefer_abort(self, token: CancelToken) -> None:
        """Replace the reason by an abort that came while the run was ending; a veto and a rejection stay."""
        if self.reason not in ("vetoed", "rejected", "aborted"):
            self.reason = "aborted"
            why = describe_abort(token)
            self.detail = f"{why} ({self.detail})" if self.detail else why

    def fail_after_end(self, detail: str) -> None:
        """Make a run that ended well a failed one, because `after_loop` raised; any other reason stays."""
        if self.reason == "done":
            self.reason, self.detail, self.error = "error", detail, None


def describe_abort(token: CancelToken) -> str:
    """Why a run was aborted: the reason of the token, unless it is the usual one."""
    return "operation aborted" if token.reason in (None, ABORTED) else token.reason


class CancelWatch:
    """Cancels the task of a run when its token, its deadline, its parent or the caller's signal says so.

    `give_up` is called when the task was cancelled again and again and still goes on.
    """

    __slots__ = ("_deadline", "_give_up", "_loop", "_run", "_undo")

    def __init__(self, run: Run, give_up: Callable[[Run], None] | None = None) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._give_up = give_up
        self._undo: list[Callable[[], object]] = []
        self._deadline: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        run, loop = self._run, self._loop
        run.watch = self
        self._undo.append(run.token.on_cancel(self._cancel_task))
        self.set_deadline()
        if run.parent is not None:
            parent = run.parent.token
            self._undo.append(parent.on_cancel(lambda: run.token.cancel(parent.reason or "aborted")))
        signal = run.start.signal
        if isinstance(signal, CancelToken):
            self._undo.append(signal.on_cancel(run.token.cancel))
        elif signal is not None:
            self._undo.append(loop.create_task(_wait_for(signal, run.token)).cancel)

    def set_deadline(self) -> None:
        """Cancel the run at the deadline of its tracker, and no longer at an earlier one."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        run = self._run
        if (deadline := run.tracker.deadline) is not None:
            self._deadline = self._loop.call_at(deadline, run.token.cancel, DEADLINE)

    def __exit__(self, *_: object) -> None:
        self._run.watch = None  # else the two keep each other until the garbage collector comes
        if self._deadline is not None:
            self._deadline.cancel()
        for undo in reversed(self._undo):
            undo()

    def _cancel_task(self, attempt: int = 1) -> None:
        """Cancel the task. If called from the task itself, wait one step: it may notice the cancel by itself."""
        run, loop = self._run, self._loop
        if run.task is None or run.ending.cancelled_by is not None or run.task.done():
            return
        if not is_running_in(loop):
            call_soon_in(loop, self._cancel_task)
        elif asyncio.current_task(loop) is run.task:
            loop.call_soon(self._cancel_task)
        elif attempt > _ATTEMPTS and self._give_up is not None:
            self._give_up(run)
        else:
            run.ending.cancels += 1
            run.task.cancel()
            # A stream that swallows its cancel is cancelled again: it must not hold up a run that was stopped.
            loop.call_later(_AGAIN, self._cancel_task, attempt + 1)


async def _wait_for(signal: asyncio.Event, token: CancelToken) -> None:
    await signal.wait()
    token.cancel()
