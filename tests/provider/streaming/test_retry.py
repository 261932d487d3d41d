from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.provider.streaming.streams import HELLO, MODEL, OPTIONS, REQUEST, Attempts, collected, failed, outcome, said

from steersman.provider.streaming.normalize import stream_events
from steersman.provider.streaming.retry import with_retry
from steersman.provider.streaming.retry_strategy import Retry, RetryStrategy
from steersman.provider.wires.retry_after import classify_status
from steersman.testing.clock import run_virtual
from steersman.types.content import TextContent
from steersman.types.errors import ErrorInfo, NetworkError, OverloadedError, ProviderError, RateLimitError
from steersman.types.messages import AssistantMessage
from steersman.types.stream import (
    Done,
    Failed,
    Reset,
    RetryNotice,
    StreamEvent,
    StreamStart,
    ToolCallDelta,
    ToolCallStart,
)
from steersman.types.usage import Usage

NO_JITTER = Retry(jitter=0)
BUSY = ErrorInfo("overloaded", "busy")


def given_up(info: ErrorInfo, *content: TextContent) -> Failed:
    return Failed(
        AssistantMessage(
            content,
            stop_reason="error",
            error_message=info.message,
            error_kind=info.kind,
            model="rat",
            provider="lab",
        ),
        info,
    )


def test_a_failure_before_anything_was_shown_is_announced_and_asked_again() -> None:
    source = Attempts([failed()], [*said("hello"), Done(HELLO)])

    assert collected(with_retry(source, NO_JITTER)) == [RetryNotice(1, 1.0, BUSY), *said("hello"), Done(HELLO)]
    assert source.times == [0.0, 1.0]


def test_a_retry_after_shown_deltas_tells_consumers_to_drop_them() -> None:
    """loop.md T7, failures.md B18"""
    half: list[StreamEvent] = [*said("a", "b", "c"), ToolCallStart(1, "1", "bash"), ToolCallDelta('{"command": "rm', 1)]
    source = Attempts([*half, failed()], [*said("hello"), Done(HELLO)])

    assert collected(with_retry(source, NO_JITTER)) == [
        *half,
        RetryNotice(1, 1.0, BUSY),
        Reset(),
        *said("hello")[1:],
        Done(HELLO),
    ]


def test_a_start_alone_shows_nothing_and_is_told_once() -> None:
    source = Attempts([StreamStart(), failed()], [StreamStart(), Done(HELLO)])

    assert collected(with_retry(source, NO_JITTER)) == [StreamStart(), RetryNotice(1, 1.0, BUSY), Done(HELLO)]


@pytest.mark.parametrize(
    "error",
    [
        NetworkError("no route"),
        OverloadedError("busy"),
        RateLimitError("slow down"),
        ConnectionResetError("peer gone"),
        TimeoutError("too slow"),
        OSError("no route"),
        EOFError("cut"),
    ],
)
def test_a_raise_of_the_connection_or_the_server_is_asked_again(error: Exception) -> None:
    source = Attempts([error], [Done(HELLO)])

    assert outcome(with_retry(source, NO_JITTER)) == Done(HELLO)
    assert len(source.asked) == 2


def test_a_stream_that_ended_without_its_terminal_event_is_asked_again() -> None:
    source = Attempts(said("hel"), [*said("hello"), Done(HELLO)])
    info = ErrorInfo("incomplete", "The stream ended before its terminal event.")

    assert collected(with_retry(source, NO_JITTER)) == [
        *said("hel"),
        RetryNotice(1, 1.0, info),
        Reset(),
        *said("hello")[1:],
        Done(HELLO),
    ]


@pytest.mark.parametrize(
    "info",
    [
        ErrorInfo("authentication", "no"),
        ErrorInfo("quota", "no"),
        ErrorInfo("context_overflow", "no"),
        ErrorInfo("invalid_request", "no"),
        ErrorInfo("refused", "no"),
        ErrorInfo("protocol", "no"),
        ErrorInfo("internal", "no"),
    ],
)
def test_a_failure_that_would_be_the_same_again_is_not_repeated(info: ErrorInfo) -> None:
    """failures.md E5"""
    source = Attempts([Failed(AssistantMessage(stop_reason="error"), info)])

    assert collected(with_retry(source, Retry())) == [given_up(info)]
    assert len(source.asked) == 1


@pytest.mark.parametrize("reason", ["refusal", "aborted"])
def test_a_refusal_or_an_abort_is_final_whatever_the_error_says(reason: Any) -> None:
    source = Attempts([Failed(AssistantMessage(stop_reason=reason), BUSY)])

    assert outcome(with_retry(source, Retry())).message.stop_reason == reason
    assert len(source.asked) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_a_status_that_may_pass_is_asked_again(status: int) -> None:
    """failures.md E2"""
    source = Attempts([failed(classify_status(status), "no", status=status)], [Done(HELLO)])

    assert outcome(with_retry(source, Retry())) == Done(HELLO)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_a_status_that_will_not_pass_is_not_asked_again(status: int) -> None:
    """failures.md E2, failures.md E5"""
    source = Attempts([failed(classify_status(status), "no", status=status)])

    assert isinstance(outcome(with_retry(source, Retry())), Failed)
    assert len(source.asked) == 1


