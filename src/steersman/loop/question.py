"""A question about a tool call that needs approval, and how it gets its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.loop.questions import BY_LOOP, Answer
from steersman.tools.threads import call_soon_in, is_running_in
from steersman.types.events import ApprovalRequested, ApprovalResolved

if TYPE_CHECKING:
    from steersman.loop.run import Run


class Level(NamedTuple):
    """A run that tells a question, and its tool call: the one in question, or the one that a sub-agent works for."""

    run: Run
    call_id: str


class Question:
    """One question. `answerers` are the runs whose agents can answer it; empty if a function is asked instead."""

    __slots__ = (
        "_closed",
        "_fields",
        "_future",
        "_levels",
        "_lock",
        "_loop",
        "_seq",
        "_time",
        "answer",
        "answerers",
        "id",
        "is_moot",
    )

    def __init__(
        self, levels: Sequence[Level], fields: dict[str, Any], seconds: float | None, answerers: Sequence[Run] = ()
    ) -> None:
        self.id: str = fields.pop("approval_id", None) or levels[0].run.new_id("approval")
        self.answer: Answer | None = None
        self.answerers = answerers
        # Whether the call needs approval no more, because the same call was approved for good.
        self.is_moot: Callable[[], bool] = _never
        # What subscribers read; the event loop's own clock says when it is over.
        self._time = levels[0].run.clock()
        deadline = None if seconds is None else self._time + seconds
        self._fields: dict[str, Any] = {"approval_id": self.id, **fields, "deadline": deadline}
        self._closed = False
        self._levels = levels
        self._seq = levels[-1].run.seq
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None

    @property
    def is_answerable(self) -> bool:
        """Whether an answer can still come."""
        return not self.answerers or any(can_answer(run) for run in self.answerers)

    def is_about(self, run: Run, call_id: str) -> bool:
        """Whether this is about a call of this run, or of a sub-agent that works for it."""
        return any(level.run is run and level.call_id == call_id for level in self._levels)

    def open(self) -> None:
        """Tell the question; from here on it can be answered."""
        for level in self._levels:
            level.run.host.questions.add(self)
        for level in self._levels:
            level.run.emit(ApprovalRequested, **self._fields, parent_tool_call_id=self._find_parent_call(level))
        for level in self._levels:
            early = level.run.host.questions.early.pop(self.id, None)
            if early is not None:
                self.decide(early)

    def decide(self, answer: Answer) -> bool:
        """Answer, unless there is an answer already; returns whether this one counts. Safe from other threads."""
        with self._lock:
            if self.answer is not None:
                return False
            self.answer = answer
        if is_running_in(self._loop):
            self._wake()
        else:
            call_soon_in(self._loop, self._wake)
        return True

    async def wait(self) -> Answer:
        """Wait for the answer."""
        while self.answer is None:
            self._future = self._loop.create_future()
            await self._future
        return self.answer

    def close(self) -> None:
        """Tell the answer, once; a question without one is denied, since its call is not going to run."""
        if self._closed:
            return
        self._closed = True
        aborted = self._levels[0].run.token.cancelled
        self.decide(Answer("denied", BY_LOOP, "operation aborted" if aborted else "the call was cancelled"))
        assert self.answer is not None
        answer = self.answer
        for level in self._levels:
            level.run.host.questions.remove(self.id)
        for level in self._levels:
            level.run.emit(
                ApprovalResolved,
                approval_id=self.id,
                decision=answer.decision,
                by=answer.by,
                reason=answer.reason,
            )

    def describe(self) -> ApprovalRequested:
        """The question as the event that the outermost run told."""
        level = self._levels[-1]
        parent = self._find_parent_call(level)
        return ApprovalRequested(level.run.loop_id, self._seq, self._time, **self._fields, parent_tool_call_id=parent)

    def _find_parent_call(self, level: Level) -> str | None:
        return None if level is self._levels[0] else level.call_id

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


def _never() -> bool:
    return False


def can_answer(run: Run) -> bool:
    """Whether the run's agent has said that questions are answered: by a function, a subscriber or the application."""
    return run.config.approve is not None or run.dispatcher.answers
