"""A run inside a tool call of another run: let in by its caps, heard as updates of the call, told as its result."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from steersman.loop.entry import Place
from steersman.loop.run import Run
from steersman.tools.context import ToolContext
from steersman.tools.output import normalize_output
from steersman.types.errors import ToolError
from steersman.types.events import AgentEvent
from steersman.types.result import RunResult
from steersman.types.tools import ToolOutput


@contextmanager
def admitted(ctx: ToolContext) -> Generator[Place]:
    """The place of a run on behalf of a tool call, as long as it takes; `ToolError` where there is no room for it."""
    parent = ctx.scope
    if not isinstance(parent, Run):
        yield Place()
        return
    reason = parent.tracker.start_sub_agent()
    if reason is not None:
        raise ToolError(f"The sub-agent was not started: {reason}. Do the work without it, or wait for another to end.")
    try:
        yield Place(parent, ctx.tool_call_id)
    finally:
        parent.tracker.end_sub_agent()


def told(name: str, event: AgentEvent) -> dict[str, Any]:
    """A sub-agent's event as an update of the parent's tool call."""
    return {"type": "agent_event", "agent": name, "event": event}


def reported(name: str, result: RunResult) -> ToolOutput:
    """What a sub-agent came to, as the result of the call; what kind of failure it was stays readable."""
    details: dict[str, Any] = {"end_reason": result.end_reason, "usage": msgspec.to_builtins(result.usage)}
    if result.error_kind is not None:
        details["error_kind"] = result.error_kind
    if result.error is not None:
        details["error"] = msgspec.to_builtins(result.error)
    if result.end_reason not in ("done", "terminated"):
        text = f"Sub-agent {name!r} ended with {result.end_reason!r}: {result.detail or 'no reason given'}"
        return ToolOutput(f"{text}\n{result.text}".strip(), details, is_error=True)
    if result.output is not None:
        return ToolOutput(normalize_output(result.output).content, details)
    return ToolOutput(result.text or "(the sub-agent gave no text)", details)
