"""Answers that are billed for more than the window holds, and so were perhaps to less than all of the request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from tests.loop.test_compaction import history
from tests.loop.toolbox import echo, texts, told
from tests.loop.toolbox import unmanaged_agent_of as agent_of

from steersman import Agent, AssistantMessage, ContextConfig, Retry, Stop, Usage
from steersman.provider.scripted.script import Turn
from steersman.testing import EventCollector, ScriptedModel, answer, call, error
from steersman.types.content import TextContent
from steersman.types.errors import AuthenticationError, ErrorInfo
from steersman.types.events import CompactionEnded, MessageUpdate, RetryScheduled
from steersman.types.messages import user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamEvent, TextDelta, TextEnd, TextStart

WINDOW = 8_000
OVER = Usage(input=9_000, output=10)
FITS = Usage(input=900, output=3)
DOWN = error(ErrorInfo("invalid_request", "no such model", status=400))


def passes(heard: EventCollector) -> list[bool]:
    """The compactions, and whether they freed anything."""
    return [event.reduced for event in heard.of(CompactionEnded)]


def resets(heard: EventCollector) -> int:
    return [event.delta.type for event in heard.of(MessageUpdate)].count("reset")


async def test_a_request_that_stays_too_long_is_not_shortened_in_every_turn() -> None:
    """loop.md C3, C5: what the tools and the system prompt take is never freed."""
    turns = [answer(call("echo", text=f"{number}"), usage=OVER) for number in range(6)]
    script = ScriptedModel(*turns, answer("Done.", usage=OVER), context_window=WINDOW)
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("Go on.")
    # The first was asked for twice.
    assert (result.end_reason, result.text, script.asked, passes(heard)) == ("done", "Done.", 7, [True])
    assert [text for _, text, *_ in told(result.messages)] == ["1", "2", "3", "4", "5"]


async def test_it_is_shortened_again_once_there_is_more_of_it() -> None:
    """loop.md C3, C5"""
    more = Usage(input=11_000, output=10)
    script = ScriptedModel(
        answer(call("echo", text="never run"), usage=OVER),
        answer(call("echo", text="x" * 8_000), usage=OVER),
        answer(call("echo", text="never run"), usage=more),
        answer(call("echo", text="z"), usage=FITS),
        "Done.",
        context_window=WINDOW,
    )
    agent, heard = agent_of(script, [echo], messages=history(10, 4_000))
    result = await agent.run("Go on.")
    assert (result.text, script.asked, passes(heard)) == ("Done.", 5, [True, True])
    assert [text for _, text, *_ in told(result.messages)] == ["x" * 8_000, "z"]


@pytest.mark.parametrize(
    "turn",
    [
        answer("Words.", usage=OVER),
        answer(usage=OVER),
        answer(stop_reason="length", usage=Usage(input=7_990, output=0)),
    ],
)
async def test_where_nothing_can_be_freed_it_is_an_error_that_says_so(turn: Turn) -> None:
    """loop.md C5, failures.md E8"""
    script = ScriptedModel(turn, "never said", context_window=WINDOW)
    agent, heard = agent_of(script)
    result = await agent.run("What is it?")
    assert (result.end_reason, script.asked, passes(heard)) == ("error", 1, [False])
    assert result.detail == (
        "The request is longer than the model's context window. Compaction could free nothing more: shorten the "
        "conversation."
    )


async def test_a_pass_that_freed_nothing_before_the_answer_does_not_make_it_whole() -> None:
    """loop.md C3, C5: that pass was made for the threshold, and not for what the bill says."""
    said = [user_message("x" * 4_000) for _ in range(17)]
    # Over its threshold, and what it keeps is all there is.
    config = ContextConfig(max_context_tokens=20_000, keep_first=20)
    script = ScriptedModel(answer("Half blind.", usage=Usage(input=17_000)), "never said", context_window=16_500)
    agent, heard = agent_of(script, messages=said, context_config=config)
    result = await agent.run("Go on.")
    assert (result.end_reason, script.asked, passes(heard)) == ("error", 1, [False, False])
    assert result.detail.endswith("Compaction could free nothing more: shorten the conversation.")


async def test_an_answer_stays_where_a_hook_says_stop_and_its_calls_do_not_run() -> None:
    """loop.md 5"""

    def stop(*_: int) -> Stop:
        return Stop("enough")

    script = ScriptedModel(answer("Look:", call("echo", text="a"), usage=OVER), context_window=WINDOW)
    agent, _ = agent_of(script, [echo], messages=history(10, 4_000)[:-1], after_compaction_end=stop)
    result = await agent.run("Go on.")
    assert (result.end_reason, result.detail, result.usage, script.asked) == ("stopped", "enough", OVER, 1)
    assert (result.text, [status for *_, status in told(result.messages)]) == ("Look:", ["not_started"])


@pytest.mark.parametrize(
    "second", [DOWN, error("overloaded", after=2), answer(usage=OVER), answer(usage=Usage(input=8_001))]
)
async def test_an_answer_comes_back_where_asking_again_gives_none(second: Turn) -> None:
    """loop.md C5, T7: it is shown again, and counted once."""
    script = ScriptedModel(answer("A good", " answer.", usage=OVER), second, context_window=WINDOW)
    agent, heard = agent_of(script, messages=history(10, 4_000), retry=Retry(max_attempts=1))
    result = await agent.run("Go on.")
    assert (result.end_reason, result.text, script.asked) == ("done", "A good answer.", 2)
    assert (heard.text, passes(heard)) == ("A good answer.", [True])
    assert result.usage.input == 9_000 + (second.usage.input or 0 if second.usage else 0)
    # How long the conversation is now, and not before the compaction.
    assert agent.context.log.tokens < 3_000


async def test_retries_of_the_second_request_are_told_and_counted() -> None:
    """loop.md T7, T8"""
    busy = error(ErrorInfo("overloaded", "busy", status=529))
    script = ScriptedModel(answer("A good answer.", usage=OVER), busy, busy, context_window=WINDOW)
    agent, heard = agent_of(script, messages=history(10, 4_000), retry=Retry(max_attempts=2, base_delay=0))
    result = await agent.run("Go on.")
    assert (result.end_reason, result.text, passes(heard)) == ("done", "A good answer.", [True])
    assert (len(heard.of(RetryScheduled)), result.usage) == (1, OVER)


async def test_a_refusal_of_the_whole_request_counts_more_than_an_answer_to_a_part_of_it() -> None:
    """loop.md T9"""
    no = answer("No.", stop_reason="refusal")
    script = ScriptedModel(answer("A good answer.", usage=OVER), no, context_window=WINDOW)
    agent, heard = agent_of(script, messages=history(10, 4_000))
    result = await agent.run("Go on.")
    assert (result.end_reason, passes(heard)) == ("error", [True])


async def test_an_abort_while_it_is_asked_for_again_is_an_abort() -> None:
    """loop.md T12"""

    def abort(request: Request) -> str:
        agent.abort()
        return "never said"

    script = ScriptedModel(answer("A good answer.", usage=OVER), abort, context_window=WINDOW)
    agent, _ = agent_of(script, messages=history(10, 4_000))
    result = await agent.run("Go on.")
    assert (result.end_reason, result.usage.input) == ("aborted", 9_000)


async def test_what_is_added_to_an_answer_must_fit_all_the_same() -> None:
    """failures.md S12"""
    script = ScriptedModel(answer("Yes.", usage=FITS), "never said", context_window=WINDOW)
    agent, _ = agent_of(script, context_config=ContextConfig(max_context_tokens=WINDOW))
    await agent.run("Is it?")
    result = await agent.run("x" * 40_000)
    assert (result.end_reason, script.asked) == ("error", 1)


async def test_the_same_model_elsewhere_has_a_window_of_its_own() -> None:
    """loop.md C5: two servers of one model, of which the second has less room."""
    down: list[str] = []

    async def stream_fn(model: Model, request: Request, options: StreamOptions, /) -> AsyncGenerator[StreamEvent, None]:
        if model.base_url in down:
            raise AuthenticationError("no such key")
        for delta in (TextStart(), TextDelta("ok"), TextEnd()):
            yield delta
        yield Done(AssistantMessage([TextContent("ok")], usage=OVER))

    large = Model("scripted", "m", base_url="http://large", context_window=100_000)
    small = replace(large, base_url="http://small", context_window=WINDOW)
    said = [user_message("x" * 4_000) for _ in range(60)]
    agent = Agent(large, fallbacks=[small], stream_fn=stream_fn, messages=said)
    heard = EventCollector()
    agent.subscribe(heard)
    assert ((await agent.run("Go on.")).text, passes(heard)) == ("ok", [])
    down.append("http://large")
    assert ((await agent.run("Go on.")).text, passes(heard)) == ("ok", [True])
    assert texts(agent.messages)[-1] == ("assistant", "ok")