def test_the_servers_own_word_on_retrying_wins() -> None:
    """failures.md E4"""
    yes = Attempts([failed("invalid_request", "no", status=400, retryable=True)], [Done(HELLO)])
    no = Attempts([failed("overloaded", "no", status=500, retryable=False)])

    assert outcome(with_retry(yes, Retry())) == Done(HELLO)
    assert isinstance(outcome(with_retry(no, Retry())), Failed)
    assert (len(yes.asked), len(no.asked)) == (2, 1)


def test_the_wait_grows_to_its_cap_and_the_attempts_are_counted() -> None:
    source = Attempts(*[[failed()]] * 6)
    retry = Retry(max_attempts=6, base_delay=1, max_delay=5, multiplier=2, jitter=0)

    events = collected(with_retry(source, retry))

    assert events[:-1] == [
        RetryNotice(number, delay, BUSY) for number, delay in enumerate([1.0, 2.0, 4.0, 5.0, 5.0], 1)
    ]
    assert events[-1] == given_up(ErrorInfo("overloaded", "busy (after 6 attempts)"))
    assert source.times == [0.0, 1.0, 3.0, 7.0, 12.0, 17.0]


def test_with_retries_exhausted_the_partial_text_stays_in_the_message() -> None:
    source = Attempts([*said("one"), failed()], [*said("two"), failed()])

    assert outcome(with_retry(source, Retry(max_attempts=2))) == given_up(
        ErrorInfo("overloaded", "busy (after 2 attempts)"), TextContent("two")
    )


@pytest.mark.parametrize(("luck", "delay"), [(0.0, 8.0), (0.5, 7.0), (1.0, 6.0)])
def test_the_jitter_shortens_the_wait_by_up_to_its_share(luck: float, delay: float) -> None:
    assert Retry(base_delay=8, jitter=0.25).delay(BUSY, 1, lambda: luck) == delay


def test_the_wrapper_uses_the_random_numbers_it_is_given() -> None:
    source = Attempts([failed()], [Done(HELLO)])

    assert collected(with_retry(source, Retry(), random=lambda: 1.0))[0] == RetryNotice(1, 0.75, BUSY)


def test_very_many_attempts_do_not_overflow_the_wait() -> None:
    assert Retry(max_attempts=10_000, jitter=0).delay(BUSY, 9_999) == 60.0


def test_a_wait_the_server_asks_for_is_kept_exactly() -> None:
    """failures.md E1"""
    info = ErrorInfo("rate_limit", "slow down", retry_after=34.07)
    source = Attempts([failed("rate_limit", "slow down", retry_after=34.07)], [Done(HELLO)])

    assert collected(with_retry(source, Retry())) == [RetryNotice(1, 34.07, info), Done(HELLO)]
    assert source.times == [0.0, 34.07]


@pytest.mark.parametrize("asked", [-1.0, float("nan")])
def test_a_wait_that_cannot_be_one_counts_as_not_asked(asked: float) -> None:
    """failures.md E1"""
    assert NO_JITTER.delay(ErrorInfo("rate_limit", "x", retry_after=asked), 2) == 2.0


@pytest.mark.parametrize("asked", [61.0, 3600.0, float("inf")])
def test_a_wait_above_the_cap_fails_at_once_and_says_how_long(asked: float) -> None:
    """failures.md E1"""
    source = Attempts([failed("rate_limit", "slow down", retry_after=asked)])
    words = f"slow down (the server asks to wait {asked:g} s, longer than max_delay=60 s)"

    assert collected(with_retry(source, Retry())) == [given_up(ErrorInfo("rate_limit", words, retry_after=asked))]
    assert source.times == [0.0]


def test_a_retry_tells_what_the_failed_attempt_cost_where_that_is_known() -> None:
    """failures.md S10, failures.md I7"""
    usage = Usage(input=10, output=2)
    costly = Failed(AssistantMessage(stop_reason="error", usage=usage), BUSY)
    source = Attempts([costly], [failed()], [Done(HELLO)])

    notices = [event for event in collected(with_retry(source, NO_JITTER)) if isinstance(event, RetryNotice)]

    assert [notice.usage for notice in notices] == [usage, None]


