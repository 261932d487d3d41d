"""Open questions: tool calls that need approval, and the answers to them.

A question is told by the run whose call it is about and by all runs above it, so it can be answered at each of their
agents. The first answer counts, from whichever thread it comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from steersman.tools.calling import call_soon_in, is_running_in
from steersman.types.errors import UnknownApproval
from steersman.types.events import ApprovalRequested, ApprovalResolved
from steersman.types.guards import is_instance

if TYPE_CHECKING:
    from steersman.context.repair import OpenQuestion
    from steersman.loop.run import Run

Decision: TypeAlias = Literal["approved", "denied", "expired"]

BY_LOOP = "loop"
_REMEMBERED_IDS = 1_000
_NONE: dict[str, Any] = {}
"""What agents share that have asked no question; it is replaced, never changed."""

_keeping = threading.Lock()


class Answer(msgspec.Struct, frozen=True):
    """The answer to a question: the decision, who gave it, and why; `remember` is for the same call later on."""

    decision: Decision
    by: str
    reason: str = ""
    remember: bool = False


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


class Questions:
    """The open questions of an agent, by their ids."""

    __slots__ = ("_resolved", "early", "open", "recovered")

    def __init__(self) -> None:
        self.open: dict[str, Question] = _NONE
        # The ids of the last ones, in order.
        self._resolved: dict[str, None] = _NONE
        # Answers to questions that are yet to be asked again after a crash.
        self.early: dict[str, Answer] = _NONE
        # By call id: the questions that were open when another program ended, while their calls are settled.
        self.recovered: Mapping[str, OpenQuestion] = _NONE

    def add(self, question: Question) -> None:
        """From here on the question can be answered."""
        if self.open is _NONE:
            self.open = {}
        self.open[question.id] = question

    def answer(self, approval_id: str, answer: Answer) -> bool:
        """Answer a question; returns whether the answer counts, which it does not if there is one already."""
        for name, value in (("approval_id", approval_id), ("reason", answer.reason), ("by", answer.by)):
            if not is_instance(value, str):
                raise TypeError(f"{name} is a string, got {value!r}.")
        if not is_instance(answer.remember, bool):
            raise TypeError(f"remember is True or False, got {answer.remember!r}.")
        question = self.open.get(approval_id)
        if question is not None:
            return question.decide(answer)
        if approval_id in self._resolved:
            return False
        raise UnknownApproval(
            f"This agent has asked no question with the id {approval_id!r}. "
            "Take approval_id from an approval_requested event, or from agent.open_approvals."
        )

    def answer_or_keep(self, approval_id: str, answer: Answer) -> None:
        """Answer a question, or keep the answer until it is asked: a crash may have cut it off. For any thread."""
        if approval_id in self._resolved:
            return
        with _keeping:  # two threads keep their answers in the same place
            if self.early is _NONE:
                self.early = {}
        self.early[approval_id] = answer
        while len(self.early) > _REMEMBERED_IDS:
            del self.early[next(iter(self.early))]
        # Only now: a question that is opened meanwhile finds the answer itself.
        if (question := self.open.get(approval_id)) is not None:
            self.early.pop(approval_id, None)
            question.decide(answer)

    def remove(self, approval_id: str) -> None:
        """A question is resolved: its id is known for a while, so that a second answer is no error."""
        if self._resolved is _NONE:
            self._resolved = {}
        self._resolved[approval_id] = None
        if len(self._resolved) > _REMEMBERED_IDS:
            del self._resolved[next(iter(self._resolved))]
        self.open.pop(approval_id, None)

    def close_call(self, run: Run, call_id: str) -> None:
        """A call has its result: a question about it, or about a call made for it, is over."""
        for question in list(self.open.values()):
            if question.is_about(run, call_id):
                question.close()

    def approve_moot(self, by: str) -> None:
        """Approve the questions that an answer for good to another one has answered as well."""
        for question in list(self.open.values()):
            if question.is_moot():
                question.decide(Answer("approved", by, "the same call was approved for good"))

    def deny_unanswerable(self) -> None:
        """Deny the questions that no agent can answer any more."""
        for question in list(self.open.values()):
            if not question.is_answerable:
                question.decide(Answer("denied", BY_LOOP, "the last subscriber that could answer has gone"))


def _never() -> bool:
    return False


def can_answer(run: Run) -> bool:
    """Whether the run's agent has said that questions are answered: by a function, a subscriber or the application."""
    return run.config.approve is not None or run.dispatcher.answers
