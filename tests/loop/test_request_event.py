"""The exact request as an event, for those who ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import pytest
from tests.loop.play import listened, said

from steersman import Agent, AgentContext, AgentLoopConfig, Model, agent_loop, tool
from steersman.events import AgentEvent, TurnRequest
from steersman.testing import EventCollector, ScriptedModel, answer, call, check_events, error
from steersman.types import AgentMessage, ErrorInfo, decode, encode
from steersman.types.messages import user_message

KEY = "sk-canary-0123456789"


@tool
def look(at: str) -> str:
    """Look at something."""
    return "seen"


async def test_each_request_is_an_event_before_it_is_sent() -> None:
    """api.md, Build: the exact request for those who ask for it."""
    script = ScriptedModel(call("look", at="a"), "done")
    agent, events = listened(
        script, tools=[look], system_prompt="Be brief.", max_tokens=99, api_key=KEY, events=("request",)
    )
    await agent.run("go")
    requests = events.of(TurnRequest)
    assert [request.turn_index for request in requests] == [0, 1]
    for event, (request, options) in zip(requests, script.requests, strict=True):
        assert (event.system_prompt, list(event.messages)) == (request.system_prompt, list(request.messages))
        assert event.model == script.model.name
        assert [one["name"] for one in event.tools] == ["look"]
        assert event.tools[0]["parameters"] == look.parameters
        sent = asdict(options)
        assert sent.pop("api_key") is not None
        assert event.options == {**sent, "stop": list(sent["stop"])}
        assert KEY.encode() not in encode(event)
        assert decode(encode(event)) == event
    types = events.types
    assert types[types.index("turn_request") + 1] == "message_start"
    check_events(events.events)


async def test_it_holds_the_messages_after_every_transform() -> None:
    script = ScriptedModel("ok")
    seen: list[AgentEvent] = []

    def add(messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        return [*messages, user_message("and this")]

    config = AgentLoopConfig(model=script.model, transform_context=add, events=["request"])
    async for event in agent_loop("go", AgentContext(), config):
        seen.append(event)
    (request,) = [event for event in seen if event.type == "turn_request"]
    assert said(request.messages) == said(script.requests[0][0].messages) == ["user: go", "user: and this"]


async def test_a_request_that_did_not_fit_is_followed_by_another() -> None:
    overflow = error(ErrorInfo("context_overflow", "maximum context length is 10 tokens"))
    script = ScriptedModel("one " * 400, overflow, "short")
    agent, events = listened(script, events=("request",))
    await agent.run("word " * 400)
    await agent.run("again")
    assert len(events.of(TurnRequest)) == len(script.requests)


async def test_it_is_not_built_when_it_is_not_asked_for() -> None:
    agent, events = listened(ScriptedModel("ok"))
    await agent.run("go")
    assert "turn_request" not in events.types


@pytest.mark.parametrize("events", ["request", ("requests",), [3]])
def test_only_known_events_can_be_asked_for(events: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="events"):
        Agent(ScriptedModel("ok").model, events=events)


def test_the_grammar_knows_where_a_request_stands() -> None:
    collector = EventCollector()
    agent = Agent(Model("own", "own"), stream_fn=ScriptedModel(answer("ok")), events=("request",))
    agent.subscribe(collector)
    agent.run_sync("go")
    events = list(collector.events)
    place = [event.type for event in events].index("turn_request")
    wrong = [*events[:place], *events[place + 1 : -2], events[place], *events[-2:]]
    renumbered = [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(wrong)]
    with pytest.raises(AssertionError, match="no answer may follow"):
        check_events(renumbered)
