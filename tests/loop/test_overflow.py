from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from tests.loop.test_compaction import history
from tests.loop.toolbox import echo, texts
from tests.loop.toolbox import unmanaged_agent_of as agent_of

from steersman import Agent, AgentMessage, AssistantMessage, ContextConfig, Skip, Stop, Usage
from steersman.context.compaction.config import CompactionConfig
from steersman.context.tokens import estimate_total_tokens
from steersman.provider.scripted.script import Turn
from steersman.testing import ScriptedModel, answer, call, check_events, error
from steersman.types.content import TextContent
from steersman.types.errors import AuthenticationError, ContextOverflowError, ErrorInfo
from steersman.types.events import CompactionEnded, MessageUpdate, RetryScheduled, TurnEnd
from steersman.types.messages import user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, Reset

TOO_LONG = error(ErrorInfo("context_overflow", "prompt is too long: 9000 tokens > 8000 maximum", status=400))


async def test_an_overflow_compacts_harder_and_asks_once_more_in_the_same_turn() -> None:
    """loop.md C5"""
    script = ScriptedModel(TOO_LONG, "ok")
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.end_reason, result.text, script.asked) == ("done", "ok", 2)
    first, second = (estimate_total_tokens(request.messages) for request, _ in script.requests)
    assert second <= first // 2
    assert [event.reduced for event in heard.of(CompactionEnded)] == [True]
    assert [event.reason for event in heard.of(TurnEnd)] == ["stop"]
    assert heard.of(RetryScheduled) == []
    assert texts(result.messages) == [("user", "go on"), ("assistant", "ok")]


async def test_an_overflow_under_the_threshold_of_the_config_is_taken_at_its_word() -> None:
    """loop.md C5: the window may be smaller than its configuration."""
    script = ScriptedModel(TOO_LONG, "ok")
    config = ContextConfig(max_context_tokens=1_000_000, keep_recent=2)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000), context_config=config)
    result = await agent.run("go on")
    assert (result.text, [event.reduced for event in heard.of(CompactionEnded)]) == ("ok", [True])


async def test_a_second_overflow_in_the_same_turn_is_an_error() -> None:
    """loop.md C5"""
    script = ScriptedModel(TOO_LONG, TOO_LONG, "never said")
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.end_reason, script.asked, len(heard.of(CompactionEnded))) == ("error", 2, 1)
    assert result.detail == "prompt is too long: 9000 tokens > 8000 maximum"


async def test_when_nothing_can_be_freed_the_run_ends_with_an_error_that_says_so() -> None:
    """loop.md C5"""
    script = ScriptedModel(TOO_LONG, "never said")
    agent, heard = agent_of(script)
    result = await agent.run("x" * 40_000)
    assert (result.end_reason, script.asked) == ("error", 1)
    assert result.detail == (
        "prompt is too long: 9000 tokens > 8000 maximum Compaction could free nothing more: shorten the conversation."
    )
    assert [event.reduced for event in heard.of(CompactionEnded)] == [False]
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.error_kind) == ("error", "context_overflow")


async def test_a_later_turn_may_overflow_again() -> None:
    """loop.md C5"""
    script = ScriptedModel(
        TOO_LONG, answer(call("echo", text="y" * 4_000)), answer(call("echo", text="z" * 4_000)), TOO_LONG, "ok"
    )
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.text, [event.reduced for event in heard.of(CompactionEnded)]) == ("ok", [True, True])


async def test_a_request_that_was_cut_silently_is_noticed_by_its_usage() -> None:
    """loop.md C5, failures.md E8"""
    script = ScriptedModel(
        answer("half blind", usage=Usage(input=9_000, output=10)),
        answer("ok", usage=Usage(input=2_000, output=10)),
        context_window=8_000,
    )
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.end_reason, result.text, script.asked) == ("done", "ok", 2)
    assert [event.reduced for event in heard.of(CompactionEnded)] == [True]
    assert result.usage == Usage(input=11_000, output=20)
    assert heard.text == "ok"
    resets = [event for event in heard.of(MessageUpdate) if isinstance(event.delta, Reset)]
    assert len(resets) == 1
    check_events(heard)


