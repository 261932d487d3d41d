from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.provider.streaming.streams import HELLO, MODEL, OPTIONS, REQUEST, Attempts, collected, outcome, said

from steersman.provider.streaming.fallback import with_fallback
from steersman.provider.streaming.normalize import NormalizedStreamFn, stream_batches, stream_events
from steersman.provider.streaming.retry import with_retry
from steersman.provider.streaming.retry_strategy import Retry
from steersman.testing.clock import run_virtual
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import AuthenticationError, ErrorInfo, ProtocolError, RefusedError
from steersman.types.messages import AssistantMessage
from steersman.types.stream import (
    Done,
    Failed,
    StreamEvent,
    StreamStart,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from steersman.types.usage import Usage


def test_a_good_stream_passes_unchanged() -> None:
    events = [*said("hel", "lo"), Done(HELLO)]

    assert collected(Attempts(events)) == events


def test_a_stream_fn_may_be_a_generator_function_a_coroutine_function_or_return_an_iterator() -> None:
    events = [*said("hi"), Done(HELLO)]

    async def generator(*_: object) -> AsyncGenerator[StreamEvent, None]:
        for event in events:
            yield event

    async def coroutine(*arguments: object) -> AsyncGenerator[StreamEvent, None]:
        await asyncio.sleep(1)
        return generator(*arguments)

    class Iterable:
        def __init__(self, *_: object) -> None: ...

        def __aiter__(self) -> AsyncGenerator[StreamEvent, None]:
            return generator()

    assert collected(generator) == collected(coroutine) == collected(Iterable) == events


def test_events_may_be_dicts() -> None:
    script = [
        {"type": "start"},
        {"type": "text_delta", "delta": "hel", "content_index": 0},
        {"type": "tool_call_end", "content_index": 1, "tool_call": {"type": "tool_call", "id": "1", "name": "f"}},
        {"type": "done", "message": {"role": "assistant", "content": "hello", "stop_reason": "stop"}},
    ]

    assert collected(Attempts(script)) == [
        StreamStart(),
        TextDelta("hel"),
        ToolCallEnd(1, ToolCall("1", "f")),
        Done(HELLO),
    ]


@pytest.mark.parametrize(
    ("event", "info"),
    [
        ({"type": "error", "message": "out of order"}, ErrorInfo("internal", "out of order")),
        ({"type": "error", "error": "out of order"}, ErrorInfo("internal", "out of order")),
        (
            {"type": "error", "message": {"content": []}, "error": {"kind": "quota", "message": "broke"}},
            ErrorInfo("quota", "broke"),
        ),
    ],
)
def test_an_error_may_be_a_dict_with_a_text_or_a_message(event: dict[str, Any], info: ErrorInfo) -> None:
    assert outcome(Attempts([event])) == Failed(
        AssistantMessage(
            stop_reason="error", error_message=info.message, error_kind=info.kind, model="rat", provider="lab"
        ),
        info,
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, "stream_fn yielded None; yield stream events, or dicts with a 'type'"),
        ("hello", "stream_fn yielded 'hello'; yield stream events"),
        ({"type": "nope"}, "stream_fn yielded {'type': 'nope'}, which is not a stream event"),
        ({"type": "text_delta", "delta": 3}, "which is not a stream event: Expected `str`, got `int`"),
        ({"type": "done"}, "'done' carries the whole assistant message in 'message'"),
        ({"type": "done", "message": {"role": "user", "content": "x"}}, "'done' carries the whole assistant message"),
        ({"type": "error", "message": 3}, "'error' carries an assistant message, or a text, in 'message'"),
    ],
)
def test_what_is_no_event_fails_the_answer_and_says_so(wrong: object, words: str) -> None:
    last = outcome(Attempts([*said("hel"), wrong, Done(HELLO)]))

    assert isinstance(last, Failed)
    assert last.error is not None
    assert last.error.kind == "protocol"
    assert words in last.error.message
    assert last.message.text == "hel"


@pytest.mark.parametrize("given", [None, 3, [StreamStart()]])
def test_what_is_no_stream_fails_the_answer_and_says_so(given: object) -> None:
    words = f"stream_fn returned {given!r}; write an async generator, or return an async iterator of events."

    def stream_fn(*_: object) -> object:
        return given

    last = collected(stream_fn)

    assert [type(event) for event in last] == [Failed]
    assert last == [
        Failed(
            AssistantMessage(
                stop_reason="error", error_message=words, error_kind="protocol", model="rat", provider="lab"
            ),
            ErrorInfo("protocol", words),
        )
    ]


@pytest.mark.parametrize(
    ("error", "info"),
    [
        (AuthenticationError("bad key", status=401), ErrorInfo("authentication", "bad key", status=401)),
        (ProtocolError(""), ErrorInfo("protocol", "ProtocolError")),
        (ConnectionResetError("peer gone"), ErrorInfo("network", "ConnectionResetError: peer gone")),
        (TimeoutError(), ErrorInfo("stalled", "TimeoutError")),
        (
            asyncio.IncompleteReadError(b"", 5),
            ErrorInfo("incomplete", "IncompleteReadError: 0 bytes read on a total of 5 expected bytes"),
        ),
        (KeyError("id"), ErrorInfo("internal", "KeyError: 'id'")),
    ],
)
def test_a_raise_becomes_a_failure_that_keeps_what_had_arrived(error: Exception, info: ErrorInfo) -> None:
    last = outcome(Attempts([*said("hel"), error]))

    assert last == Failed(
        AssistantMessage(
            [TextContent("hel")],
            stop_reason="error",
            error_message=info.message,
            error_kind=info.kind,
            model="rat",
            provider="lab",
        ),
        info,
    )


