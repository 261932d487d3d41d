"""The events of a run. Every event carries its run's `loop_id` and a `seq` without gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from steersman.types.continuation import ContinuationKind, TurnTrigger
from steersman.types.errors import ErrorInfo
from steersman.types.frozen import FrozenDict, FrozenList, freeze
from steersman.types.messages import (
    AgentMessage,
    AssistantMessage,
    EndReason,
    Message,
    PartialMessage,
    ToolResultMessage,
)
from steersman.types.stream import Delta
from steersman.types.usage import Usage


class _Event(msgspec.Struct, frozen=True, tag_field="type", gc=False):
    loop_id: str
    seq: int
    timestamp: float


class LoopConfigSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The configuration of a run as plain values: never a key, never a callable."""

    model: str
    thinking_level: str = "off"
    max_tokens: int | None = None
    temperature: float | None = None
    tools: Sequence[str] = ()
    tool_execution: str = "parallel"
    steering: str = "skip"
    limits: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    fallbacks: Sequence[str] = ()
    top_p: float | None = None
    stop: Sequence[str] = ()
    seed: int | None = None


class AgentStart(_Event, frozen=True, tag="agent_start"):
    """A run begins."""

    type: ClassVar[Literal["agent_start"]] = "agent_start"
    agent_id: str
    session_id: str
    continuation_kind: ContinuationKind
    parent_loop_id: str | None = None
    parent_tool_call_id: str | None = None
    config_snapshot: LoopConfigSnapshot | None = None


class AgentEnd(_Event, frozen=True, tag="agent_end"):
    """A run is over; nothing follows. `messages` are the new ones."""

    type: ClassVar[Literal["agent_end"]] = "agent_end"
    messages: Sequence[AgentMessage]
    usage: Usage
    end_reason: EndReason
    detail: str = ""

    def __post_init__(self) -> None:
        _freeze_list(self, "messages")


class TurnStart(_Event, frozen=True, tag="turn_start"):
    """A turn begins."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"
    turn_index: int
    triggered_by: TurnTrigger


class TurnEnd(_Event, frozen=True, tag="turn_end"):
    """A turn is over.

    `reason` is `steered` if calls of it were skipped or cancelled for a steering message; else the answer's stop
    reason, or what ended the turn before there was an answer.
    """

    type: ClassVar[Literal["turn_end"]] = "turn_end"
    turn_index: int
    message: AssistantMessage | None
    tool_results: Sequence[ToolResultMessage]
    reason: str

    def __post_init__(self) -> None:
        if type(self.tool_results) is not FrozenList:
            _freeze_list(self, "tool_results")


class TurnRequest(_Event, frozen=True, tag="turn_request"):
    """The request that is about to be sent, as the provider gets it; only with `events=("request",)`. It has no key.

    `tools` have `name`, `description` and `parameters`. A retry or a fallback sends the same request again.
    """

    type: ClassVar[Literal["turn_request"]] = "turn_request"
    turn_index: int
    model: str
    system_prompt: str
    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]]
    options: dict[str, Any]

    def __post_init__(self) -> None:
        _freeze_list(self, "messages")
        for name in ("tools", "options"):
            force_setattr(self, name, freeze(getattr(self, name)))


class MessageStart(_Event, frozen=True, tag="message_start"):
    """A message begins; an answer's is empty at this point."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    message: AgentMessage


class _SourceSlot:
    """A slot for the function that reads the partial message after so many deltas, and the `seq` of the event before
    the first delta; it is no struct field, so it is never encoded.
    """

    __slots__ = ("_source",)


class MessageUpdate(_SourceSlot, msgspec.Struct, frozen=True, tag="message_update", tag_field="type", gc=False):
    """More of an answer: `delta` is what is new, `message` the answer so far."""

    type: ClassVar[Literal["message_update"]] = "message_update"
    loop_id: str
    seq: int
    timestamp: float
    delta: Delta

    @property
    def message(self) -> PartialMessage | None:
        """The answer so far; `None` on a decoded event.

        It is read-only, is only put together when it is read, and goes on growing afterwards: copy it to keep it.
        """
        source: tuple[Callable[[int], PartialMessage], int] | None = getattr(self, "_source", None)
        if source is None:
            return None
        read, before = source
        return read(self.seq - before)


class MessageEnd(_Event, frozen=True, tag="message_end"):
    """A message is complete and in the transcript."""

    type: ClassVar[Literal["message_end"]] = "message_end"
    message: AgentMessage


class _ToolEvent(_Event, frozen=True):
    """The fields of all tool events; `args` are the arguments the tool really gets."""

    tool_call_id: str
    tool_name: str
    args: dict[str, Any] = msgspec.field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        if type(self.args) is not FrozenDict:
            force_setattr(self, "args", freeze(self.args))


class ToolExecutionStart(_ToolEvent, frozen=True, tag="tool_execution_start"):
    """A tool call begins."""

    type: ClassVar[Literal["tool_execution_start"]] = "tool_execution_start"


