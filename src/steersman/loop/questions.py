"""Open questions: tool calls that need approval, and the answers to them.

A question is told by the run whose call it is about and by all runs above it, so it can be answered at each of their
agents. The first answer counts, from whichever thread it comes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from steersman.types.errors import UnknownApproval
from steersman.types.guards import is_instance

if TYPE_CHECKING:
    from steersman.context.repair import OpenQuestion
    from steersman.loop.question import Question
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
