from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.loop.play import asked, listened, outline, said
from tests.rows import each_row

from steersman import Agent, AgentContext, AgentLoopConfig, Prices, Retry, Usage, agent_loop, tool
from steersman.testing import ScriptedModel, answer, call, cut, error, raises, text
from steersman.types.errors import ErrorInfo, NetworkError
from steersman.types.events import MessageEnd, MessageStart, MessageUpdate, ModelFallback, RetryScheduled
from steersman.types.messages import AssistantMessage, ExtensionMessage
from steersman.types.stream import Reset

STEADY = Retry(jitter=0)


@tool
def look() -> str:
    """Look."""
    return "seen"


async def test_one_start_and_one_end_whatever_retries_happened() -> None:
    """loop.md T7"""
    script = ScriptedModel(error("overloaded"), error("rate_limit", "some words", after=2), "whole")
    agent, events = listened(script, retry=STEADY)

    result = await agent.run("go")

    assert (result.end_reason, result.text, events.text) == ("done", "whole", "whole")
    starts = [event for event in events.of(MessageStart) if event.message.role == "assistant"]
    ends = [event for event in events.of(MessageEnd) if event.message.role == "assistant"]
    assert (len(starts), len(ends)) == (1, 1)
    assert outline(events) == [
        "agent_start",
        "turn_start 0 user",
        "user: go",
        "retry_scheduled",
        "retry_scheduled",
        "assistant: whole",
        "turn_end 0 stop",
        "agent_end done",
    ]
    assert said(agent.messages) == ["user: go", "assistant: whole"]


async def test_a_retry_is_announced_with_attempt_delay_and_error() -> None:
    """loop.md T7"""
    busy = ErrorInfo("overloaded", "busy", status=529)
    agent, events = listened(ScriptedModel(error(busy), error(busy), "whole"), retry=STEADY)

    await agent.run("go")

    assert [(event.attempt, event.delay, event.error) for event in events.of(RetryScheduled)] == [
        (1, 1.0, busy),
        (2, 2.0, busy),
    ]
    assert asyncio.get_running_loop().time() == 3


@pytest.mark.parametrize("shown", [0, 2])
async def test_a_reset_tells_consumers_to_drop_what_was_shown_and_only_then(shown: int) -> None:
    """loop.md T7, failures.md B18"""
    script = ScriptedModel(error("overloaded", "old words here", after=shown) if shown else error("overloaded"), "new")
    agent, events = listened(script, retry=STEADY)

    await agent.run("go")

    kinds = [event.delta.type if isinstance(event, MessageUpdate) else event.type for event in events]
    about = [kind for kind in kinds if kind in ("retry_scheduled", "reset")]
    assert about == (["retry_scheduled", "reset"] if shown else ["retry_scheduled"])
    assert events.text == "new"


async def test_half_a_tool_call_shown_before_a_retry_is_no_call() -> None:
    """loop.md T7, failures.md B18"""
    runs: list[str] = []

    def touch(path: str) -> str:
        """Touch."""
        runs.append(path)
        return "ok"

    script = ScriptedModel(error("network", call("touch", path="/tmp/old"), after=2), call("touch", path="/new"), "ok")
    agent, _ = listened(script, tools=[touch], retry=STEADY)

    await agent.run("go")

    assert runs == ["/new"]


async def test_a_stream_cut_short_is_asked_again_also_after_shown_deltas() -> None:
    """loop.md T7"""
    script = ScriptedModel(cut("half an answer", after=2), "whole")
    agent, events = listened(script, retry=STEADY)

    result = await agent.run("go")

    assert (result.text, events.text) == ("whole", "whole")
    assert [event.error.kind for event in events.of(RetryScheduled)] == ["incomplete"]


async def test_with_retries_exhausted_the_partial_text_stays_in_the_error_message() -> None:
    """loop.md T7"""
    script = ScriptedModel(cut("half an answer", after=2), repeat_last=True)
    agent, events = listened(script, retry=STEADY)

    result = await agent.run("go")

    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (script.asked, result.end_reason) == (3, "error")
    assert (last.stop_reason, last.error_kind, last.text, events.text) == ("error", "incomplete", "half an", "half an")
    assert "after 3 attempts" in result.detail
    assert len([event for event in events.of(MessageUpdate) if isinstance(event.delta, Reset)]) == 2