def test_the_wait_can_be_cancelled_at_once() -> None:
    """failures.md E12"""
    source = Attempts([failed(retry_after=60.0)], [Done(HELLO)])

    async def cancelled() -> tuple[bool, float]:
        async def consume() -> None:
            async for _ in stream_events(with_retry(source, Retry()), MODEL, REQUEST, OPTIONS):
                pass

        task = asyncio.create_task(consume())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), asyncio.get_running_loop().time()

    assert run_virtual(cancelled()) == (True, 5.0)
    assert len(source.asked) == 1


def test_waiting_goes_by_the_loops_clock_not_by_the_wall() -> None:
    """failures.md E14"""
    source = Attempts([failed(retry_after=60.0)], [Done(HELLO)])

    # On the virtual loop a minute passes in no time: had the wall clock been asked, it would still be waiting.
    assert collected(with_retry(source, Retry()))[-1] == Done(HELLO)
    assert source.times == [0.0, 60.0]


def test_a_stalled_attempt_is_cut_and_asked_again() -> None:
    source = Attempts([*said("hel"), 3600], [*said("hello"), Done(HELLO)])
    info = ErrorInfo("stalled", "No event from the model within 30 s (idle_timeout).")

    assert collected(with_retry(source, Retry(jitter=0, first_event_timeout=10, idle_timeout=30))) == [
        *said("hel"),
        RetryNotice(1, 1.0, info),
        Reset(),
        *said("hello")[1:],
        Done(HELLO),
    ]
    assert source.times == [0.0, 31.0]


def test_one_attempt_means_no_retry() -> None:
    source = Attempts([failed()])

    assert collected(with_retry(source, Retry(max_attempts=1))) == [given_up(BUSY)]


class Stubborn:
    """A strategy of one's own."""

    def should_retry(self, error: ErrorInfo, attempt: int, /) -> bool:
        return attempt < 3

    def delay(self, error: ErrorInfo, attempt: int, /) -> float:
        return -1.0 if attempt == 1 else float("nan")


def test_any_object_with_the_two_methods_is_a_strategy_and_a_wait_is_never_negative() -> None:
    source = Attempts([failed("invalid_request")], [failed("invalid_request")], [Done(HELLO)])
    strategy: RetryStrategy = Stubborn()

    events = collected(with_retry(source, strategy))

    assert [event.delay for event in events if isinstance(event, RetryNotice)] == [0.0, 0.0]
    assert source.times == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("wait", [float("inf"), 1e308, None, "1"])
def test_a_wait_that_is_none_ends_the_answer_with_both_failures(wait: Any) -> None:
    class Odd(Stubborn):
        def delay(self, error: ErrorInfo, attempt: int, /) -> float:
            return wait

    for _ in range(2):
        last = collected(with_retry(Attempts([failed("rate_limit")]), Odd()))[-1]
        assert isinstance(last, Failed)
        assert last.error is not None
        assert (last.error.kind, "and the retry strategy raised" in last.error.message) == ("rate_limit", True)


def test_a_strategy_that_raises_ends_the_answer_with_both_failures() -> None:
    class Broken(Stubborn):
        def delay(self, error: ErrorInfo, attempt: int, /) -> float:
            raise ZeroDivisionError("of course")

    words = "busy (and the retry strategy raised ZeroDivisionError: of course)"

    assert collected(with_retry(Attempts([failed()]), Broken())) == [given_up(ErrorInfo("overloaded", words))]


def test_an_inner_retry_is_passed_on_and_its_reset_counts() -> None:
    inner = Attempts([*said("a"), failed()], [failed("quota", "broke")], [Done(HELLO)])

    class Patient(Stubborn):
        def delay(self, error: ErrorInfo, attempt: int, /) -> float:
            return 5.0

    events = collected(with_retry(with_retry(inner, NO_JITTER), Patient()))

    # Nothing is shown any more after the inner reset, so the outer retry needs none.
    assert events == [
        *said("a"),
        RetryNotice(1, 1.0, BUSY),
        Reset(),
        RetryNotice(1, 5.0, ErrorInfo("quota", "broke (after 2 attempts)")),
        Done(HELLO),
    ]


def test_the_providers_error_keeps_what_is_known_when_it_is_given_up() -> None:
    error = ProviderError("broken", status=500, request_id="r1", body="{}", retryable=True)
    source = Attempts([error], [error])

    last = outcome(with_retry(source, Retry(max_attempts=2)))

    assert isinstance(last, Failed)
    assert last.error == msgspec.structs.replace(error.info, kind="overloaded", message="broken (after 2 attempts)")


@pytest.mark.parametrize(
    "settings",
    [
        {"max_attempts": 0},
        {"max_attempts": 2.0},
        {"max_attempts": True},
        {"base_delay": -1},
        {"base_delay": float("nan")},
        {"max_delay": float("inf")},
        {"max_delay": "60"},
        {"multiplier": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"first_event_timeout": 0},
        {"idle_timeout": -5},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{next(iter(settings))} must be .* got "):
        Retry(**settings)
