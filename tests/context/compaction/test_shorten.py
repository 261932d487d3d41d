"""Compaction, undoing and asking again on request, for an agent that keeps nothing."""

from __future__ import annotations

import pytest

from steersman import Agent, ContextConfig, tool
from steersman.context.compaction.strategies import compact_log, undo_change
from steersman.context.log import Log
from steersman.testing import ScriptedModel, answer, call, check_transcript
from steersman.types.messages import user_message


@tool
async def work() -> str:
    """Work."""
    return "worked " * 40


async def _worked(*more: str) -> Agent:
    agent = Agent(ScriptedModel(*[answer(call("work"))] * 12, "Done.", *more).model, tools=[work])
    await agent.run("Work.")
    return agent


async def test_what_the_model_sees_is_halved_without_asking_it() -> None:
    """loop.md C3"""
    agent = await _worked()
    said, tokens = list(agent.messages), agent.context.log.tokens
    assert agent.compact() is True
    assert agent.context.log.tokens <= tokens // 2
    assert list(agent.messages) == said
    check_transcript(list(agent.context.log.visible))
    agent.undo()
    assert list(agent.context.log.visible) == said
    with pytest.raises(ValueError, match="nothing to undo"):
        agent.undo()


async def test_what_is_short_enough_stays_as_it_is() -> None:
    """loop.md C3"""
    agent = await _worked()
    assert agent.compact(ContextConfig()) is False
    assert compact_log(Log()) is None
    assert compact_log(Log([user_message("Hello.")])) is None


async def test_the_last_change_that_counts_is_undone_first() -> None:
    """loop.md C1"""
    log = (await _worked()).context.log
    whole = list(log.visible)
    assert compact_log(log, ContextConfig(max_context_tokens=700, threshold=1.0)) is not None
    once = list(log.visible)
    assert compact_log(log, ContextConfig(max_context_tokens=200, threshold=1.0)) is not None
    assert list(log.visible) != once
    undo_change(log)
    assert list(log.visible) == once
    undo_change(log)
    assert list(log.visible) == whole


async def test_an_answer_is_asked_for_again_by_index_or_id() -> None:
    """loop.md R6"""
    agent = await _worked("Again.", "And again.")
    await agent.rerun(at=4)
    assert [message.role for message in agent.messages] == [
        "user",
        "assistant",
        "tool_result",
        "assistant",
        "tool_result",
        "assistant",
    ]
    await agent.rerun(at=agent.context.log.entry_id_of(1))
    assert [message.text for message in agent.messages] == ["Work.", "And again."]
    with pytest.raises(ValueError, match="No entry 'nowhere'"):
        agent.rerun(at="nowhere")
    with pytest.raises(ValueError, match="nothing to rerun"):
        Log().rewind()
