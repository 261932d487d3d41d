"""The tool calls of one turn: each one started and ended once, then answered, in the order of the calls.

A turn that settles the calls of an earlier program's answer tells of them before anyone knows which they are; there, a
call that had ended before has its answer alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.types.content import ToolCall
from steersman.types.events import ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from steersman.types.messages import AssistantMessage, ToolResultMessage


class Unfit(Exception):
    """An event does not fit; the text is what was expected instead."""


class SettlingBook:
    """Keeps account of old calls that are settled: what they were is known when the turn ends."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._ended: dict[str, ToolResultMessage | None] = {}
        self._reported: list[str] = []

    def missing(self) -> str | None:
        """What is still owed, or `None`."""
        for call_id, result in self._ended.items():
            if result is None:
                return f"tool_execution_end of {call_id!r}"
            if call_id not in self._reported:
                return f"the result message of {call_id!r}"
        return None

    def start(self, event: ToolExecutionStart) -> None:
        """A span begins."""
        if event.tool_call_id in self._ended:
            raise Unfit(f"expected one tool_execution_start of {event.tool_call_id!r}, got a second")
        self._names[event.tool_call_id] = event.tool_name
        self._ended[event.tool_call_id] = None

    def update(self, event: ToolExecutionUpdate) -> None:
        """A span shows something."""
        self._running(event)

    def end(self, event: ToolExecutionEnd) -> None:
        """A span ends."""
        self._running(event)
        _check_end(event)
        self._ended[event.tool_call_id] = event.result

    def report(self, message: ToolResultMessage) -> None:
        """A result message begins: all spans are over."""
        if message.tool_call_id in self._reported:
            raise Unfit(f"expected one result of {message.tool_call_id!r}, got a second")
        for call_id, result in self._ended.items():
            if result is None:
                raise Unfit(f"expected tool_execution_end of {call_id!r} before the first result message")
        told = self._ended.get(message.tool_call_id)
        if told is not None:
            _check_told(told, message)
        self._names[message.tool_call_id] = message.tool_name
        self._reported.append(message.tool_call_id)

    def close(self, answer: AssistantMessage) -> None:
        """The answer whose calls these were."""
        names = {call.id: call.name for call in answer.tool_calls}
        for call_id, name in self._names.items():
            if names.get(call_id) != name:
                raise Unfit(f"expected a call of the answer in turn_end, got {name!r} as {call_id!r}")
        wanted = [call_id for call_id in names if call_id in self._reported]
        if not wanted or wanted != self._reported:
            raise Unfit(f"expected results in the order of the calls, {wanted}, got {self._reported}")

    def _running(self, event: ToolExecutionUpdate | ToolExecutionEnd) -> None:
        if event.tool_call_id not in self._ended:
            raise Unfit(f"expected tool_execution_start of {event.tool_call_id!r} first")
        if self._ended[event.tool_call_id] is not None:
            raise Unfit(f"expected nothing of {event.tool_call_id!r} after its tool_execution_end")


class SpanBook:
    """Keeps account of the calls an answer made."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._unreported: list[str] = []
        self._started: set[str] = set()
        self._ended: dict[str, ToolResultMessage] = {}

    def expect(self, calls: Sequence[ToolCall]) -> None:
        """An answer with these calls is complete."""
        for call in calls:
            if call.id in self._names:
                raise Unfit(f"expected call ids to be unique, got {call.id!r} again")
            self._names[call.id] = call.name
            self._unreported.append(call.id)

    def missing(self) -> str | None:
        """What is still owed, or `None`."""
        for call_id in self._names:
            if call_id not in self._started:
                return f"tool_execution_start of {call_id!r}"
            if call_id not in self._ended:
                return f"tool_execution_end of {call_id!r}"
        return f"the result message of {self._unreported[0]!r}" if self._unreported else None

    def start(self, event: ToolExecutionStart) -> None:
        """A span begins."""
        self._known(event)
        if event.tool_call_id in self._started:
            raise Unfit(f"expected one tool_execution_start of {event.tool_call_id!r}, got a second")
        self._started.add(event.tool_call_id)

    def update(self, event: ToolExecutionUpdate) -> None:
        """A span shows something."""
        self._running(event)

    def end(self, event: ToolExecutionEnd) -> None:
        """A span ends."""
        self._running(event)
        _check_end(event)
        self._ended[event.tool_call_id] = event.result

    def report(self, message: ToolResultMessage) -> None:
        """A result message begins: all spans are over, and it is its turn."""
        running = [call_id for call_id in self._names if call_id not in self._ended]
        if running:
            raise Unfit(f"expected tool_execution_end of {running[0]!r} before the first result message")
        if not self._unreported:
            raise Unfit(f"expected no more results, got one for {message.tool_call_id!r}")
        if self._unreported[0] != message.tool_call_id:
            raise Unfit(f"expected the result of {self._unreported[0]!r}, got that of {message.tool_call_id!r}")
        _check_told(self._ended[message.tool_call_id], message)
        del self._unreported[0]

    def _known(self, event: ToolExecutionStart | ToolExecutionUpdate | ToolExecutionEnd) -> None:
        name = self._names.get(event.tool_call_id)
        if name is None:
            raise Unfit(f"expected a call of this turn's answer, got {event.tool_call_id!r}")
        if name != event.tool_name:
            raise Unfit(f"expected the tool {name!r} for {event.tool_call_id!r}, got {event.tool_name!r}")

    def _running(self, event: ToolExecutionUpdate | ToolExecutionEnd) -> None:
        self._known(event)
        if event.tool_call_id not in self._started:
            raise Unfit(f"expected tool_execution_start of {event.tool_call_id!r} first")
        if event.tool_call_id in self._ended:
            raise Unfit(f"expected nothing of {event.tool_call_id!r} after its tool_execution_end")


def _check_end(event: ToolExecutionEnd) -> None:
    if event.result.tool_call_id != event.tool_call_id:
        raise Unfit(f"expected the result of {event.tool_call_id!r}, got that of {event.result.tool_call_id!r}")
    if event.is_error != event.result.is_error:
        raise Unfit(f"expected is_error to be that of the result, {event.result.is_error}")


def _check_told(told: ToolResultMessage, message: ToolResultMessage) -> None:
    if (told.content, told.is_error, told.details) != (message.content, message.is_error, message.details):
        raise Unfit(f"expected the result its tool_execution_end told of, {told!r}")