async def test_usage_within_the_window_is_no_overflow() -> None:
    """loop.md C5"""
    script = ScriptedModel(answer("ok", usage=Usage(input=8_000, output=10)), context_window=8_000)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.text, script.asked, heard.of(CompactionEnded)) == ("ok", 1, [])


async def test_cached_tokens_count_for_the_window() -> None:
    """loop.md C5"""
    script = ScriptedModel(
        answer("blind", usage=Usage(input=1_000, output=10, cache_read=6_000, cache_write=2_000)),
        "ok",
        context_window=8_000,
    )
    agent, _ = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.text, script.asked) == ("ok", 2)


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded"])
async def test_throttling_is_not_overflow(kind: Any) -> None:
    """loop.md C5"""
    script = ScriptedModel(error(ErrorInfo(kind, "Too many tokens, please wait before trying again.")), "ok")
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.text, heard.of(CompactionEnded), len(heard.of(RetryScheduled))) == ("ok", [], 1)
    assert [len(request.messages) for request, _ in script.requests] == [23, 23]


async def test_an_overflow_is_not_retried_as_it_was() -> None:
    """loop.md C5, failures.md E5"""
    script = ScriptedModel(TOO_LONG, TOO_LONG)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    await agent.run("go on")
    sent = [list(request.messages) for request, _ in script.requests]
    assert (len(sent), sent[0] != sent[1], heard.of(RetryScheduled)) == (2, True, [])


async def test_the_transforms_are_told_that_it_is_a_second_try() -> None:
    """loop.md T6, C5"""
    told: list[bool] = []

    def transform(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        told.append(overflow)
        return messages

    agent, _ = agent_of(ScriptedModel(TOO_LONG, "ok"), [echo], messages=history(10, 4_000), transform_context=transform)
    await agent.run("go on")
    assert told == [False, True]


async def test_the_failed_try_is_paid_for() -> None:
    """loop.md C5, T8"""
    spent = error(ErrorInfo("context_overflow", "too long"), usage=Usage(input=9_000, output=0))
    script = ScriptedModel(spent, answer("ok", usage=Usage(input=3_000, output=5)))
    agent, _ = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert result.usage == Usage(input=12_000, output=5)


async def test_an_overflow_after_shown_text_takes_it_back() -> None:
    """loop.md C5, T7"""
    script = ScriptedModel(error(ErrorInfo("context_overflow", "too long"), "I was say", after=2), "ok")
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("go on")
    assert (result.text, heard.text) == ("ok", "ok")


async def test_a_retry_that_then_overflows_takes_back_what_was_shown_only_once() -> None:
    """loop.md T7, C5: a reset takes back what was shown since the last one, and after a retry that may be nothing."""
    script = ScriptedModel(error("network", after=2), error("context_overflow"), "Fine.")
    agent, heard = agent_of(script, messages=history(10, 4_000))
    result = await agent.run("Go.")
    assert (result.end_reason, result.text) == ("done", "Fine.")
    assert [event.delta.type for event in heard.of(MessageUpdate)].count("reset") == 1


SHARED = error(
    ErrorInfo("context_overflow", "`max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease", status=400)
)


async def test_an_answer_is_never_asked_for_that_is_longer_than_what_was_wanted() -> None:
    """failures.md E10: a server that counts something beside the request may seem to have more room."""
    script = ScriptedModel(SHARED, "ok")
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000), max_tokens=8_000)
    result = await agent.run("go on")
    assert (result.text, len(heard.of(CompactionEnded)), heard.of(RetryScheduled)) == ("ok", 1, [])
    assert [options.max_tokens for _, options in script.requests] == [8_000, 8_000]


