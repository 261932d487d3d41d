"""A scripted agent with someone who listens, and short forms of what was heard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from steersman import Agent, AgentEvent, AgentMessage
from steersman.testing import EventCollector, ScriptedModel
from steersman.types.events import (
    AgentEnd,
    InputRejected,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)


def listened(script: ScriptedModel, **options: Any) -> tuple[Agent, EventCollector]:
    """An agent that plays the script, and everything it tells."""
    agent = Agent(script.model, **options)
    events = EventCollector()
    agent.subscribe(events)
    return agent, events


def said(messages: Iterable[AgentMessage]) -> list[str]:
    """Who said what."""
    return [said_one(message) for message in messages]


def said_one(message: AgentMessage) -> str:
    """Who said it, and what; tools that were asked for stand in brackets."""
    if message.role == "assistant" and message.tool_calls:
        return f"assistant: {message.text}[{', '.join(call.name for call in message.tool_calls)}]"
    return f"{message.role}: {message.text}"


def asked(script: ScriptedModel, number: int = -1) -> list[str]:
    """What the model was shown in one of its requests, the last one unless told."""
    return said(script.requests[number][0].messages)


def outline(events: Iterable[AgentEvent]) -> list[str]:
    """One line per event, with what matters; a message is told once, at its end, and deltas not at all."""
    return [line for line in map(_line, events) if line]


def _line(event: AgentEvent) -> str:
    match event:
        case MessageStart() | MessageUpdate():
            return ""
        case MessageEnd():
            return said_one(event.message)
        case TurnStart():
            return f"turn_start {event.turn_index} {event.triggered_by}"
        case TurnEnd():
            return f"turn_end {event.turn_index} {event.reason}"
        case AgentEnd():
            return f"agent_end {event.end_reason}"
        case ToolExecutionStart():
            return f"start {event.tool_name}"
        case ToolExecutionEnd():
            return f"end {event.tool_name}"
        case InputRejected():
            return f"input_rejected {event.source}: {event.reason}"
        case _:
            return event.type


def answering(value: object) -> Any:
    """A hook, policy or filter that always gives this answer, whatever it is asked."""

    def give(*_: object) -> object:
        return value

    return give


def doing(act: Callable[..., object]) -> Any:
    """A hook or policy that does something and has no opinion, or waits for it when it is async."""

    def do(*arguments: object) -> object:
        return act(*arguments)

    return do
