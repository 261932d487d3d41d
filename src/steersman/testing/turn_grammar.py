"""The grammar of one turn: which events may follow each other from its `turn_start` to its `turn_end`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.testing.call_grammar import AnswerCalls, OpenQuestions, RecoveredCalls, UnexpectedEvent
from steersman.types.content import replace_lone_surrogates
from steersman.types.events import (
    ApprovalRequested,
    ApprovalResolved,
    CompactionEnded,
    CompactionStarted,
    LoopDetected,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    PrunApplied,
    RetryScheduled,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
    TurnRequest,
)
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.stream import Reset, TextDelta


class TurnGrammar:
    """What has happened in one turn. Only the `first` of a run may settle the calls of an answer before it."""

    def __init__(self, *, first: bool = False) -> None:
        self.fresh = first
        self.open: AgentMessage | None = None
        self.answering = False
        self.compacting = False
        self.limited = False
        self.answers: list[AssistantMessage] = []
        self.allowed = 1
        self.shown: list[str] = []
        self.reset_due = False
        self.updates = 0
        self.given: set[str] = set()
        self.book: AnswerCalls | RecoveredCalls = AnswerCalls()
        self.questions = OpenQuestions()
        self.results: list[ToolResultMessage] = []

    def check_quiet(self, what: str) -> None:
        """Check that no message and no compaction is open."""
        if self.open is not None:
            raise UnexpectedEvent(f"expected message_end of the open {self.open.role} message before {what}")
        if self.compacting:
            raise UnexpectedEvent(f"expected compaction_ended before {what}")

    def check_no_open_calls(self, what: str) -> None:
        """Check that, in addition, every tool call has its result."""
        self.check_quiet(what)
        missing = self.book.describe_missing()
        if missing is not None:
            raise UnexpectedEvent(f"expected {missing} before {what}")

    def start_message(self, event: MessageStart) -> None:
        """Check the start of a message: input, an answer or a tool result."""
        message = event.message
        self.check_quiet("message_start")
        if isinstance(message, ToolResultMessage) and message.tool_call_id not in self.given:
            self._settle_old()
            self.book.report(message)
        elif isinstance(message, AssistantMessage) and not message.content:
            self._start_answer()
        else:
            self._start_input(message)
        self.open = message

    def _settle_old(self) -> None:
        """Note that this turn settles calls of an earlier program: it begins with tool calls and not with an answer."""
        if self.fresh:
            self.book = RecoveredCalls()
            self.fresh = False

    def _start_answer(self) -> None:
        self.check_no_open_calls("another answer")
        self.fresh = False
        if isinstance(self.book, RecoveredCalls):
            raise UnexpectedEvent("expected turn_end: a turn that settles old calls asks no model")
        if len(self.answers) >= self.allowed:
            raise UnexpectedEvent(
                "expected turn_end: a turn has one answer, and one more only to wrap up after a limit notice"
            )
        self.answering = True
        self.shown, self.updates, self.reset_due = [], 0, False

    def _start_input(self, message: AgentMessage) -> None:
        self.check_no_open_calls(f"a message of role {message.role}")
        self.fresh = False
        if _is_limit_notice(message):
            if self.limited:
                raise UnexpectedEvent("a turn has one limit notice")
            self.limited = True
            self.allowed = len(self.answers) + 1
        elif self.answers or isinstance(self.book, RecoveredCalls):
            raise UnexpectedEvent(f"expected turn_end after the answer, not a message of role {message.role}")
        elif self.limited:
            raise UnexpectedEvent("expected a last answer or turn_end after the limit notice")
        if isinstance(message, AssistantMessage):
            self.given.update(call.id for call in message.tool_calls)

    def update_message(self, event: MessageUpdate) -> None:
        """Check an update of the answer."""
        self._check_answering("message_update")
        delta = event.delta
        if isinstance(delta, Reset):
            if not self.updates:
                raise UnexpectedEvent("a reset takes back what was shown, and nothing was")
            self.shown, self.updates, self.reset_due = [], 0, False
            return
        if self.reset_due:
            raise UnexpectedEvent("expected a reset first: the retry makes what was shown void")
        self.updates += 1
        if isinstance(delta, TextDelta):
            self.shown.append(delta.delta)

    def reset_answer(self, event: RetryScheduled | ModelFallback) -> None:
        """Check a reset of the answer."""
        self._check_answering(event.type)
        self.reset_due = self.updates > 0

    def _check_answering(self, what: str) -> None:
        if not self.answering:
            raise UnexpectedEvent(f"expected message_start of an answer before {what}")

    def end_message(self, message: AgentMessage) -> None:
        """Check the end of a message."""
        if self.open is None:
            raise UnexpectedEvent("expected message_start first")
        if self.answering:
            self._end_answer(message)
        elif message != self.open:
            raise UnexpectedEvent(f"expected the message that started, {self.open!r}")
        elif isinstance(message, ToolResultMessage) and message.tool_call_id not in self.given:
            self.results.append(message)
        self.open = None

    def _end_answer(self, message: AgentMessage) -> None:
        if not isinstance(message, AssistantMessage):
            raise UnexpectedEvent(f"expected the end of the answer, got a message of role {message.role}")
        self.answering = False
        self.answers.append(message)
        if message.failed or isinstance(self.book, RecoveredCalls):
            return
        if self.reset_due:
            raise UnexpectedEvent("expected a reset between the retry and the end of the answer")
        text = replace_lone_surrogates("".join(self.shown))  # a delta may end in the middle of a character
        if text and text != message.text:
            raise UnexpectedEvent(f"expected the answer to be what was shown, {text!r}, got {message.text!r}")
        self.book.expect(message.tool_calls)

    def start_span(self, event: ToolExecutionStart) -> None:
        """Check the start of a tool call."""
        self.check_quiet(event.type)
        self._settle_old()
        self.questions.check_resolved(event)
        self.book.start(event)

    def update_span(self, event: ToolExecutionUpdate) -> None:
        """Check an update of a tool call."""
        self.book.update(event)

    def end_span(self, event: ToolExecutionEnd) -> None:
        """Check the end of a tool call."""
        self.check_quiet(event.type)
        self.questions.check_resolved(event)
        self.book.end(event)

    def ask(self, event: ApprovalRequested) -> None:
        """Check a question about a call."""
        self.check_quiet(event.type)
        self._settle_old()
        self.book.ask(event)
        self.questions.open(event)

    def resolve(self, event: ApprovalResolved) -> None:
        """Check the answer to a question."""
        self.questions.resolve(event)

    def check_request(self, event: TurnRequest) -> None:
        """Check the request of an answer, which may have started already if an earlier request did not fit."""
        self.check_no_open_calls("turn_request")
        if self.open is not None and not self.answering:
            raise UnexpectedEvent(f"expected message_end of the open {self.open.role} message before turn_request")
        if self.open is None and len(self.answers) >= self.allowed:
            raise UnexpectedEvent("expected turn_end: no answer may follow, so none is requested")

    def start_compaction(self, event: CompactionStarted) -> None:
        """Check the start of a compaction: before the answer, or inside one that overflowed after its start."""
        if not self.answering:
            self.check_quiet(event.type)
        if len(self.answers) >= self.allowed:
            raise UnexpectedEvent("the context is compacted before the answer, not after it")
        self.compacting = True

    def end_compaction(self, _: CompactionEnded) -> None:
        """Check the end of a compaction."""
        if not self.compacting:
            raise UnexpectedEvent("expected compaction_started first")
        self.compacting = False

    def check_after_results(self, event: LoopDetected | PrunApplied) -> None:
        """Check an event that follows the tool results."""
        self.check_no_open_calls(event.type)
        if not self.results:
            raise UnexpectedEvent("expected tool results first")

    def end(self, event: TurnEnd) -> None:
        """Check the end of the turn, with its message and its tool results."""
        self.check_no_open_calls("turn_end")
        self._check_answer(event.message)
        if list(event.tool_results) != self.results:
            raise UnexpectedEvent(
                f"expected turn_end to carry the {len(self.results)} results of its turn in order, "
                f"got {len(event.tool_results)}"
            )

    @property
    def old_calls(self) -> bool:
        """Whether this turn settles the calls of an answer before it."""
        return isinstance(self.book, RecoveredCalls)

    def _check_answer(self, message: AssistantMessage | None) -> None:
        if isinstance(self.book, RecoveredCalls):
            if message is None:
                raise UnexpectedEvent("expected turn_end to carry the answer whose calls were settled, got None")
            self.book.close(message)
        elif message is None and self.answers:
            raise UnexpectedEvent("expected turn_end to carry the answer of its turn, got None")
        elif message is not None and message not in self.answers:
            raise UnexpectedEvent("expected turn_end to carry the answer of its turn, got another message")


def _is_limit_notice(message: AgentMessage) -> bool:
    return message.role == "user" and message.synthetic and message.text.startswith("[Agent stopped:")


RULES: dict[type[Any], Callable[[TurnGrammar, Any], None]] = {
    MessageStart: TurnGrammar.start_message,
    MessageUpdate: TurnGrammar.update_message,
    RetryScheduled: TurnGrammar.reset_answer,
    ModelFallback: TurnGrammar.reset_answer,
    ApprovalRequested: TurnGrammar.ask,
    ApprovalResolved: TurnGrammar.resolve,
    ToolExecutionStart: TurnGrammar.start_span,
    ToolExecutionUpdate: TurnGrammar.update_span,
    ToolExecutionEnd: TurnGrammar.end_span,
    TurnRequest: TurnGrammar.check_request,
    CompactionStarted: TurnGrammar.start_compaction,
    CompactionEnded: TurnGrammar.end_compaction,
    LoopDetected: TurnGrammar.check_after_results,
    PrunApplied: TurnGrammar.check_after_results,
}
"""Which part of a turn judges which event; `message_end` and `turn_end` are handed on by the run's own rules."""
