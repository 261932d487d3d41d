from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.provider.streaming.streams import MODEL, OPTIONS, REQUEST, Attempts, collected, failed, outcome, said

from steersman.provider.streaming.fallback import with_fallback
from steersman.provider.streaming.retry import with_retry
from steersman.provider.streaming.retry_strategy import Retry
from steersman.types.content import TextContent
from steersman.types.errors import ErrorInfo
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, Failed, FallbackNotice, Reset, RetryNotice
from steersman.types.usage import Usage

SPARE = Model("shed", "mouse")
LAST = Model("shed", "vole")
BUSY = ErrorInfo("overloaded", "busy")


def hello_from(model: Model) -> Done:
    return Done(AssistantMessage([TextContent("hello")], model=model.id, provider=model.provider))


def unused(model: Model) -> StreamFn:
    raise AssertionError(f"{model.name} was asked")


def test_after_a_final_failure_the_next_model_answers_and_says_so() -> None:
    first, second = Attempts([failed()]), Attempts([*said("hello"), Done(AssistantMessage([TextContent("hello")]))])

    assert collected(with_fallback(first, [SPARE], lambda model: second)) == [
        FallbackNotice("lab:rat", "shed:mouse", BUSY),
        *said("hello"),
        hello_from(SPARE),
    ]
    assert [asked[0] for asked in first.asked + second.asked] == [MODEL, SPARE]


def test_what_the_failed_model_showed_is_dropped_and_the_start_is_told_once() -> None:
    """failures.md B18"""
    first, second = Attempts([*said("hel"), failed()]), Attempts([*said("hello"), hello_from(SPARE)])

    assert collected(with_fallback(first, [SPARE], lambda model: second)) == [
        *said("hel"),
        FallbackNotice("lab:rat", "shed:mouse", BUSY),
        Reset(),
        *said("hello")[1:],
        hello_from(SPARE),
    ]


def test_models_are_asked_in_order_and_the_last_failure_is_the_answer() -> None:
    by_name = {"mouse": Attempts([failed("quota", "broke")]), "vole": Attempts([failed("network", "gone")])}

    events = collected(with_fallback(Attempts([failed()]), [SPARE, LAST], lambda model: by_name[model.id]))

    assert events == [
        FallbackNotice("lab:rat", "shed:mouse", BUSY),
        FallbackNotice("shed:mouse", "shed:vole", ErrorInfo("quota", "broke")),
        Failed(
            AssistantMessage(
                stop_reason="error", error_message="gone", error_kind="network", model="vole", provider="shed"
            ),
            ErrorInfo("network", "gone"),
        ),
    ]


def test_each_model_is_retried_before_the_next_is_asked() -> None:
    first = with_retry(Attempts([failed()], [failed()]), Retry(max_attempts=2, jitter=0))
    second = Attempts([failed()], [hello_from(SPARE)])

    events = collected(with_fallback(first, [SPARE], lambda model: with_retry(second, Retry(max_attempts=2, jitter=0))))

    assert events == [
        RetryNotice(1, 1.0, BUSY),
        FallbackNotice("lab:rat", "shed:mouse", ErrorInfo("overloaded", "busy (after 2 attempts)")),
        RetryNotice(1, 1.0, BUSY),
        hello_from(SPARE),
    ]


@pytest.mark.parametrize(
    "final",
    [
        failed("refused", "no"),
        failed("context_overflow", "too long"),
        Failed(AssistantMessage(stop_reason="refusal"), BUSY),
        Failed(AssistantMessage(stop_reason="aborted"), BUSY),
    ],
)
def test_a_refusal_an_overflow_or_an_abort_is_not_taken_elsewhere(final: Failed) -> None:
    events = collected(with_fallback(Attempts([final]), [SPARE], unused))

    assert [event.type for event in events] == ["error"]


def test_an_answer_needs_no_other_model() -> None:
    assert collected(with_fallback(Attempts([hello_from(MODEL)]), [SPARE], unused)) == [hello_from(MODEL)]


def test_without_other_models_the_stream_fn_is_left_as_it_is() -> None:
    source = Attempts()

    assert with_fallback(source, [], unused) is source


def test_a_provider_that_cannot_be_loaded_is_a_failure_like_any_other() -> None:
    last = Attempts([hello_from(LAST)])

    def resolve(model: Model) -> StreamFn:
        if model == SPARE:
            raise NotImplementedError("no shed")
        return last

    assert collected(with_fallback(Attempts([failed()]), [SPARE, LAST], resolve)) == [
        FallbackNotice("lab:rat", "shed:mouse", BUSY),
        FallbackNotice("shed:mouse", "shed:vole", ErrorInfo("internal", "NotImplementedError: no shed")),
        hello_from(LAST),
    ]


def test_the_cost_of_the_failed_model_is_told() -> None:
    """failures.md S10"""
    usage = Usage(input=5, output=1)
    first = Attempts([Failed(AssistantMessage(stop_reason="error", usage=usage), BUSY)])

    assert collected(with_fallback(first, [SPARE], lambda model: Attempts([hello_from(SPARE)])))[0] == FallbackNotice(
        "lab:rat", "shed:mouse", BUSY, usage
    )


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (Model("lab", "hamster"), "secret"),
        (Model("shed", "mouse"), None),
        (Model("lab", "rat", base_url="http://127.0.0.1:1"), None),
    ],
)
def test_a_key_is_only_shown_to_the_server_it_was_made_for(other: Model, key: str | None) -> None:
    second = Attempts([hello_from(other)])
    options = StreamOptions(api_key="secret", temperature=0.5)

    collected(with_fallback(Attempts([failed()]), [other], lambda model: second), options=options)

    assert second.asked == [(other, REQUEST, replace(options, api_key=key))]


def test_the_request_is_made_to_fit_each_other_model() -> None:
    first, second = Attempts([failed()]), Attempts([hello_from(SPARE)])

    def prepare(request: Request, model: Model) -> Request:
        return replace(request, system_prompt=f"for {model.name}")

    collected(with_fallback(first, [SPARE], lambda model: second, prepare=prepare))

    assert (first.asked, second.asked) == (
        [(MODEL, REQUEST, OPTIONS)],
        [(SPARE, Request("for shed:mouse", ()), OPTIONS)],
    )


def test_a_request_that_cannot_be_made_to_fit_is_a_failure_of_that_model() -> None:
    def prepare(request: Request, model: Model) -> Any:
        raise KeyError("thinking")

    last = outcome(with_fallback(Attempts([failed()]), [SPARE], unused, prepare=prepare))

    assert isinstance(last, Failed)
    assert last.error == ErrorInfo("internal", "KeyError: 'thinking'")


def test_each_answer_begins_with_the_first_model_again() -> None:
    first, second = Attempts([failed()], [hello_from(MODEL)]), Attempts([hello_from(SPARE)])
    stream_fn = with_fallback(first, [SPARE], lambda model: second)

    assert [outcome(stream_fn), outcome(stream_fn)] == [hello_from(SPARE), hello_from(MODEL)]
