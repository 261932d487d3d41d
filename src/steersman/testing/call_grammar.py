"""The grammar of the tool calls of a turn: their spans, the questions about them, and their results."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.types.content import ToolCall
from steersman.types.events import (
    ApprovalRequested,
    ApprovalResolved,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from steersman.types.messages import AssistantMessage, ToolResultMessage


class UnexpectedEvent(Exception):
    """The event is not allowed here; the text says what was expected instead."""


class OpenQuestions:
    """Tracks the questions about calls: each is resolved before its call starts, or before it ends."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._known: set[str] = set()
        self._asked: set[str] = set()

    def open(self, event: ApprovalRequested) -> None:
        """Check a question."""
        if event.approval_id in self._known:
            raise UnexpectedEvent(f"expected one approval_requested of {event.approval_id!r}, got a second")
        self._known.add(event.approval_id)
        if event.parent_tool_call_id is None:
            if event.tool_call_id in self._asked:
                raise UnexpectedEvent(f"expected one approval_requested about {event.tool_call_id!r}, got a second")
            self._asked.add(event.tool_call_id)
        self._open[event.approval_id] = event.parent_tool_call_id or event.tool_call_id

    def resolve(self, event: ApprovalResolved) -> None:
        """Check the answer to a question."""
        if self._open.pop(event.approval_id, None) is None:
            raise UnexpectedEvent(
                f"expected approval_requested of {event.approval_id!r} first, and one approval_resolved"
            )

    def check_resolved(self, event: ToolExecutionStart | ToolExecutionEnd) -> None:
        """Check that no question about this call is open."""
        for approval_id, call_id in self._open.items():
            if call_id == event.tool_call_id:
                raise UnexpectedEvent(f"expected approval_resolved of {approval_id!r} before {event.type}")


