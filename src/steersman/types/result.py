"""`RunResult`: how a run ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.messages import AgentMessage, AssistantMessage, EndReason, ToolResultMessage
from steersman.types.usage import Usage


@dataclass(frozen=True, slots=True)
class RunResult:
    """The new messages of a run, how it ended and what it cost.

    `output` is the validated value when an `output_type` was asked for; `undelivered` are messages still queued.
    `error` describes the failed answer that ended the run: its kind, provider, status, request id, a redacted body.
    """

    messages: list[AgentMessage]
    usage: Usage
    end_reason: EndReason
    detail: str = ""
    output: Any = None
    undelivered: Sequence[AgentMessage] = ()
    error: ErrorInfo | None = None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        for message in reversed(self.messages):
            if type(message) is AssistantMessage:
                return message.text
        return ""

    @property
    def tool_results(self) -> list[ToolResultMessage]:
        """The results of its tool calls, in order."""
        return [message for message in self.messages if type(message) is ToolResultMessage]

    @property
    def error_kind(self) -> ErrorKind | None:
        """The kind of failure that ended the run, where a model's answer failed: `authentication`, `rate_limit`, ..."""
        for message in reversed(self.messages):
            if type(message) is AssistantMessage:
                return message.error_kind if self.end_reason == "error" else None
        return None

    @property
    def cost(self) -> float | None:
        """US dollars, `None` when no price is known; a lower bound when `usage.partial`."""
        return self.usage.cost
