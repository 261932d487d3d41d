"""The tool calls that a crash left open, and what is known about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from steersman.types.content import ToolCall
from steersman.types.messages import AgentMessage, AssistantMessage, ExtensionMessage, ToolResultMessage

UNKNOWN = "Outcome unknown after a crash: the call was running when the program ended. It may have had its effect."
NOT_STARTED = "Not run: the program ended before this call could start."


@dataclass(frozen=True, slots=True)
class Recovery:
    """By call id: the results of calls that had ended, and the calls that were about to start or had started."""

    results: Mapping[str, ToolResultMessage] = field(default_factory=dict[str, ToolResultMessage])
    started: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """The last answer of a transcript, where it stands there, and those of its calls that have no result."""

    message: AssistantMessage
    index: int
    calls: Sequence[ToolCall]


def find_open_calls(messages: Sequence[AgentMessage]) -> OpenCalls | None:
    """The tool calls at the end of a transcript that have no result; `None` if there are none."""
    answered: set[str] = set()
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if type(message) is ToolResultMessage:
            answered.add(message.tool_call_id)
        elif type(message) is AssistantMessage:
            calls = [] if message.failed else [call for call in message.tool_calls if call.id not in answered]
            return OpenCalls(message, index, calls) if calls else None
        elif type(message) is not ExtensionMessage:
            return None
    return None
