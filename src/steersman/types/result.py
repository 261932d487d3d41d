"""`RunResult`: how a run ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar, cast

from steersman.types.errors import ErrorInfo, ErrorKind, RunFailed, to_exception
from steersman.types.messages import AgentMessage, AssistantMessage, EndReason, ToolResultMessage
from steersman.types.output import Absent, OutputT
from steersman.types.usage import Usage

NewOutputT = TypeVar("NewOutputT")

_GOOD_ENDS = frozenset(("done", "terminated"))


@dataclass(frozen=True, slots=True)
class RunResult(Generic[OutputT]):
    """The new messages of a run, how it ended and what it cost; `undelivered` are messages still queued.

    `error` describes the failed answer that ended the run: its kind, provider, status, request id, a redacted body.
    `output` is no field, because it raises where there is none: `dataclasses.replace` changes the others, and
    `with_output` changes the output.
    """

    messages: list[AgentMessage]
    usage: Usage
    end_reason: EndReason
    detail: str = ""
    _output: Any = Absent.TEXT
    undelivered: Sequence[AgentMessage] = ()
    error: ErrorInfo | None = None

    @property
    def ended_well(self) -> bool:
        """Whether the run came to its end by itself: the model had nothing left to do, or a tool ended the run."""
        return self.end_reason in _GOOD_ENDS

    @property
    def has_output(self) -> bool:
        """Whether there is an `output` to read."""
        return self.ended_well if self._output is Absent.TEXT else self._output is not Absent.NOTHING

    @property
    def output(self) -> OutputT:
        """The value of the `output_type` that was asked for, checked; without one, the text of the last answer.

        Raises `RunFailed` where there is none, because the run failed or was stopped.
        """
        if not self.has_output:
            raise self._explain("The run has no output: it ended with")
        found: Any = self.text if self._output is Absent.TEXT else self._output
        return found

    def with_output(self, value: NewOutputT) -> RunResult[NewOutputT]:
        """A copy with another output, for instance one that was checked once more, or one for a test."""
        return replace(cast("RunResult[NewOutputT]", self), _output=value)

    def raise_for_error(self) -> Self:
        """Raise `RunFailed` unless the run ended well; else return this result."""
        if not self.ended_well:
            raise self._explain("The run ended with")
        return self

    def _explain(self, words: str) -> RunFailed:
        failed = RunFailed(f"{words} {self.end_reason!r}{f': {self.detail}' if self.detail else '.'}", self)
        failed.__cause__ = None if self.error is None else to_exception(self.error)
        return failed

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


def find_value(result: RunResult[Any]) -> Any:
    """The value of the `output_type` that was asked for; `None` where there is none, or only a text."""
    value = result._output  # pyright: ignore[reportPrivateUsage]  # it belongs to the same module
    return None if isinstance(value, Absent) else value