BLIND = answer("half blind", usage=Usage(input=9_000, output=10))


async def test_an_abort_while_room_is_made_keeps_the_bill_of_what_was_said() -> None:
    """loop.md T8"""

    class Slow:
        async def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
            agent.abort()
            await asyncio.Event().wait()
            return messages

    config = ContextConfig(max_context_tokens=1_000_000, compaction=CompactionConfig(Slow()))
    script = ScriptedModel(BLIND, "never said", context_window=8_000)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000), context_config=config)
    result = await agent.run("go on")
    check_events(heard)
    assert (result.end_reason, result.text, script.asked) == ("aborted", "half blind", 1)
    assert result.usage == Usage(input=9_000, output=10)


async def test_a_hook_that_breaks_while_room_is_made_keeps_the_bill_of_what_was_said() -> None:
    """loop.md T8"""

    def broken(tokens: int, count: int) -> None:
        raise RuntimeError("boom")

    script = ScriptedModel(BLIND, "never said", context_window=8_000)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000), before_compaction_start=broken)
    result = await agent.run("go on")
    check_events(heard)
    assert (result.end_reason, result.usage) == ("error", Usage(input=9_000, output=10))


@pytest.mark.parametrize("first", [TOO_LONG, BLIND])
async def test_the_model_is_not_asked_again_after_a_stop(first: Turn) -> None:
    """loop.md 5: also where the compaction came after an overflow."""

    def stop(*_: int) -> Stop:
        return Stop("enough")

    script = ScriptedModel(first, "never said", context_window=8_000)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000), after_compaction_end=stop)
    result = await agent.run("go on")
    check_events(heard)
    assert (result.end_reason, result.detail, script.asked) == ("stopped", "enough", 1)


@pytest.mark.parametrize("told", [False, True])
async def test_room_is_made_for_the_window_of_the_model_that_answered(told: bool) -> None:
    """loop.md C5: a fallback may have a smaller one."""

    async def stream_fn(model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[Any, None]:
        if model.id == "large":
            raise AuthenticationError("no such key")
        sent = estimate_total_tokens(request.messages)
        if told and sent > 8_000:
            raise ContextOverflowError("prompt is too long")
        yield Done(AssistantMessage([TextContent("ok")], usage=Usage(input=sent, output=1)))

    limits: list[int] = []

    class Watched:
        def compact(self, messages: Sequence[AgentMessage], config: ContextConfig, /) -> Sequence[AgentMessage]:
            limits.append(config.limit)
            return messages[-1:]

    large, small = Model("scripted", "large", context_window=200_000), Model("scripted", "small", context_window=8_000)
    config = ContextConfig(max_context_tokens=1_000_000, compaction=CompactionConfig(Watched()))
    said = [user_message("x" * 4_000) for _ in range(60)]
    agent = Agent(large, fallbacks=[small], stream_fn=stream_fn, messages=said, context_config=config)
    result = await agent.run("go on")
    assert (result.end_reason, result.text, len(limits)) == ("done", "ok", 1)
    assert limits[0] <= 4_000


@pytest.mark.parametrize("first", [TOO_LONG, BLIND], ids=["refused", "cut"])
@pytest.mark.parametrize("verdict", [False, Skip("not now")], ids=["False", "Skip"])
async def test_a_hook_that_refuses_to_compact_is_named_as_the_reason(first: Turn, verdict: Any) -> None:
    """loop.md C5: an error says what happened and what to do."""

    def refuse(tokens: int, count: int) -> Any:
        return verdict

    script = ScriptedModel(first, "never said", context_window=8_000)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000), before_compaction_start=refuse)
    result = await agent.run("go on")
    assert (result.end_reason, script.asked, heard.of(CompactionEnded)) == ("error", 1, [])
    assert result.detail.endswith(
        " A before_compaction_start hook refused to compact: let it allow that, or shorten the conversation."
    )
    assert "could free nothing" not in result.detail