RETRIED: list[Any] = [
    *(error(ErrorInfo(kind, "x")) for kind in ("rate_limit", "overloaded", "network", "stalled", "incomplete")),
    error(ErrorInfo("invalid_request", "x", status=400, retryable=True)),
    raises(ConnectionResetError("reset")),
    raises(TimeoutError()),
    raises(NetworkError("gone")),
    cut(),
    cut("words", after=1),
]
NOT_RETRIED: list[Any] = [
    *(
        error(ErrorInfo(kind, "x"))
        for kind in ("authentication", "quota", "invalid_request", "refused", "protocol", "internal")
    ),
    error(ErrorInfo("overloaded", "x", status=500, retryable=False)),
    raises(ValueError("bug")),
    answer("no", stop_reason="refusal"),
]


@each_row("turn", RETRIED, ids=lambda turn: repr(turn.ending)[:40])
async def test_what_may_pass_is_asked_again(turn: Any) -> None:
    """loop.md section 8, loop.md T7"""
    script = ScriptedModel(turn, "whole")
    agent, _ = listened(script, retry=STEADY)

    result = await agent.run("go")

    assert (result.end_reason, result.text, script.asked) == ("done", "whole", 2)


@each_row("turn", NOT_RETRIED, ids=lambda turn: repr(turn.ending)[:40])
async def test_what_will_not_pass_is_asked_once(turn: Any) -> None:
    """loop.md section 8, loop.md T9, failures.md E5"""
    script = ScriptedModel(turn, "never")
    agent, events = listened(script, retry=STEADY)

    result = await agent.run("go")

    assert (result.end_reason, script.asked, events.of(RetryScheduled)) == ("error", 1, [])


async def test_a_server_that_says_how_long_is_obeyed_and_one_that_asks_too_much_fails_at_once() -> None:
    """loop.md section 8"""
    obeyed = ScriptedModel(error(ErrorInfo("rate_limit", "slow down", retry_after=42)), "whole")
    agent, _ = listened(obeyed, retry=STEADY)
    done = await agent.run("go")
    waited = asyncio.get_running_loop().time()
    refused = ScriptedModel(error(ErrorInfo("rate_limit", "slow down", retry_after=3600)))
    agent, _ = listened(refused, retry=STEADY)
    result = await agent.run("go")

    assert (done.text, waited, asyncio.get_running_loop().time()) == ("whole", 42, 42)
    assert (result.end_reason, refused.asked) == ("error", 1)
    assert "3600" in result.detail


async def test_a_slow_healthy_stream_is_not_cut_and_a_silent_one_is() -> None:
    """loop.md section 8"""
    patient = Retry(jitter=0, first_event_timeout=30, idle_timeout=30)
    slow = ScriptedModel(answer("a long answer", deltas=10, pace=29))
    agent, _ = listened(slow, retry=patient)
    healthy = await agent.run("go")
    silent = ScriptedModel(answer("a long answer", deltas=10, pace=31), "quick")
    agent, events = listened(silent, retry=patient)
    recovered = await agent.run("go")

    assert (healthy.text, slow.asked) == ("a long answer", 1)
    assert (recovered.text, silent.asked) == ("quick", 2)
    assert [event.error.kind for event in events.of(RetryScheduled)] == ["stalled"]


async def test_fallback_models_are_asked_in_order_when_retries_are_exhausted() -> None:
    """loop.md section 8"""
    second = ScriptedModel(error("authentication"), id="second")
    third = ScriptedModel("from the third", id="third")
    script = ScriptedModel(error("overloaded", "old words", after=1), repeat_last=True)
    agent, events = listened(script, retry=STEADY, fallbacks=[second.model, third.model])

    result = await agent.run("go")

    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (result.end_reason, last.text, last.model, events.text) == (
        "done",
        "from the third",
        "third",
        "from the third",
    )
    assert [(event.from_model, event.to_model) for event in events.of(ModelFallback)] == [
        ("scripted:script", "scripted:second"),
        ("scripted:second", "scripted:third"),
    ]
    assert (script.asked, second.asked, third.asked) == (3, 1, 1)


