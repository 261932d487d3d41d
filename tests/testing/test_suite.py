"""That the judges really sit in every test: a run through the loop is seen, and a bad one would fail its test."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from steersman.context.context import AgentContext
from steersman.loop.config import AgentLoopConfig
from steersman.loop.entry import agent_loop
from steersman.testing import EventCollector, ScriptedModel, Witness, answer, call, check_events, error
from steersman.tools.tool import tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def collected(script: ScriptedModel, **settings: Any) -> EventCollector:
    collector = EventCollector()
    config = AgentLoopConfig(model=script.model, **settings)
    async for event in agent_loop("Go", AgentContext(tools=[add]), config):
        collector(event)
    return collector


async def test_a_run_with_tools_and_a_retry_is_in_the_grammar(witnessed: Witness) -> None:
    script = ScriptedModel(answer("Let me see.", call("add", a=2, b=3)), error("overloaded", after=2), "It is 5.")
    collector = await collected(script)
    check_events(collector)
    assert [message.role for message in collector.messages] == ["user", "assistant", "tool_result", "assistant"]
    assert collector.text == "Let me see.It is 5."
    assert witnessed.finished == 1


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
async def test_a_property_may_be_an_async_test(words: list[str]) -> None:
    script = ScriptedModel(*(answer(word, call("add", a=1, b=1)) for word in words), "End")
    collector = await collected(script)
    assert collector.text == "".join(words) + "End"


async def test_a_run_that_is_not_over_would_be_found(witnessed: Witness) -> None:
    stream = agent_loop("Go", AgentContext(), AgentLoopConfig(model=ScriptedModel("Hi").model))
    await anext(aiter(stream))
    with pytest.raises(AssertionError, match=r"ended without its agent_end|ended inside a turn"):
        witnessed.check()
    await stream
    await asyncio.sleep(0)
