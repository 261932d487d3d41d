"""The conformance suite, held against the scripted model and against models that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from tests.rows import each_row

from steersman.provider.streaming.normalize import stream_events
from steersman.testing import (
    Scenario,
    ScriptedModel,
    Subject,
    answer,
    call,
    check_stream,
    conformance_checks,
    cut,
    error,
    stall,
    thinking,
)
from steersman.testing.conformance import (
    Check,
    a_failure_is_an_event_with_a_reason,
    a_request_is_left_as_it_was,
    a_silent_stream_can_be_cancelled,
    a_stream_can_be_left_early,
    a_stream_that_breaks_off_is_not_a_success,
    tool_calls_are_what_their_deltas_said,
)
from steersman.types.content import TextContent
from steersman.types.messages import AssistantMessage, user_message
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, StreamEvent, StreamStart, TextDelta, TextEnd, TextStart

SCRIPTS = {
    "text": answer("Hello there"),
    "thinking": answer(thinking("Hm."), "Yes."),
    "tool_calls": answer("Look.", call("look", at="x"), call("look", at="y")),
    "error": error("overloaded"),
    "cut": cut("Hello there", after=2),
    "stall": stall("Hello there", after=1),
}


def scripted(scenario: Scenario) -> Subject:
    """The scripted model in normal form: by itself it cuts a stream where a provider would say so."""
    script = ScriptedModel(SCRIPTS[scenario])

    def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[StreamEvent, None]:
        return stream_events(script, model, request, options)

    return Subject(stream, script.model, Request("", [user_message("Hi")]))


@each_row("check", conformance_checks(), ids=lambda check: check.__name__)
async def test_the_scripted_model_conforms(check: Check) -> None:
    await check(scripted)
    assert check.__doc__


@each_row("check", conformance_checks(), ids=lambda check: check.__name__)
async def test_a_scenario_that_cannot_be_set_up_is_left_out(check: Check) -> None:
    await check(lambda scenario: None)
    assert check.__doc__


MESSAGE = AssistantMessage([TextContent("Hello")])
WHOLE: list[StreamEvent] = [StreamStart(), TextStart(), TextDelta("Hello"), TextEnd(), Done(MESSAGE)]


@each_row(
    ("events", "words"),
    [
        ([], "Expected events, got none"),
        (WHOLE[1:], "Expected 'start' first"),
        (WHOLE[:-1], "Expected one terminal event"),
        ([*WHOLE, WHOLE[-1]], "Expected one terminal event"),
        ([*WHOLE[:3], WHOLE[-1]], r"Expected every block to end, but \[0\] did not"),
        ([WHOLE[0], *WHOLE[2:]], "between the start and the end of its text block"),
        ([*WHOLE[:2], TextDelta("Help"), *WHOLE[3:]], "what its deltas said"),
        ([*WHOLE[:2], *WHOLE[1:]], "Expected one start of block 0"),
    ],
)
def test_a_malformed_stream_is_told_what_is_wrong(events: list[StreamEvent], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_stream(events)


def test_a_well_formed_stream_gives_its_message() -> None:
    assert check_stream(WHOLE) is MESSAGE


def playing(events: Sequence[StreamEvent]) -> Subject:
    async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[StreamEvent, None]:
        for event in events:
            yield event

    return Subject(stream, Model("p", "m"), Request("", [user_message("Hi")]))


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (a_failure_is_an_event_with_a_reason, "Expected 'error'"),
        (a_stream_that_breaks_off_is_not_a_success, "Expected 'error'"),
        (tool_calls_are_what_their_deltas_said, "Expected two tool calls"),
    ],
)
async def test_a_model_that_always_succeeds_does_not_conform(check: Check, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await check(lambda scenario: playing(WHOLE))


async def test_a_model_that_changes_the_request_does_not_conform() -> None:
    messages = [user_message("Hi")]

    async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[StreamEvent, None]:
        messages.clear()
        for event in WHOLE:
            yield event

    with pytest.raises(AssertionError, match="as it was before"):
        await a_request_is_left_as_it_was(lambda scenario: Subject(stream, Model("p", "m"), Request("", messages)))


async def test_a_model_that_swallows_its_cancel_does_not_conform() -> None:
    async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[StreamEvent, None]:
        yield StreamStart()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            yield WHOLE[-1]

    with pytest.raises(AssertionError, match="Expected the reader to end cancelled"):
        await a_silent_stream_can_be_cancelled(
            lambda scenario: Subject(stream, Model("p", "m"), Request("", [user_message("Hi")]))
        )


async def test_a_model_that_leaves_a_task_does_not_conform() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[StreamEvent, None]:
        tasks.append(asyncio.create_task(asyncio.sleep(1000)))
        for event in WHOLE:
            yield event

    with pytest.raises(AssertionError, match="Expected no task to be left"):
        await a_stream_can_be_left_early(
            lambda scenario: Subject(stream, Model("p", "m"), Request("", [user_message("Hi")]))
        )
    tasks[0].cancel()
