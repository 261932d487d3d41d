from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests.loop.toolbox import agent_of, echo, gave, said, texts

from steersman import (
    AgentContext,
    AgentLoopConfig,
    AgentMessage,
    Compaction,
    ContextConfig,
    ToolCall,
    Usage,
    agent_loop_continue,
    tool,
)
from steersman.context.compaction.config import CompactionConfig
from steersman.context.entries import CompactionEntry
from steersman.context.tokens import estimate_tokens, estimate_total_tokens
from steersman.testing import EventCollector, ScriptedModel, answer, call, check_events
from steersman.types.events import CompactionEnded, CompactionStarted
from steersman.types.messages import user_message

MARKER = "[Earlier messages were left out to save space.]"


def history(turns: int, size: int) -> list[AgentMessage]:
    """A task, then turns with a tool result of so many characters each."""
    log: list[AgentMessage] = [user_message("the task")]
    for number in range(turns):
        asked = ToolCall(f"old_{number}", "echo", {"text": f"{number}"})
        log += [said(asked, stop_reason="tool_use"), gave(asked.id, "x" * size)]
    return [*log, said("so far so good")]


def config_of(tokens: int, **options: Any) -> ContextConfig:
    return ContextConfig(max_context_tokens=tokens, threshold=0.5, keep_recent=2, **options)


async def test_a_context_under_its_threshold_is_left_alone() -> None:
    """loop.md T5"""
    script = ScriptedModel("ok")
    agent, heard = agent_of(script, [echo], messages=history(3, 400), context_config=config_of(10_000))
    await agent.run("go on")
    assert heard.of(CompactionStarted) == []
    assert len(script.requests[0][0].messages) == 9


async def test_a_context_over_its_threshold_is_compacted_before_the_answer() -> None:
    """loop.md T5, C3"""
    messages = history(10, 4_000)
    script = ScriptedModel("ok")
    agent, heard = agent_of(script, messages=messages, context_config=config_of(4_000))
    before = estimate_total_tokens([*messages, user_message("go on")])
    result = await agent.run("go on")
    assert result.text == "ok"
    kinds = [event.type for event in heard if event.type.startswith(("compaction", "message_start"))]
    assert kinds == ["message_start", "compaction_started", "compaction_ended", "message_start"]
    (started,), (ended,) = heard.of(CompactionStarted), heard.of(CompactionEnded)
    assert (started.estimated_tokens, started.message_count) == (before, 23)
    sent = script.requests[0][0].messages
    assert (ended.messages_before, ended.messages_after, ended.tokens_before) == (23, len(sent), before)
    assert (ended.tokens_after, ended.reduced, ended.error) == (estimate_total_tokens(sent), True, None)
    assert ended.tokens_after <= 2_000
    assert (sent[0].text, sent[-1].text) == ("the task", "go on")


async def test_the_log_is_never_rewritten_and_a_compaction_can_be_undone() -> None:
    """loop.md C1"""
    messages = history(10, 4_000)
    script = ScriptedModel("ok")
    agent, _ = agent_of(script, [echo], messages=messages, context_config=config_of(4_000))
    await agent.run("go on")
    assert list(agent.messages[: len(messages)]) == messages
    assert texts(agent.messages)[-2:] == [("user", "go on"), ("assistant", "ok")]
    (entry,) = [entry for entry in agent.context.log.entries if isinstance(entry, CompactionEntry)]
    agent.context.log.undo(entry.id)
    assert list(agent.context.log.visible) == list(agent.messages)


async def test_what_was_compacted_is_not_compacted_again_every_turn() -> None:
    """loop.md C3, failures.md I11: the prefix that was sent stays as it was."""
    script = ScriptedModel(*(answer(call("echo", text=str(number))) for number in range(3)), "ok")
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000), context_config=config_of(4_000))
    await agent.run("go on")
    assert len(heard.of(CompactionStarted)) == 1
    sent = [list(request.messages) for request, _ in script.requests]
    assert [later[: len(earlier)] == earlier for earlier, later in pairwise(sent)] == [True] * 3


