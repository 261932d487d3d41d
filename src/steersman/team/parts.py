"""The tools of a pattern: each runs one part as a sub-agent, which hears what is said to the pattern meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from steersman.agent.agent import Agent
from steersman.loop.config import resolve
from steersman.loop.entry import read_prompts
from steersman.loop.inbox import QueuedMessage, Receipt
from steersman.loop.run import Run
from steersman.loop.sub_agent import run_sub_agent, to_output
from steersman.team.pattern import Part, Pattern
from steersman.team.story import Story
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.errors import ToolError
from steersman.types.messages import AgentMessage, MessageLike
from steersman.types.result import RunResult
from steersman.types.tools import ToolOutput

PARAMETERS = {
    "type": "object",
    "properties": {"prompt": {"type": "string"}},
    "required": ["prompt"],
    "additionalProperties": False,
}

Finish: TypeAlias = Callable[[RunResult[Any], ToolContext], Awaitable[ToolOutput]]
"""Makes the output of a call of the result of its part."""


def make_part_tool(name: str, part: Part, finish: Finish | None = None) -> Tool:
    """The tool with which a pattern calls one of its parts."""

    async def call_part(prompt: str, ctx: ToolContext) -> ToolOutput:
        result, heard = await run_part(part.agent, ctx, read_part_prompts(prompt, ctx), name)
        output = to_output(name, result)
        if finish is not None and not output.is_error:
            output = await finish(result, ctx)
        return add_details(output, heard=heard)

    # It changes nothing by itself: every call of the part meets the gates of its parents.
    return Tool(name, part.description or f"The part {name!r}.", PARAMETERS, call_part, access="read")


def add_details(output: ToolOutput, **details: Any) -> ToolOutput:
    """The output with more details; empty ones are left out."""
    more = {key: value for key, value in details.items() if value}
    return msgspec.structs.replace(output, details={**output.details, **more}) if more else output


def get_run(ctx: ToolContext) -> Run:
    """The run of the pattern; `ToolError` outside of one."""
    if not isinstance(ctx.scope, Run) or not isinstance(ctx.scope.host, Pattern):
        raise ToolError("A part of a pattern can only be called by its pattern.")
    return ctx.scope


def get_story(ctx: ToolContext) -> Story:
    """The story of the request that the pattern works on."""
    host = get_run(ctx).host
    assert isinstance(host, Pattern)
    return host.script.read()


def read_part_prompts(prompt: str, ctx: ToolContext) -> Sequence[AgentMessage]:
    """The prompts of a part: the user's own messages, with their images, where it works on the request itself."""
    story = get_story(ctx)
    return story.request if prompt == story.text else read_prompts(prompt)


async def run_part(
    agent: Agent[Any], ctx: ToolContext, prompts: Sequence[AgentMessage], name: str, **changes: Any
) -> tuple[RunResult[Any], list[str]]:
    """Run a part as a sub-agent; also returns what it heard of the messages that wait for the pattern."""
    source = _Overheard(get_run(ctx), agent)
    child = agent.make_sub_agent(**cast(Any, {**changes, "get_steering_messages": source.poll}))
    return await run_sub_agent(child, ctx, prompts, name), source.heard


class _Overheard:
    """Steering for a part: what waits for its pattern, and for the patterns above, besides its own source.

    The messages stay in the queue of the pattern, whose transcript gets them too.
    """

    __slots__ = ("_own", "_run", "_seen", "heard")

    def __init__(self, run: Run, agent: Agent[Any]) -> None:
        provider = agent.config.message_provider
        self._own = agent.config.get_steering_messages or (None if provider is None else provider.poll_steering)
        self._run = run
        self._seen: list[Receipt] = []
        self.heard: list[str] = []

    async def poll(self) -> list[MessageLike]:
        """What has come since the last time."""
        found: list[MessageLike] = []
        for item in _find_waiting(self._run):
            if not any(item.receipt is receipt for receipt in self._seen):
                self._seen.append(item.receipt)
                self.heard.append(item.message.text)
                found.append(item.message)
        if self._own is not None:
            found.extend(await resolve(self._own()) or ())
        return found


def _find_waiting(run: Run) -> list[QueuedMessage]:
    """The steering that waits for the run of a pattern, and for the patterns that it is a part of."""
    waiting = [item for item in run.inbox.items if item.kind == "steering"]
    parent = run.parent
    return waiting if parent is None or not isinstance(parent.host, Pattern) else [*_find_waiting(parent), *waiting]
