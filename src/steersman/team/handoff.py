"""`Handoff`: one conversation that agents pass to each other; the one that has it answers, until it hands it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import msgspec

from steersman.loop.entry import read_prompts
from steersman.loop.sub_agent import to_output
from steersman.policy.hooks import PolicyView
from steersman.policy.verdicts import Stop
from steersman.team.parts import PARAMETERS, add_details, get_run, get_story, run_part
from steersman.team.pattern import (
    Call,
    Fail,
    Part,
    PartLike,
    Pattern,
    PatternOptions,
    Say,
    Step,
    check_count,
    read_parts,
)
from steersman.team.story import Story, join_texts
from steersman.tools.output import ToolContext
from steersman.tools.tool import Tool
from steersman.types.guards import is_instance
from steersman.types.messages import AgentMessage, ToolResultMessage, UserMessage
from steersman.types.tools import ToolOutput

_KEY = "hand_off_to"
_PARAMETERS = {
    "type": "object",
    "properties": {"reason": {"type": "string", "description": "Why, and what is left to do."}},
    "required": ["reason"],
    "additionalProperties": False,
}


class Handoff(Pattern):
    """Agents that pass one conversation to each other: the first begins, and each can hand it on to the others.

    Each gets a tool `hand_off_to_NAME` for every other one, or for those that `to` names for it. A call of it ends the
    run of the agent; the other agent goes on with the whole conversation, the tool calls included, and also gets the
    next prompts. After `max_handoffs` in one run the run ends as an error. `options` are those of `PatternOptions`.
    """

    __slots__ = ()

    def __init__(
        self,
        agents: Mapping[str, PartLike],
        *,
        to: Mapping[str, Sequence[str]] | None = None,
        max_handoffs: int = 10,
        **options: Unpack[PatternOptions],
    ) -> None:
        if not is_instance(agents, Mapping):
            raise TypeError(f"The agents of a handoff are a dict of agents by name, got {agents!r}.")
        check_count("max_handoffs", max_handoffs)
        parts = read_parts(agents, "handoff")
        targets = _read_targets(parts, to)
        tools = [
            _make_member_tool(name, part, [make_handoff_tool(target, parts[target]) for target in targets[name]])
            for name, part in parts.items()
        ]
        super().__init__("handoff", _Conversation([*parts], max_handoffs), tools, **options)


def _read_targets(parts: Mapping[str, Part], to: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
    if to is None:
        return {name: [other for other in parts if other != name] for name in parts}
    for name, others in to.items():
        wrong = [one for one in (name, *others) if one not in parts]
        if is_instance(others, str) or wrong or name in others:
            raise ValueError(
                f"'to' says who can hand off to whom, as {{'name': ['other', ...]}} with names of agents "
                f"({', '.join(parts)}), got {name!r}: {others!r}."
            )
    return {name: list(to.get(name, ())) for name in parts}


def make_handoff_tool(name: str, part: Part) -> Tool:
    """The tool with which an agent hands the conversation to another one."""

    async def hand_off(reason: str) -> ToolOutput:
        return ToolOutput(f"{name!r} takes over.", {_KEY: name, "reason": reason}, terminate=True)

    description = f"Hand the conversation over to {name!r}, who sees all of it and answers in your place."
    if part.description:
        description = f"{description} {name!r}: {part.description}"
    return Tool(f"hand_off_to_{name}", description, _PARAMETERS, hand_off, access="read")


def _stop_after_handoff(view: PolicyView) -> Stop | None:
    """End the run of an agent that has handed the conversation on, also if it called other tools beside."""
    target = _find_target(view.tool_results)
    return None if target is None else Stop(f"handed off to {target!r}")


def _find_target(messages: Sequence[AgentMessage]) -> str | None:
    """Who the conversation was handed to first."""
    results = [message for message in messages if isinstance(message, ToolResultMessage) and not message.is_error]
    return next((result.details[_KEY] for result in results if _KEY in result.details), None)


def _make_member_tool(name: str, part: Part, handoffs: Sequence[Tool]) -> Tool:
    async def take_part(prompt: str, ctx: ToolContext) -> ToolOutput:
        history, waiting = read_conversation(get_run(ctx).context.log.messages)
        # After a hand-off the prompt is a note of the pattern; else it is what the user said and none has answered.
        good = [outcome for outcome in get_story(ctx).outcomes if outcome.ok]
        is_note = bool(good) and _KEY in good[-1].message.details
        agent, config = part.agent, part.agent.config
        result, heard = await run_part(
            agent,
            ctx,
            waiting if waiting and not is_note else read_prompts(prompt),
            name,
            tools=[*agent.tools, *handoffs],
            messages=history,
            post_turn_policies=[*config.post_turn_policies, _stop_after_handoff],
        )
        said = msgspec.to_builtins(result.messages)
        target = _find_target(result.messages) if result.end_reason in ("stopped", "terminated") else None
        if target is None:
            output = to_output(name, result)
            return output if output.is_error else add_details(output, heard=heard, conversation=said)
        reason = next(
            message.details["reason"]
            for message in result.messages
            if isinstance(message, ToolResultMessage) and message.details.get(_KEY) == target
        )
        details = {"usage": msgspec.to_builtins(result.usage), _KEY: target, "reason": reason}
        output = ToolOutput(f"{name!r} hands off to {target!r}: {reason}", details)
        return add_details(output, heard=heard, conversation=said)

    return Tool(name, part.description or f"The agent {name!r}.", PARAMETERS, take_part, access="read")


def read_conversation(messages: Sequence[AgentMessage]) -> tuple[list[AgentMessage], list[UserMessage]]:
    """What the agents and the user said so far, as one conversation, and what the user said that none has heard."""
    history: list[AgentMessage] = []
    waiting: list[UserMessage] = []
    heard: list[str] = []
    for message in messages:
        if type(message) is UserMessage and not message.synthetic:
            if message.text in heard:
                heard.remove(message.text)
            else:
                waiting.append(message)
        elif type(message) is ToolResultMessage and "conversation" in message.details:
            said = msgspec.to_builtins(message.details["conversation"])
            history.extend(msgspec.convert(said, list[AgentMessage]))
            heard = list(message.details.get("heard", ()))
            waiting = []
    return history, waiting


class _Conversation:
    """The plan of a handoff."""

    __slots__ = ("_max_handoffs", "_names")

    def __init__(self, names: Sequence[str], max_handoffs: int) -> None:
        self._names = names
        self._max_handoffs = max_handoffs

    def decide(self, story: Story, messages: Sequence[AgentMessage]) -> Step:
        last = story.last
        if last is None:
            return [Call(self._find_active(messages), story.text)]
        if story.should_repeat(last):
            return [Call(last.name, story.add_unheard(last.prompt))]
        if not last.ok:
            return Fail(last.text, last.message)
        target = last.message.details.get(_KEY)
        if target is None:
            return [Call(last.name, join_texts(story.unheard))] if story.unheard else Say(last.text)
        count = sum(_KEY in outcome.message.details for outcome in story.outcomes)
        if count > self._max_handoffs:
            return Fail(f"Max hand-offs reached ({self._max_handoffs}/{self._max_handoffs}): {last.text}")
        note = f"{last.text}\n\nGo on with the conversation in place of {last.name!r}."
        return [Call(cast(str, target), story.add_unheard(note))]

    def _find_active(self, messages: Sequence[AgentMessage]) -> str:
        """Who has the conversation: the agent that was called last, or that it was handed to."""
        for message in reversed(messages):
            if isinstance(message, ToolResultMessage):
                name: Any = message.details.get(_KEY, message.tool_name)
                if name in self._names:
                    return name
        return self._names[0]