async def test_a_hook_may_forbid_a_compaction() -> None:
    """loop.md T5"""
    asked: list[tuple[int, int]] = []

    async def forbid(tokens: int, count: int) -> bool:
        asked.append((tokens, count))
        return False

    messages = history(10, 4_000)
    script = ScriptedModel("ok")
    agent, heard = agent_of(script, messages=messages, context_config=config_of(4_000), before_compaction_start=forbid)
    await agent.run("go on")
    assert asked == [(estimate_total_tokens([*messages, user_message("go on")]), 23)]
    assert heard.of(CompactionStarted) == []
    assert len(script.requests[0][0].messages) == 23


async def test_the_hook_after_it_is_told_what_it_came_to() -> None:
    """loop.md T5"""
    told: list[tuple[int, ...]] = []

    def note(*numbers: int) -> None:
        told.append(numbers)

    agent, heard = agent_of(
        ScriptedModel("ok"),
        [echo],
        messages=history(10, 4_000),
        context_config=config_of(4_000),
        after_compaction_end=note,
    )
    await agent.run("go on")
    (ended,) = heard.of(CompactionEnded)
    assert told == [(ended.messages_before, ended.messages_after, ended.tokens_before, ended.tokens_after)]


async def test_a_pass_that_frees_nothing_is_reported_and_not_repeated_every_turn() -> None:
    """loop.md C3, failures.md I2"""
    script = ScriptedModel(*(answer(call("echo", text=str(number))) for number in range(5)), "ok")
    agent, heard = agent_of(script, [echo], context_config=config_of(4_000))
    result = await agent.run("x" * 12_000)
    assert result.end_reason == "done"
    assert [event.reduced for event in heard.of(CompactionEnded)] == [False]


async def test_what_cannot_be_made_to_fit_ends_the_run_with_an_error_that_says_so() -> None:
    """loop.md C3, failures.md I2 S12"""
    script = ScriptedModel("never said")
    agent, heard = agent_of(script, context_config=config_of(4_000))
    result = await agent.run("x" * 40_000)
    assert (result.end_reason, script.asked) == ("error", 0)
    assert result.detail == (
        "The context has about 10004 tokens, more than max_context_tokens=4000, and compaction can free no more: "
        "shorten what the user said or raise the limit."
    )
    assert [event.reduced for event in heard.of(CompactionEnded)] == [False]


async def test_the_last_real_usage_counts_more_than_the_estimate() -> None:
    """loop.md C4, C3: one threshold for trigger and target, in the same measure."""
    script = ScriptedModel(answer("first", usage=Usage(input=100, output=5)), "second")
    agent, heard = agent_of(script, context_config=ContextConfig(max_context_tokens=2_000, keep_recent=1))
    await agent.run("one " * 1_500)
    await agent.run("two " * 500)
    assert estimate_total_tokens(agent.messages) > 2_000
    assert agent.context.log.tokens == 105 + estimate_total_tokens(agent.messages[2:])
    assert heard.of(CompactionStarted) == []


async def test_a_context_the_provider_finds_too_long_is_compacted_whatever_the_estimate_says() -> None:
    """loop.md C4, C3"""
    script = ScriptedModel(answer(call("echo", text="y" * 2_000), usage=Usage(input=1_900, output=50)), "ok")
    agent, heard = agent_of(script, [echo], messages=history(4, 400), context_config=config_of(3_000))
    result = await agent.run("go on")
    (started,), (ended,) = heard.of(CompactionStarted), heard.of(CompactionEnded)
    assert started.estimated_tokens > 1_950
    assert (ended.reduced, result.end_reason) == (True, "done")


async def test_the_estimator_can_be_replaced() -> None:
    """loop.md C4"""

    def heavy(message: AgentMessage) -> int:
        return 100 * estimate_tokens(message)

    messages = history(10, 40)
    for estimator, compacted in ((estimate_tokens, 0), (heavy, 1)):
        agent, heard = agent_of(
            ScriptedModel("ok"), [echo], messages=messages, context_config=config_of(20_000, estimator=estimator)
        )
        await agent.run("go on")
        assert len(heard.of(CompactionStarted)) == compacted


