"""What the loop in a workflow makes of the outcome of an activity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from steersman.durable.workflow_agent.activities import UNKNOWN
from steersman.types.errors import ErrorInfo, OutcomeUnknown, ToolError
from steersman.types.messages import AssistantMessage
from steersman.types.stream import Done, Failed, StreamEvent
from steersman.types.usage import Usage


async def yield_event(event: Done | Failed) -> AsyncGenerator[StreamEvent]:
    """An answer as a stream: its deltas stay where the model was asked."""
    yield event


def raise_if_cancelled() -> None:
    """Raise `CancelledError` for an activity that the loop has cancelled: in a workflow that is an `ActivityError`."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def build_failure(error: ActivityError) -> Failed:
    """The answer of a model whose activity failed for good."""
    cause = error.cause
    words = str(cause) if cause is not None else str(error)
    message = AssistantMessage(stop_reason="error", error_message=words, error_kind="internal")
    return Failed(message, ErrorInfo("internal", words, retryable=False))


def explain_lost_call(error: ActivityError) -> ToolError:
    """What the model reads about a call whose activity failed."""
    cause = error.cause
    if isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START:
        return ToolError("Not run: no worker took the call in time.")
    if isinstance(cause, ApplicationError) and cause.type != UNKNOWN:
        return ToolError(f"Not run: {cause.message}")
    return OutcomeUnknown(str(cause or error))


def subtract_usage(total: Usage, answer: Usage) -> Usage | None:
    """What is in the total beside the answer; `None` if nothing is."""
    if total == answer or not total.known:
        return None
    counts: dict[str, Any] = {
        name: max((getattr(total, name) or 0) - (getattr(answer, name) or 0), 0)
        for name in ("input", "output", "cache_read", "cache_write", "reasoning")
    }
    cost = None if total.cost is None else max(total.cost - (answer.cost or 0), 0.0)
    return msgspec.structs.replace(Usage(**counts), cost=cost) if any(counts.values()) or cost else None