class RecoveredCalls:
    """Tracks the calls of an earlier program that this turn settles; which these are is known when the turn ends."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._ended: dict[str, ToolResultMessage | None] = {}
        self._reported: list[str] = []

    def describe_missing(self) -> str | None:
        """What is still missing, or `None`."""
        for call_id, result in self._ended.items():
            if result is None:
                return f"tool_execution_end of {call_id!r}"
            if call_id not in self._reported:
                return f"the result message of {call_id!r}"
        return None

    def start(self, event: ToolExecutionStart) -> None:
        """Check the start of a call."""
        if event.tool_call_id in self._ended:
            raise UnexpectedEvent(f"expected one tool_execution_start of {event.tool_call_id!r}, got a second")
        self._names[event.tool_call_id] = event.tool_name
        self._ended[event.tool_call_id] = None

    def update(self, event: ToolExecutionUpdate) -> None:
        """Check an update of a call."""
        self._check_running(event.tool_call_id)

    def ask(self, event: ApprovalRequested) -> None:
        """Check a question: the call has not started, or the call that a sub-agent works for is running."""
        if event.parent_tool_call_id is not None:
            self._check_running(event.parent_tool_call_id)
        elif event.tool_call_id in self._ended:
            raise UnexpectedEvent(
                f"expected approval_requested about {event.tool_call_id!r} before its tool_execution_start"
            )

    def end(self, event: ToolExecutionEnd) -> None:
        """Check the end of a call."""
        self._check_running(event.tool_call_id)
        _check_end(event)
        self._ended[event.tool_call_id] = event.result

    def report(self, message: ToolResultMessage) -> None:
        """Check a result message: all calls must have ended."""
        if message.tool_call_id in self._reported:
            raise UnexpectedEvent(f"expected one result of {message.tool_call_id!r}, got a second")
        for call_id, result in self._ended.items():
            if result is None:
                raise UnexpectedEvent(f"expected tool_execution_end of {call_id!r} before the first result message")
        told = self._ended.get(message.tool_call_id)
        if told is not None:
            _check_same_result(told, message)
        self._names[message.tool_call_id] = message.tool_name
        self._reported.append(message.tool_call_id)

    def close(self, answer: AssistantMessage) -> None:
        """Compare with the answer whose calls these were."""
        names = {call.id: call.name for call in answer.tool_calls}
        for call_id, name in self._names.items():
            if names.get(call_id) != name:
                raise UnexpectedEvent(f"expected a call of the answer in turn_end, got {name!r} as {call_id!r}")
        wanted = [call_id for call_id in names if call_id in self._reported]
        if not wanted or wanted != self._reported:
            raise UnexpectedEvent(f"expected results in the order of the calls, {wanted}, got {self._reported}")

    def _check_running(self, call_id: str) -> None:
        if call_id not in self._ended:
            raise UnexpectedEvent(f"expected tool_execution_start of {call_id!r} first")
        if self._ended[call_id] is not None:
            raise UnexpectedEvent(f"expected nothing of {call_id!r} after its tool_execution_end")


class AnswerCalls:
    """Tracks the tool calls of an answer."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._unreported: list[str] = []
        self._started: set[str] = set()
        self._ended: dict[str, ToolResultMessage] = {}

    def expect(self, calls: Sequence[ToolCall]) -> None:
        """Expect these calls, now that their answer is complete."""
        for call in calls:
            if call.id in self._names:
                raise UnexpectedEvent(f"expected call ids to be unique, got {call.id!r} again")
            self._names[call.id] = call.name
            self._unreported.append(call.id)

    def describe_missing(self) -> str | None:
        """What is still missing, or `None`."""
        for call_id in self._names:
            if call_id not in self._started:
                return f"tool_execution_start of {call_id!r}"
            if call_id not in self._ended:
                return f"tool_execution_end of {call_id!r}"
        return f"the result message of {self._unreported[0]!r}" if self._unreported else None

    def start(self, event: ToolExecutionStart) -> None:
        """Check the start of a call."""
        self._check_call(event)
        if event.tool_call_id in self._started:
            raise UnexpectedEvent(f"expected one tool_execution_start of {event.tool_call_id!r}, got a second")
        self._started.add(event.tool_call_id)

    def update(self, event: ToolExecutionUpdate) -> None:
        """Check an update of a call."""
        self._check_call(event)
        self._check_running(event.tool_call_id)

    def ask(self, event: ApprovalRequested) -> None:
        """Check a question: the call has not started, or the call that a sub-agent works for is running."""
        if event.parent_tool_call_id is not None:
            self._check_running(event.parent_tool_call_id)
            return
        self._check_call(event)
        if event.tool_call_id in self._started:
            raise UnexpectedEvent(
                f"expected approval_requested about {event.tool_call_id!r} before its tool_execution_start"
            )

    def end(self, event: ToolExecutionEnd) -> None:
        """Check the end of a call."""
        self._check_call(event)
        self._check_running(event.tool_call_id)
        _check_end(event)
        self._ended[event.tool_call_id] = event.result

    def report(self, message: ToolResultMessage) -> None:
        """Check a result message: all calls must have ended, and results come in the order of the calls."""
        running = [call_id for call_id in self._names if call_id not in self._ended]
        if running:
            raise UnexpectedEvent(f"expected tool_execution_end of {running[0]!r} before the first result message")
        if not self._unreported:
            raise UnexpectedEvent(f"expected no more results, got one for {message.tool_call_id!r}")
        if self._unreported[0] != message.tool_call_id:
            raise UnexpectedEvent(
                f"expected the result of {self._unreported[0]!r}, got that of {message.tool_call_id!r}"
            )
        _check_same_result(self._ended[message.tool_call_id], message)
        del self._unreported[0]

    def _check_call(
        self, event: ApprovalRequested | ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd
    ) -> None:
        name = self._names.get(event.tool_call_id)
        if name is None:
            raise UnexpectedEvent(f"expected a call of this turn's answer, got {event.tool_call_id!r}")
        if name != event.tool_name:
            raise UnexpectedEvent(f"expected the tool {name!r} for {event.tool_call_id!r}, got {event.tool_name!r}")

    def _check_running(self, call_id: str) -> None:
        if call_id not in self._started:
            raise UnexpectedEvent(f"expected tool_execution_start of {call_id!r} first")
        if call_id in self._ended:
            raise UnexpectedEvent(f"expected nothing of {call_id!r} after its tool_execution_end")


def _check_end(event: ToolExecutionEnd) -> None:
    if event.result.tool_call_id != event.tool_call_id:
        raise UnexpectedEvent(
            f"expected the result of {event.tool_call_id!r}, got that of {event.result.tool_call_id!r}"
        )
    if event.is_error != event.result.is_error:
        raise UnexpectedEvent(f"expected is_error to be that of the result, {event.result.is_error}")


def _check_same_result(told: ToolResultMessage, message: ToolResultMessage) -> None:
    if (told.content, told.is_error, told.details) != (message.content, message.is_error, message.details):
        raise UnexpectedEvent(f"expected the result its tool_execution_end told of, {told!r}")
