from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from tests.provider.streaming.streams import HELLO, MODEL, OPTIONS, REQUEST, Attempts, collected, outcome, said

from steersman.provider.streaming.normalize import stream_events
from steersman.provider.streaming.timeouts import with_timeouts
from steersman.testing.clock import run_virtual
from steersman.types.errors import ErrorInfo
from steersman.types.stream import Done, Failed, StreamEvent, StreamStart, TextDelta


def error_of(stream_fn: Any) -> ErrorInfo | None:
    last = outcome(stream_fn)
    return last.error if isinstance(last, Failed) else None


def test_without_timeouts_the_stream_fn_is_left_as_it_is() -> None:
    source = Attempts()

    assert with_timeouts(source) is source


def test_a_first_event_that_takes_too_long_is_a_stall() -> None:
    source = Attempts([11, *said("hi"), Done(HELLO)])

    assert error_of(with_timeouts(source, first_event=10, idle=60)) == ErrorInfo(
        "stalled", "No event from the model within 10 s (first_event_timeout)."
    )
    assert source.open == 0


def test_the_time_to_get_the_stream_counts_as_the_wait_for_its_first_event() -> None:
    async def never(*_: object) -> Any:
        await asyncio.sleep(3600)

    assert error_of(with_timeouts(never, first_event=10)) == ErrorInfo(
        "stalled", "No event from the model within 10 s (first_event_timeout)."
    )


def test_a_silence_between_events_is_a_stall_at_its_limit_and_not_before() -> None:
    source = Attempts([50, *said("a"), 9.5, TextDelta("b"), 3600, Done(HELLO)])

    async def timed() -> tuple[list[StreamEvent], float]:
        events = [event async for event in stream_events(with_timeouts(source, idle=10), MODEL, REQUEST, OPTIONS)]
        return events, asyncio.get_running_loop().time()

    events, now = run_virtual(timed())

    assert events[:-1] == [*said("a"), TextDelta("b")]
    assert isinstance(events[-1], Failed)
    assert events[-1].error == ErrorInfo("stalled", "No event from the model within 10 s (idle_timeout).")
    assert events[-1].message.text == "ab"
    assert now == 69.5


def test_a_slow_healthy_stream_is_not_cut_however_long_it_takes() -> None:
    steps: list[object] = [StreamStart()]
    for _ in range(1000):
        steps += [9, TextDelta("x")]

    events = collected(with_timeouts(Attempts([*steps, Done(HELLO)]), first_event=10, idle=10))

    assert (len(events), events[-1]) == (1002, Done(HELLO))


def test_the_time_a_consumer_takes_does_not_count() -> None:
    source = Attempts([*said("a"), 1, TextDelta("b"), 1, Done(HELLO)])

    async def slowly() -> list[StreamEvent]:
        events: list[StreamEvent] = []
        async for event in stream_events(with_timeouts(source, first_event=5, idle=5), MODEL, REQUEST, OPTIONS):
            events.append(event)
            await asyncio.sleep(60)
        return events

    assert run_virtual(slowly()) == [*said("a"), TextDelta("b"), Done(HELLO)]


def test_a_shorter_idle_timeout_takes_over_from_a_longer_first_one() -> None:
    source = Attempts([*said("a"), 3600])

    async def when() -> float:
        async for _ in stream_events(with_timeouts(source, first_event=600, idle=5), MODEL, REQUEST, OPTIONS):
            pass
        return asyncio.get_running_loop().time()

    assert run_virtual(when()) == 5.0


def test_a_cancel_from_outside_is_not_taken_for_a_stall() -> None:
    source = Attempts([*said("a"), 3600])

    async def cancelled_at(seconds: float) -> bool:
        async def consume() -> None:
            async for _ in stream_events(with_timeouts(source, idle=10), MODEL, REQUEST, OPTIONS):
                pass

        task = asyncio.create_task(consume())
        asyncio.get_running_loop().call_later(seconds, task.cancel)
        await asyncio.wait([task])
        return task.cancelled()

    assert run_virtual(cancelled_at(5))
    source.asked.clear()
    assert run_virtual(cancelled_at(10)), "at the very moment of the stall the cancel wins"


def test_a_source_that_swallows_the_cut_and_answers_is_believed() -> None:
    async def deaf(*_: object) -> AsyncGenerator[StreamEvent, None]:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            yield Done(HELLO)

    async def then_go_on() -> tuple[list[StreamEvent], int]:
        events = [event async for event in stream_events(with_timeouts(deaf, first_event=1), MODEL, REQUEST, OPTIONS)]
        task = asyncio.current_task()
        assert task is not None
        return events, task.cancelling()

    assert run_virtual(then_go_on()) == ([Done(HELLO)], 0)
