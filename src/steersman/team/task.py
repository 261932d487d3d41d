"""The `task` tool: the model gives work to a sub-agent with its own conversation and no more rights than its parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from steersman.agent.agent import Agent
from steersman.agent.options import remove_output_policy
from steersman.loop.run import Run
from steersman.loop.sub_agent import to_output
from steersman.policy.hooks import POLICY_SEAMS, SEAMS
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.errors import ToolError
from steersman.types.guards import is_instance
from steersman.types.tools import ToolOutput

DESCRIPTION = (
    "Hand a piece of work to a sub-agent. It starts with nothing but your prompt, works on its own, and its last "
    "message is the result. Several calls at once run side by side."
)
_BRIEFING = (
    "You are a sub-agent: another agent gave you the task, and nobody will answer questions. Do it on your own. "
    "Your last message is all that is read of your work: put everything in it that was asked for."
)

# What a kind may settle for itself. Nothing here can allow what the parent may not do.
_OPTIONS = frozenset(
    ("context_config", "fallbacks", "limits", "max_tokens", "model", "output_type", "retry", "seed",
     "stop", "temperature", "thinking_level", "tool_execution", "tool_timeout", "top_p")
)  # fmt: skip

# Not inherited: the parent's queues and hooks. Its guards of tool calls apply to sub-agents anyway.
_APART: dict[str, Any] = {
    **dict.fromkeys(("get_follow_up_messages", "get_steering_messages", "message_provider", *SEAMS)),
    **dict.fromkeys(("hooks", "input_filters", *POLICY_SEAMS), ()),
    "tool_choice": "auto",
    "deps": None,  # those of the parent's run, which may have its own
}


class TaskKind:
    """A kind of sub-agent: its description for the model, and its options that differ from the parent's.

    `tools` names some of the parent's; other options are those of `Agent` that give no rights, such as `model`,
    `thinking_level`, `limits` or `output_type`.
    """

    __slots__ = ("description", "options", "system_prompt", "tools")

    def __init__(
        self,
        description: str,
        *,
        tools: Sequence[str] | None = None,
        system_prompt: str | None = None,
        **options: Any,
    ) -> None:
        if not is_instance(description, str) or not description.strip():
            raise ValueError(f"A kind of sub-agent needs words the model can choose by, got {description!r}.")
        if is_instance(tools, str) or not all(is_instance(name, str) for name in tools or ()):
            raise TypeError(f"The tools of a kind are names of the parent's, such as tools=['read'], got {tools!r}.")
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise TypeError(f"A kind of sub-agent has no option {unknown[0]!r}; it has {', '.join(sorted(_OPTIONS))}.")
        self.description = description
        self.tools = None if tools is None else tuple(tools)
        self.system_prompt = system_prompt
        self.options = options

    def __repr__(self) -> str:
        return f"TaskKind({self.description!r})"


_GENERAL = TaskKind("For any work: it can do what you can do.")


def task_tool(
    kinds: Mapping[str, TaskKind] | None = None,
    *,
    name: str = "task",
    description: str = DESCRIPTION,
    **settings: Any,
) -> Tool:
    """The tool with which an agent starts sub-agents: copies of itself, or of the kinds in the table.

    A sub-agent has its own transcript and the tools of its parent, or fewer. `settings` are those of a `Tool`.
    """
    table = {"general": _GENERAL} if kinds is None else dict(kinds)
    for key, kind in table.items():
        if not is_instance(key, str) or not key.strip() or not is_instance(kind, TaskKind):
            raise TypeError(f"Kinds of sub-agents are given as {{'name': TaskKind(...)}}, got {key!r}: {kind!r}.")
    if not table:
        raise ValueError("A task tool needs at least one kind of sub-agent; leave kinds out for the general one.")
    first = next(iter(table))

    async def task(prompt: str, ctx: ToolContext, description: str = "", kind: str = first) -> ToolOutput:
        del description  # for people who watch the run: it is one of the arguments of the call
        if not isinstance(ctx.scope, Run):
            raise ToolError("A task can only be given inside a run.")
        child = _make_child(ctx.scope, kind, table[kind])
        return to_output(kind, await child.run_for(ctx, prompt, name=kind))

    # It changes nothing by itself: every call of a sub-agent meets the gates of its parent.
    settings.setdefault("access", "read")
    return Tool(name, _describe_kinds(description, table), _make_parameters(table), task, **settings)


def _describe_kinds(description: str, table: Mapping[str, TaskKind]) -> str:
    if len(table) == 1:
        return description
    listed = "\n".join(f"- {name}: {kind.description}" for name, kind in table.items())
    return f"{description}\n\nKinds of sub-agents:\n{listed}"


def _make_parameters(table: Mapping[str, TaskKind]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "description": {"type": "string", "description": "What it is about, in a few words."},
        "prompt": {"type": "string", "minLength": 1, "description": "The task, with everything needed to do it."},
    }
    properties["kind"] = {"type": "string", "enum": [*table], "description": "Which kind of sub-agent."}
    return {"type": "object", "properties": properties, "required": ["prompt"], "additionalProperties": False}


def _make_child(parent: Run, name: str, kind: TaskKind) -> Agent[Any]:
    """Copy the parent with an empty conversation and the options of the kind."""
    missing = [tool for tool in kind.tools or () if tool not in parent.tools]
    if missing:
        raise ToolError(
            f"No sub-agent of kind {name!r} here: it needs {', '.join(map(repr, missing))}, which you do not have."
        )
    tools = [tool for tool in parent.tools.values() if kind.tools is None or tool.name in kind.tools]
    prompt = parent.context.system_prompt if kind.system_prompt is None else kind.system_prompt
    config = replace(remove_output_policy(parent.config), stream_fn=parent.client.own, **_APART)
    child = Agent.from_config(config, tools=tools, system_prompt=f"{prompt}\n\n{_BRIEFING}".strip())
    return child.variant(**cast(Any, kind.options)) if kind.options else child
