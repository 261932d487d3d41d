"""The events of one turn, from its `turn_start` to its `turn_end`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steersman.testing.spans import SettlingBook, SpanBook, Unfit
from steersman.types.content import well_formed
from steersman.types.events import (
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
        self.book: SpanBook | SettlingBook = SpanBook()
        self.results: list[ToolResultMessage] = []

    def quiet(self, what: str) -> None:
        """Nothing is half said."""
        if self.open is not None:
            raise Unfit(f"expected message_end of the open {self.open.role} message before {what}")
        if self.compacting:
            raise Unfit(f"expected compaction_ended before {what}")

    def settled(self, what: str) -> None:
        """Every tool call is answered as well."""
        self.quiet(what)
        missing = self.book.missing()
        if missing is not None:
            raise Unfit(f"expected {missing} before {what}")

    def message_start(self, event: MessageStart) -> None:
        """Something is about to be said: heard, answered or reported."""
        message = event.message
        self.quiet("message_start")
        if isinstance(message, ToolResultMessage) and message.tool_call_id not in self.given:
            self._settle_old()
            self.book.report(message)
        elif isinstance(message, AssistantMessage) and not message.content:
            self._answer_starts()
        else:
            self._heard(message)
        self.open = message

    def _settle_old(self) -> None:
        """A turn that begins with tool calls, and not with an answer, settles those of an earlier program."""
        if self.fresh:
            self.book = SettlingBook()
            self.fresh = False

    def _answer_starts(self) -> None:
        self.settled("another answer")
        self.fresh = False
        if isinstance(self.book, SettlingBook):
            raise Unfit("expected turn_end: a turn that settles old calls asks no model")
        if len(self.answers) >= self.allowed:
            raise Unfit("expected turn_end: a turn has one answer, and one more only to wrap up after a limit notice")
        self.answering = True
        self.shown, self.updates, self.reset_due = [], 0, False

    def _heard(self, message: AgentMessage) -> None:
        self.settled(f"a message of role {message.role}")
        self.fresh = False
        if _is_limit_notice(message):
            if self.limited:
                raise Unfit("a turn has one limit notice")
            self.limited = True
            self.allowed = len(self.answers) + 1
        elif self.answers or isinstance(self.book, SettlingBook):
            raise Unfit(f"expected turn_end after the answer, not a message of role {message.role}")
        elif self.limited:
            raise Unfit("expected a last answer or turn_end after the limit notice")
        if isinstance(message, AssistantMessage):
            self.given.update(call.id for call in message.tool_calls)

    def message_update(self, event: MessageUpdate) -> None:
        """More of the answer."""
        self._must_answer("message_update")
        delta = event.delta
        if isinstance(delta, Reset):
            if not self.updates:
                raise Unfit("a reset takes back what was shown, and nothing was")
            self.shown, self.updates, self.reset_due = [], 0, False
            return
        if self.reset_due:
            raise Unfit("expected a reset first: the retry makes what was shown void")
        self.updates += 1
        if isinstance(delta, TextDelta):
            self.shown.append(delta.delta)

    def asked_again(self, event: RetryScheduled | ModelFallback) -> None:
        """What was shown of the answer is void."""
        self._must_answer(event.type)
        self.reset_due = self.updates > 0

    def _must_answer(self, what: str) -> None:
        if not self.answering:
            raise Unfit(f"expected message_start of an answer before {what}")

    def message_end(self, message: AgentMessage) -> None:
        """What was begun is said."""
        if self.open is None:
            raise Unfit("expected message_start first")
        if self.answering:
            self._answer_ends(message)
        elif message != self.open:
            raise Unfit(f"expected the message that started, {self.open!r}")
        elif isinstance(message, ToolResultMessage) and message.tool_call_id not in self.given:
            self.results.append(message)
        self.open = None

    def _answer_ends(self, message: AgentMessage) -> None:
        if not isinstance(message, AssistantMessage):
            raise Unfit(f"expected the end of the answer, got a message of role {message.role}")
        self.answering = False
        self.answers.append(message)
        if message.failed or isinstance(self.book, SettlingBook):
            return
        if self.reset_due:
            raise Unfit("expected a reset between the retry and the end of the answer")
        text = well_formed("".join(self.shown))  # a delta may end in the middle of a character
        if text and text != message.text:
            raise Unfit(f"expected the answer to be what was shown, {text!r}, got {message.text!r}")
        self.book.expect(message.tool_calls)

    def span_start(self, event: ToolExecutionStart) -> None:
        """A tool call begins."""
        self.quiet(event.type)
        self._settle_old()
        self.book.start(event)

    def span_update(self, event: ToolExecutionUpdate) -> None:
        """A tool call shows something."""
        self.book.update(event)

    def span_end(self, event: ToolExecutionEnd) -> None:
        """A tool call is settled."""
        self.quiet(event.type)
        self.book.end(event)

    def compaction_started(self, event: CompactionStarted) -> None:
        """Compaction begins: before the answer, or inside one that overflowed after it had begun."""
        if not self.answering:
            self.quiet(event.type)
        if len(self.answers) >= self.allowed:
            raise Unfit("the context is compacted before the answer, not after it")
        self.compacting = True

    def compaction_ended(self, _: CompactionEnded) -> None:
        """Compaction is over."""
        if not self.compacting:
            raise Unfit("expected compaction_started first")
        self.compacting = False

    def after_results(self, event: LoopDetected | PrunApplied) -> None:
        """Something is made of the tool results."""
        self.settled(event.type)
        if not self.results:
            raise Unfit("expected tool results first")

    def end(self, event: TurnEnd) -> None:
        """The turn is over and says what came of it."""
        self.settled("turn_end")
        self._check_answer(event.message)
        if list(event.tool_results) != self.results:
            raise Unfit(
                f"expected turn_end to carry the {len(self.results)} results of its turn in order, "
                f"got {len(event.tool_results)}"
            )

    @property
    def old_calls(self) -> bool:
        """Whether this turn settles the calls of an answer before it."""
        return isinstance(self.book, SettlingBook)

    def _check_answer(self, message: AssistantMessage | None) -> None:
        if isinstance(self.book, SettlingBook):
            if message is None:
                raise Unfit("expected turn_end to carry the answer whose calls were settled, got None")
            self.book.close(message)
        elif message is None and self.answers:
            raise Unfit("expected turn_end to carry the answer of its turn, got None")
        elif message is not None and message not in self.answers:
            raise Unfit("expected turn_end to carry the answer of its turn, got another message")


def _is_limit_notice(message: AgentMessage) -> bool:
    return message.role == "user" and message.synthetic and message.text.startswith("[Agent stopped:")


RULES: dict[type[Any], Callable[[TurnGrammar, Any], None]] = {
    MessageStart: TurnGrammar.message_start,
    MessageUpdate: TurnGrammar.message_update,
    RetryScheduled: TurnGrammar.asked_again,
    ModelFallback: TurnGrammar.asked_again,
    ToolExecutionStart: TurnGrammar.span_start,
    ToolExecutionUpdate: TurnGrammar.span_update,
    ToolExecutionEnd: TurnGrammar.span_end,
    CompactionStarted: TurnGrammar.compaction_started,
    CompactionEnded: TurnGrammar.compaction_ended,
    LoopDetected: TurnGrammar.after_results,
    PrunApplied: TurnGrammar.after_results,
}
"""Which part of a turn judges which event; `message_end` and `turn_end` are handed on by the run's own rules."""