class Strategy:
    """A strategy made of one function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Any:
        return self.function(messages)


def strange(messages: Sequence[AgentMessage]) -> Any:
    raise OSError("no disk")


def empty(messages: Sequence[AgentMessage]) -> Any:
    return []


def nonsense(messages: Sequence[AgentMessage]) -> Any:
    return ["not a message"]


@pytest.mark.parametrize("function", [strange, empty, nonsense])
async def test_a_strategy_that_fails_is_reported_and_the_context_stays(function: Any) -> None:
    """loop.md T5, failures.md I5 I6"""
    messages = history(3, 4_000)
    config = config_of(4_000, compaction=CompactionConfig(Strategy(function)))
    script = ScriptedModel("ok")
    agent, heard = agent_of(script, [echo], messages=messages, context_config=config)
    result = await agent.run("go on")
    (ended,) = heard.of(CompactionEnded)
    assert (ended.reduced, bool(ended.error), result.text) == (False, True, "ok")
    assert list(script.requests[0][0].messages) == list(agent.messages[:-1])


async def test_a_strategy_that_splits_calls_from_their_results_still_makes_a_valid_request() -> None:
    """loop.md C3, section 6; failures.md I1"""

    async def last_four(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
        return list(messages)[-4:]

    config = config_of(4_000, compaction=CompactionConfig(Strategy(last_four)))
    script = ScriptedModel("ok")
    agent, heard = agent_of(script, [echo], messages=history(3, 4_000)[:-1], context_config=config)
    result = await agent.run("go on")
    assert (result.text, len(heard.of(CompactionEnded))) == ("ok", 1)
    assert [message.role for message in script.requests[0][0].messages] == ["user", "assistant", "tool_result", "user"]


async def test_a_continuation_of_kind_compaction_compacts_on_its_first_turn() -> None:
    """loop.md R6, T5"""
    script = ScriptedModel(answer(call("echo", text="hi")), "ok")
    context = AgentContext(
        messages=[*history(10, 4_000), user_message("go on")],
        tools=[echo],
        agent_id="a",
        session_id="s",
        continuation_kind=Compaction(),
    )
    heard = EventCollector()
    async for event in agent_loop_continue(context, AgentLoopConfig(model=script.model)):
        heard(event)
    check_events(heard)
    (ended,) = heard.of(CompactionEnded)
    assert (ended.reduced, script.asked) == (True, 2)


async def test_an_abort_during_a_compaction_closes_it_and_leaves_the_context_as_it_was() -> None:
    """loop.md T5, T12"""

    async def abort(messages: Sequence[AgentMessage]) -> Any:
        agent.abort()
        await asyncio.sleep(100)

    messages = history(3, 4_000)
    config = config_of(4_000, compaction=CompactionConfig(Strategy(abort)))
    script = ScriptedModel("never said")
    agent, heard = agent_of(script, [echo], messages=messages, context_config=config)
    result = await agent.run("go on")
    (ended,) = heard.of(CompactionEnded)
    assert (ended.error, ended.reduced, result.end_reason, script.asked) == ("cancelled", False, "aborted", 0)
    assert list(agent.context.log.visible) == [*messages, *result.messages]


async def test_steering_during_a_compaction_is_heard_once_after_it() -> None:
    """loop.md T5, T11; failures.md G8"""

    async def steer(messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
        agent.steer("by the way")
        return messages

    config = config_of(4_000, compaction=CompactionConfig(Strategy(steer)))
    agent, _ = agent_of(ScriptedModel("ok", "heard"), [echo], messages=history(3, 4_000), context_config=config)
    result = await agent.run("go on")
    assert texts(result.messages) == [
        ("user", "go on"),
        ("assistant", "ok"),
        ("user", "by the way"),
        ("assistant", "heard"),
    ]


async def test_a_long_run_stays_within_its_window() -> None:
    """loop.md C3"""

    @tool
    async def dump(number: int) -> str:
        """Give a lot."""
        return f"{number} " * 500

    script = ScriptedModel(*(answer(call("dump", number=number)) for number in range(40)), "ok")
    agent, heard = agent_of(script, [dump], context_config=ContextConfig(max_context_tokens=4_000, keep_recent=4))
    result = await agent.run("the task")
    assert (result.end_reason, result.text) == ("done", "ok")
    sizes = [estimate_total_tokens(request.messages) for request, _ in script.requests]
    assert max(sizes) <= 4_000
    assert all(request.messages[0].text == "the task" for request, _ in script.requests)
    assert 0 < len(heard.of(CompactionEnded)) < 40
    assert all(event.reduced for event in heard.of(CompactionEnded))
    assert len(agent.messages) == 82
