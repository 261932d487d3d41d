"""What a type checker knows of an event after a look at its `type`; basedpyright reads this file with every check."""

from __future__ import annotations

from typing import assert_type, get_args

import steersman.events
from steersman import Agent
from steersman.events import AgentEnd, AgentEvent, MessageUpdate, ToolExecutionEnd, TurnEnd, UnknownEvent
from steersman.testing import ScriptedModel, answer
from steersman.types import TextDelta, decode


def describe(event: AgentEvent) -> str:
    if event.type == "message_update":
        assert_type(event, MessageUpdate)
        if event.delta.type == "text_delta":
            assert_type(event.delta, TextDelta)
            return event.delta.delta
    elif event.type == "tool_execution_end":
        assert_type(event, ToolExecutionEnd)
        return f"{event.tool_name} {event.is_error}"
    match event.type:
        case "turn_end":
            assert_type(event, TurnEnd)
            return event.reason
        case "agent_end":
            assert_type(event, AgentEnd)
            return event.end_reason
        case _:
            return ""


async def test_the_type_of_an_event_says_its_class() -> None:
    """api.md, five-minute version: `if event.type == "message_update": event.delta` is right for a type checker."""
    stream = Agent(ScriptedModel(answer("Hello", deltas=2)).model).prompt("Hi")
    assert [text async for event in stream if (text := describe(event))] == ["He", "llo", "stop", "done"]


def test_only_decode_gives_an_event_of_an_unknown_type() -> None:
    assert UnknownEvent not in get_args(AgentEvent)
    event = decode('{"type":"later","loop_id":"l","seq":1,"timestamp":2.0,"colour":"red"}')
    match event:
        case UnknownEvent(fields=fields):
            assert (event.type, fields["colour"]) == ("later", "red")
        case _:
            raise AssertionError(event)


def test_every_event_class_is_importable_from_the_events_package() -> None:
    """api.md, details: event classes are importable from `steersman.events`."""
    names = {kind.__name__ for kind in (*get_args(AgentEvent), UnknownEvent)}
    assert names <= set(steersman.events.__all__)