def test_a_raise_before_the_stream_is_there_is_a_failure_too() -> None:
    def stream_fn(*_: object) -> Any:
        raise RuntimeError("no model today")

    events = collected(stream_fn)

    assert [(event.type, event.error) for event in events if isinstance(event, Failed)] == [
        ("error", ErrorInfo("internal", "RuntimeError: no model today"))
    ]


def test_a_raised_refusal_is_a_refusal() -> None:
    assert outcome(Attempts([RefusedError("no")])).message.stop_reason == "refusal"


def test_a_stream_without_its_terminal_event_is_incomplete_and_keeps_its_text() -> None:
    """failures.md B18"""
    half_a_call: list[StreamEvent] = [ToolCallStart(1, "1", "bash"), ToolCallDelta('{"command": "rm', 1)]
    words = "The stream ended before its terminal event."

    assert outcome(Attempts([*said("hel", "lo"), *half_a_call])) == Failed(
        AssistantMessage(
            [TextContent("hello")],
            stop_reason="error",
            error_message=words,
            error_kind="incomplete",
            model="rat",
            provider="lab",
        ),
        ErrorInfo("incomplete", words),
    )


def test_events_after_the_terminal_one_are_ignored_and_the_source_is_closed_before_it_is_told() -> None:
    source = Attempts([Done(HELLO), TextDelta("more"), Done(HELLO), RuntimeError("late")])

    async def open_when_told() -> list[tuple[StreamEvent, int]]:
        return [(event, source.open) async for event in stream_events(source, MODEL, REQUEST, OPTIONS)]

    assert run_virtual(open_when_told()) == [(Done(HELLO), 0)]


def test_the_source_is_closed_when_the_consumer_leaves_early() -> None:
    source = Attempts([*said("hel"), 3600, Done(HELLO)])

    async def leave() -> int:
        events = stream_events(source, MODEL, REQUEST, OPTIONS)
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await events.aclose()
        return source.open

    assert run_virtual(leave()) == 0


def test_a_source_whose_cleanup_raises_keeps_its_answer() -> None:
    async def untidy(*_: object) -> AsyncGenerator[StreamEvent, None]:
        try:
            yield Done(HELLO)
        finally:
            raise RuntimeError("cannot close")

    assert collected(untidy) == [Done(HELLO)]


def test_a_cancel_passes_through_and_closes_the_source() -> None:
    source = Attempts([*said("hel"), 3600, Done(HELLO)])

    async def cancelled() -> tuple[bool, int, float]:
        async def consume() -> None:
            async for _ in stream_events(source, MODEL, REQUEST, OPTIONS):
                pass

        task = asyncio.create_task(consume())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), source.open, asyncio.get_running_loop().time()

    assert run_virtual(cancelled()) == (True, 0, 1.0)


def test_the_start_is_told_once() -> None:
    assert collected(Attempts([StreamStart(), StreamStart(), Done(HELLO)])) == [StreamStart(), Done(HELLO)]


def test_a_message_that_left_out_its_origin_or_its_content_gets_them() -> None:
    usage = Usage(input=1, output=2)

    assert outcome(Attempts([*said("hel", "lo"), Done(AssistantMessage(usage=usage))])) == Done(
        AssistantMessage([TextContent("hello")], usage=usage, model="rat", provider="lab")
    )


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_a_done_that_says_it_failed_is_a_failure(reason: Any) -> None:
    message = AssistantMessage(stop_reason=reason, error_message="broke", model="rat", provider="lab")

    assert outcome(Attempts([Done(message)])) == Failed(
        AssistantMessage(stop_reason=reason, error_message="broke", error_kind="internal", model="rat", provider="lab"),
        ErrorInfo("internal", "broke"),
    )


def test_a_failure_that_does_not_say_why_is_told_with_words_and_never_as_a_success() -> None:
    words = "The model's answer failed without saying why."

    assert outcome(Attempts([Failed(AssistantMessage())])) == Failed(
        AssistantMessage(stop_reason="error", error_message=words, error_kind="internal", model="rat", provider="lab"),
        ErrorInfo("internal", words),
    )


def test_a_failure_that_says_refusal_is_of_that_kind() -> None:
    last = outcome(Attempts([Failed(AssistantMessage(stop_reason="refusal", error_message="no"))]))

    assert isinstance(last, Failed)
    assert last.error == ErrorInfo("refused", "no")


def test_a_stream_in_normal_form_gets_no_second_layer() -> None:
    batches = stream_batches(Attempts([Done(HELLO)]), MODEL, REQUEST, OPTIONS)

    assert (
        stream_batches(NormalizedStreamFn(lambda model, request, options: batches), MODEL, REQUEST, OPTIONS) is batches
    )
    assert isinstance(with_retry(Attempts(), Retry()), NormalizedStreamFn)
    assert isinstance(with_fallback(Attempts(), [MODEL], lambda model: Attempts()), NormalizedStreamFn)
