"""Failures of compaction, as far as the loop meets them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.loop.test_compaction import Strategy, config_of, history
from tests.loop.toolbox import agent_of, echo, gave, said

from steersman import (
    Agent,
    AgentMessage,
    ContextConfig,
    SummaryCompaction,
    ToolCall,
)
from steersman.context.compaction.config import CompactionConfig
from steersman.testing import EventCollector, ScriptedModel, answer, call, error
from steersman.types import wire
from steersman.types.events import CompactionEnded
from steersman.types.messages import user_message

sizes = st.integers(0, 3_000)


@st.composite
def conversations(draw: Any) -> list[AgentMessage]:
    """Valid conversations of users, answers and batches of tool calls, of any sizes."""
    log: list[AgentMessage] = [user_message("the task")]
    for number in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            log.append(user_message("u" * (1 + draw(sizes))))
        count = draw(st.integers(0, 3))
        calls = [ToolCall(f"c{number}_{index}", "echo", {"text": "t" * draw(sizes)}) for index in range(count)]
        text = "a" * (draw(sizes) + 1)
        log.append(said(*calls) if calls else said(text))
        log += [gave(item.id, "r" * draw(sizes)) for item in calls]
    return log


@given(conversations(), st.integers(50, 4_000), st.integers(0, 12))
async def test_i1_no_cut_splits_a_call_from_its_result(log: list[AgentMessage], tokens: int, recent: int) -> None:
    """failures.md I1, loop.md C3: whatever is cut, a strict server takes the request."""
    script = ScriptedModel("ok")
    config = ContextConfig(max_context_tokens=tokens, keep_recent=recent)
    agent = Agent(script.model, messages=log, tools=[echo], context_config=config)
    result = await agent.run("go on")
    if result.end_reason == "done":
        assert result.text == "ok"
        assert script.requests[0][0].messages[-1].text == "go on"
    else:
        assert (script.asked, "compaction can free no more" in result.detail) == (0, True)


async def test_i2_one_huge_message_does_not_make_the_loop_thrash() -> None:
    """failures.md I2, loop.md C3"""
    script = ScriptedModel("never said")
    agent, heard = agent_of(script, context_config=ContextConfig(max_context_tokens=200_000))
    result = await agent.run("word " * 300_000)
    assert (result.end_reason, script.asked, len(heard.of(CompactionEnded))) == ("error", 0, 1)
    assert "compaction can free no more: shorten what the user said or raise the limit." in result.detail


def summarising(script: ScriptedModel, reasons: list[str], messages: list[AgentMessage]) -> Any:
    strategy = SummaryCompaction(on_fallback=reasons.append)
    config = ContextConfig(
        max_context_tokens=2_000, threshold=0.6, keep_recent=1, compaction=CompactionConfig(strategy)
    )
    return agent_of(script, [echo], messages=messages, context_config=config)


async def test_i3_a_summary_whose_request_is_too_long_itself_is_written_piece_by_piece() -> None:
    """failures.md I3, loop.md C3"""
    reasons: list[str] = []
    script = ScriptedModel(lambda request: "ok" if request.tools else "So far.", repeat_last=True)
    agent, heard = summarising(script, reasons, history(10, 4_000))
    result = await agent.run("go on")
    assert (result.end_reason, reasons) == ("done", [])
    assert (script.asked > 2, result.text) == (True, "ok")
    assert all(len(request.messages[0].text) <= 4 * 2_000 * 2 for request, _ in script.requests)
    assert [event.reduced for event in heard.of(CompactionEnded)] == [True]


async def test_i3_a_summary_that_overflows_the_window_falls_back() -> None:
    """failures.md I3, loop.md C3"""
    reasons: list[str] = []
    script = ScriptedModel(error("context_overflow"), "ok")
    agent, heard = summarising(script, reasons, history(3, 4_000))
    result = await agent.run("go on")
    assert (result.text, len(reasons)) == ("ok", 1)
    assert [event.reduced for event in heard.of(CompactionEnded)] == [True]


@pytest.mark.parametrize(
    "turn",
    [
        answer(call("echo", text="x")),
        answer(""),
        answer("no", stop_reason="refusal"),
        answer("cu", stop_reason="length"),
    ],
    ids=["calls a tool", "empty", "refuses", "cut"],
)
async def test_i4_a_summariser_that_misbehaves_does_not_spoil_the_context(turn: Any) -> None:
    """failures.md I4, loop.md C3: tools are off, the summary is checked, and the deterministic way is the way out."""
    reasons: list[str] = []
    script = ScriptedModel(turn, "ok")
    agent, _ = summarising(script, reasons, history(3, 4_000))
    result = await agent.run("go on")
    request, options = script.requests[0]
    assert (list(request.tools), options.tool_choice) == ([], "none")
    assert (result.text, len(reasons)) == ("ok", 1)


async def test_i5_a_compaction_that_fails_says_so() -> None:
    """failures.md I5, loop.md T5"""

    def broken(_: Sequence[AgentMessage]) -> Any:
        raise OSError("no space left")

    config = config_of(4_000, compaction=CompactionConfig(Strategy(broken)))
    agent, heard = agent_of(ScriptedModel("ok"), [echo], messages=history(3, 4_000), context_config=config)
    result = await agent.run("go on")
    assert [(event.reduced, event.error) for event in heard.of(CompactionEnded)] == [(False, "OSError: no space left")]
    assert result.text == "ok"


async def test_i6_a_compaction_that_is_cut_short_changes_nothing() -> None:
    """failures.md I6, loop.md C1: the new view takes the place of the old one at once, or not at all."""
    messages = history(10, 4_000)

    async def slow(shown: Sequence[AgentMessage]) -> Any:
        await asyncio.sleep(10)
        return list(shown)[-1:]

    config = config_of(4_000, compaction=CompactionConfig(Strategy(slow)))
    agent, _ = agent_of(ScriptedModel("never said"), [echo], messages=messages, context_config=config)
    running = asyncio.create_task(agent.run("go on"))
    await asyncio.sleep(5)
    agent.abort()
    await running
    assert list(agent.context.log.visible) == list(agent.messages)
    assert list(agent.messages)[: len(messages)] == messages


async def test_i11_each_request_begins_with_the_bytes_of_the_one_before() -> None:
    """failures.md I11, loop.md C3: providers cache prefixes."""
    script = ScriptedModel(*(answer(call("echo", text="x" * number)) for number in range(6)), "ok", "again")
    agent = Agent(script.model, tools=[echo], system_prompt="Be brief.")
    heard = EventCollector()
    agent.subscribe(heard)
    await agent.run("go")
    await agent.run("more")
    sent = [
        [request.system_prompt.encode(), *(wire.encode(message) for message in request.messages)]
        for request, _ in script.requests
    ]
    assert len(sent) == 8
    for earlier, later in pairwise(sent):
        assert later[: len(earlier)] == earlier
    tools = [[spec.name for spec in request.tools] for request, _ in script.requests]
    assert tools == [["echo"]] * 8