class ToolExecutionUpdate(_ToolEvent, frozen=True, tag="tool_execution_update"):
    """A running tool reports progress, partial output, or the event of a sub-agent."""

    type: ClassVar[Literal["tool_execution_update"]] = "tool_execution_update"
    update: Any = None

    def __post_init__(self) -> None:
        _ToolEvent.__post_init__(self)
        force_setattr(self, "update", freeze(self.update))


class ToolExecutionEnd(_ToolEvent, frozen=True, tag="tool_execution_end", kw_only=True):
    """A tool call has its result; `duration` is in seconds."""

    type: ClassVar[Literal["tool_execution_end"]] = "tool_execution_end"
    result: ToolResultMessage
    is_error: bool = False
    duration: float = 0.0


class ApprovalRequested(_Event, frozen=True, tag="approval_requested"):
    """A tool call needs approval; `agent.approve(approval_id)` and `agent.deny(approval_id)` answer.

    `preview` shows what the call would do, `reason` says why it needs approval, and `deadline` is the Unix time when
    the question expires. For the call of a sub-agent, `parent_tool_call_id` is the call of this run that it works for.
    """

    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    approval_id: str
    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    preview: str
    reason: str
    deadline: float | None
    parent_tool_call_id: str | None = None

    def __post_init__(self) -> None:
        if type(self.args) is not FrozenDict:
            force_setattr(self, "args", freeze(self.args))


class ApprovalResolved(_Event, frozen=True, tag="approval_resolved"):
    """A question about a tool call is answered.

    `by` is `"function"` (the `approve` function), `"loop"` (no answer was possible or came in time) or the name given
    to `agent.approve` or `agent.deny`, `"application"` by default.
    """

    type: ClassVar[Literal["approval_resolved"]] = "approval_resolved"
    approval_id: str
    decision: Literal["approved", "denied", "expired"]
    by: str
    reason: str


class CompactionStarted(_Event, frozen=True, tag="compaction_started"):
    """The context is about to be compacted."""

    type: ClassVar[Literal["compaction_started"]] = "compaction_started"
    estimated_tokens: int
    message_count: int


class CompactionEnded(_Event, frozen=True, tag="compaction_ended"):
    """Compaction is over; `reduced` says whether the context is shorter.

    The tokens are estimates of all that is sent, as in the limit: system prompt, tool schemas and messages.
    """

    type: ClassVar[Literal["compaction_ended"]] = "compaction_ended"
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    reduced: bool
    error: str | None = None


class PrunApplied(_Event, frozen=True, tag="prun_applied"):
    """The model dropped some of its own work from what it sees."""

    type: ClassVar[Literal["prun_applied"]] = "prun_applied"
    entry_ids: Sequence[str]
    tokens_removed: int
    memo: str | None = None

    def __post_init__(self) -> None:
        _freeze_list(self, "entry_ids")


class InputRejected(_Event, frozen=True, tag="input_rejected"):
    """An input filter rejected messages; `source` is `prompt`, `steering` or `follow_up`."""

    type: ClassVar[Literal["input_rejected"]] = "input_rejected"
    reason: str
    source: Literal["prompt", "steering", "follow_up"]


class RetryScheduled(_Event, frozen=True, tag="retry_scheduled"):
    """The request is retried after `delay` seconds."""

    type: ClassVar[Literal["retry_scheduled"]] = "retry_scheduled"
    attempt: int
    delay: float
    error: ErrorInfo


class ModelFallback(_Event, frozen=True, tag="model_fallback"):
    """The request goes to another model instead."""

    type: ClassVar[Literal["model_fallback"]] = "model_fallback"
    from_model: str
    to_model: str
    error: ErrorInfo


class LoopDetected(_Event, frozen=True, tag="loop_detected"):
    """The model repeats itself; `action` is what the loop does about it."""

    type: ClassVar[Literal["loop_detected"]] = "loop_detected"
    tool_names: Sequence[str]
    repetitions: int
    action: Literal["nudge", "stop"]

    def __post_init__(self) -> None:
        _freeze_list(self, "tool_names")


class CustomEvent(_Event, frozen=True, tag="custom"):
    """An application's own event, or one of the library that is too rare to have a type."""

    type: ClassVar[Literal["custom"]] = "custom"
    name: str
    data: Any = None

    def __post_init__(self) -> None:
        force_setattr(self, "data", freeze(self.data))


class UnknownEvent(_Event, frozen=True):
    """An event of a type that this version does not know; its fields are kept unchanged. Only `decode` gives it."""

    fields: dict[str, Any]

    @property
    def type(self) -> str:
        """The type in its fields."""
        return self.fields["type"]


def _freeze_list(event: msgspec.Struct, name: str) -> None:
    value = getattr(event, name)
    if type(value) is not FrozenList:
        force_setattr(event, name, FrozenList(value))


AgentEvent: TypeAlias = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | TurnRequest
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | ApprovalRequested
    | ApprovalResolved
    | CompactionStarted
    | CompactionEnded
    | PrunApplied
    | InputRejected
    | RetryScheduled
    | ModelFallback
    | LoopDetected
    | CustomEvent
)
"""What a run emits. `UnknownEvent` is no part of it, so that `event.type` tells a type checker the class."""
