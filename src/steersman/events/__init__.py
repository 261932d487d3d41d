"""Events: every subscriber gets each one before the loop goes on, and none can break the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.events.dispatch import Subscriber, SubscriptionId
    from steersman.events.stream import EventStream, create_agent_stream
    from steersman.types.events import (
        AgentEnd,
        AgentEvent,
        AgentStart,
        ApprovalRequested,
        ApprovalResolved,
        CompactionEnded,
        CompactionStarted,
        CustomEvent,
        InputRejected,
        LoopConfigSnapshot,
        LoopDetected,
        MessageEnd,
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
        TurnStart,
        UnknownEvent,
    )

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "dispatch": "Subscriber SubscriptionId",
        "steersman.types.events": (
            "AgentEnd AgentEvent AgentStart ApprovalRequested ApprovalResolved CompactionEnded "
            "CompactionStarted CustomEvent InputRejected LoopConfigSnapshot LoopDetected "
            "MessageEnd MessageStart MessageUpdate ModelFallback PrunApplied RetryScheduled "
            "ToolExecutionEnd ToolExecutionStart ToolExecutionUpdate TurnEnd TurnRequest TurnStart UnknownEvent"
        ),
        "stream": "EventStream create_agent_stream",
    },
)

__all__ = [
    "AgentEnd",
    "AgentEvent",
    "AgentStart",
    "ApprovalRequested",
    "ApprovalResolved",
    "CompactionEnded",
    "CompactionStarted",
    "CustomEvent",
    "EventStream",
    "InputRejected",
    "LoopConfigSnapshot",
    "LoopDetected",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "ModelFallback",
    "PrunApplied",
    "RetryScheduled",
    "Subscriber",
    "SubscriptionId",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnRequest",
    "TurnStart",
    "UnknownEvent",
    "create_agent_stream",
]
