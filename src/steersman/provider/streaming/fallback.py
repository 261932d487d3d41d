"""Fallback: when one model fails for good, the next one is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from steersman.provider.streaming.batches import Batches
from steersman.provider.streaming.failures import get_error_info, get_usage
from steersman.provider.streaming.normalize import ModelCall, NextAttempt, NormalizedStreamFn, run_attempts
from steersman.types.model import Model, Request, StreamFn, StreamOptions, StreamResponse
from steersman.types.stream import Failed, FallbackNotice

# Another model does not help with these: a refusal is an answer, an overflow needs a shorter request.
_FINAL = frozenset(("refused", "context_overflow"))


def with_fallback(
    stream_fn: StreamFn,
    models: Sequence[Model],
    resolve: Callable[[Model], StreamFn],
    *,
    prepare: Callable[[Request, Model], Request] | None = None,
) -> StreamFn:
    """The same `StreamFn`, and after its final failure those of the other models, in order.

    `prepare` adapts the request to another model, which must not get the thinking of the first one.
    """
    if not models:
        return stream_fn

    def stream_with_fallback(model: Model, request: Request, options: StreamOptions) -> Batches:
        order = [model, *models]
        # `said` is for `prepare` only: it holds more than a model may see.
        plain = request if request.source_messages is None else replace(request, source_messages=None)

        def ask_next(
            asked: Model, _request: Request, _options: StreamOptions
        ) -> StreamResponse | Awaitable[StreamResponse]:
            # Resolved inside the stream, so that a provider that cannot be loaded is a failure like any other.
            fitting = plain if prepare is None else prepare(request, asked)
            return resolve(asked)(asked, fitting, _drop_foreign_key(asked, model, options))

        def again(failed: Failed, attempt: int) -> Failed | NextAttempt:
            error = get_error_info(failed)
            if error.kind in _FINAL or attempt == len(order):
                return failed
            successor = order[attempt]
            notice = FallbackNotice(order[attempt - 1].name, successor.name, error, get_usage(failed))
            return NextAttempt(notice, ask=ModelCall(ask_next, successor, plain, options))

        return run_attempts(ModelCall(stream_fn, model, plain, options), again)

    return NormalizedStreamFn(stream_with_fallback)


def _drop_foreign_key(asked: Model, model: Model, options: StreamOptions) -> StreamOptions:
    """The options without the key if another server is asked: a key must only go to its own server."""
    same = (asked.provider, asked.base_url) == (model.provider, model.base_url)
    return options if same or options.api_key is None else replace(options, api_key=None)
