"""A run inside a tool call of another run: it counts in its limits, its events are updates of the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from steersman.loop.entry import Host, Inherited, Start, start_run
from steersman.loop.run import Run
from steersman.tools.output import ToolContext, normalize_output
from steersman.tools.tool import Tool
from steersman.types.continuation import Initial
from steersman.types.errors import ToolError
from steersman.types.events import AgentEvent
from steersman.types.messages import AgentMessage
from steersman.types.result import RunResult, find_value
from steersman.types.tools import ToolOutput

_PARAMETERS = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What to do, with everything needed to do it."}},
    "required": ["prompt"],
    "additionalProperties": False,
}


@contextmanager
def enter_sub_agent(ctx: ToolContext) -> Generator[Inherited]:
    """Count a sub-agent in the limits of the run of `ctx` and yield what it inherits; `ToolError` at a limit."""
    parent = ctx.scope
    if not isinstance(parent, Run):
        yield Inherited()
        return
    reason = parent.tracker.start_sub_agent()
    if reason is not None:
        raise ToolError(f"The sub-agent was not started: {reason}. Do the work without it, or wait for another to end.")
    try:
        yield Inherited(parent, ctx.tool_call_id)
    finally:
        parent.tracker.end_sub_agent()


def wrap_event(name: str, event: AgentEvent) -> dict[str, Any]:
    """A sub-agent's event as an update of the parent's tool call."""
    return {"type": "agent_event", "agent": name, "event": event}


async def run_sub_agent(child: Host, ctx: ToolContext, prompts: Sequence[AgentMessage], name: str) -> RunResult[Any]:
    """Run an agent on behalf of a tool call; the subscribers of its run get the events as updates of the call."""
    with enter_sub_agent(ctx) as inherited:
        if inherited.parent is None or inherited.parent.has_followers:
            child.dispatcher.subscribe(lambda event: ctx.update(wrap_event(name, event)))
        return await start_run(child, Start(prompts, Initial(), inherited=inherited, silent=True))


def build_tool(
    run_for: Callable[..., Awaitable[RunResult[Any]]], name: str, description: str, settings: dict[str, Any]
) -> Tool:
    """The tool that hands its prompt to an agent; `run_for` is a method of the agent."""

    async def delegate(prompt: str, ctx: ToolContext) -> ToolOutput:
        return to_output(name, await run_for(ctx, prompt, name=name))

    # It changes nothing by itself: every call of the sub-agent passes the gates of its parents.
    settings.setdefault("access", "read")
    return Tool(name, description, _PARAMETERS, delegate, **settings)


def to_output(name: str, result: RunResult[Any]) -> ToolOutput:
    """The result of a sub-agent as the output of the tool call; `details` has the end reason and the error kind."""
    details: dict[str, Any] = {"end_reason": result.end_reason, "usage": msgspec.to_builtins(result.usage)}
    if result.error_kind is not None:
        details["error_kind"] = result.error_kind
    if result.error is not None:
        details["error"] = msgspec.to_builtins(result.error)
    if result.end_reason not in ("done", "terminated"):
        text = f"Sub-agent {name!r} ended with {result.end_reason!r}: {result.detail or 'no reason given'}"
        return ToolOutput(f"{text}\n{result.text}".strip(), details, is_error=True)
    if (value := find_value(result)) is not None:
        return ToolOutput(normalize_output(value).content, details)
    return ToolOutput(result.text or "(the sub-agent gave no text)", details)