async def test_a_key_is_asked_for_anew_for_every_attempt() -> None:
    """loop.md T6"""
    keys = iter(["first", "second", "third"])

    async def get_api_key(provider: str) -> str:
        await asyncio.sleep(1)
        return next(keys)

    script = ScriptedModel(error("overloaded"), call("look"), "done")
    agent, _ = listened(script, tools=[look], retry=STEADY, get_api_key=get_api_key)

    await agent.run("go")

    assert [options.api_key for _, options in script.requests] == ["first", "second", "third"]


async def test_the_usage_of_every_request_is_added_up() -> None:
    """loop.md T8, failures.md S10"""
    child = ScriptedModel(answer("help", usage=Usage(input=1000, output=2000)))
    script = ScriptedModel(
        error("overloaded", "wasted", after=1, usage=Usage(input=1, output=2)),
        answer(call("helper", prompt="x"), usage=Usage(input=10, output=20, cache_read=5)),
        answer("done", usage=Usage(input=100, output=200, reasoning=50)),
    )
    agent, _ = listened(script, tools=[Agent(child.model).as_tool("helper", "Helps.")], retry=STEADY)

    result = await agent.run("go")

    assert result.usage == Usage(input=1111, output=2222, cache_read=5, reasoning=50, total=3338)


async def test_unknown_usage_is_not_zero() -> None:
    """loop.md T8, failures.md I8"""
    reported = answer(call("look"), usage=Usage(input=10, output=20))
    script = ScriptedModel(reported, "not reported")
    agent, _ = listened(script, tools=[look])

    known_and_unknown = await agent.run("go")
    script = ScriptedModel("not reported")
    agent, _ = listened(script)
    unknown = await agent.run("go")

    assert known_and_unknown.usage == Usage(input=10, output=20, partial=True)
    assert unknown.usage == Usage(partial=True)
    assert (unknown.usage.total, unknown.cost) == (None, None)


async def test_an_attempt_that_did_not_report_makes_the_sum_a_lower_bound() -> None:
    """loop.md T8"""
    script = ScriptedModel(cut("half", after=1), answer("whole", usage=Usage(input=10, output=20)))
    agent, _ = listened(script, retry=STEADY)

    result = await agent.run("go")

    assert result.usage == Usage(input=10, output=20, partial=True)


async def test_usage_has_its_price() -> None:
    """loop.md T8"""
    script = ScriptedModel(
        answer(call("look"), usage=Usage(input=100_000, output=0)),
        answer("done", usage=Usage(input=0, output=100_000)),
        prices=Prices(input=2, output=10),
    )
    agent, _ = listened(script, tools=[look])

    result = await agent.run("go")

    assert result.cost == 1.2


async def test_no_retry_strategy_in_a_configuration_means_one_attempt() -> None:
    """loop.md section 8"""
    script = ScriptedModel(error("overloaded"), "never")
    result = await agent_loop("go", AgentContext(), AgentLoopConfig(model=script.model, retry_strategy=None))

    assert (result.end_reason, script.asked) == ("error", 1)


async def test_a_strategy_of_ones_own_decides() -> None:
    """loop.md section 8"""

    class Stubborn:
        """Always once more, up to five, after ten seconds."""

        def should_retry(self, error: ErrorInfo, attempt: int, /) -> bool:
            return attempt < 5

        def delay(self, error: ErrorInfo, attempt: int, /) -> float:
            return 10

    script = ScriptedModel(*[error("authentication")] * 4, [text("whole")])
    agent, _ = listened(script, retry=Stubborn())

    result = await agent.run("go")

    assert (result.text, script.asked, asyncio.get_running_loop().time()) == ("whole", 5, 40)
    assert asked(script, 4) == ["user: go"]


async def test_no_model_is_given_what_is_not_for_models() -> None:
    """loop.md section 1: neither the first one, nor the one that is asked when it failed."""
    first, second = ScriptedModel(error("authentication")), ScriptedModel("ok")
    note = ExtensionMessage(kind="note", data="for the application")
    agent = Agent(first.model, fallbacks=[second.model], messages=[note])

    assert (await agent.run("go")).text == "ok"

    asked = [request for script in (first, second) for request, _ in script.requests]
    assert [(len(request.messages), request.source_messages) for request in asked] == [(1, None), (1, None)]
