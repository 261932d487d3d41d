"""When one model fails for good, the next is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from steersman.provider.streaming.batches import Batches
from steersman.provider.streaming.normalize import (
    ModelCall,
    NextAttempt,
    Normal,
    get_error_info,
    get_usage,
    run_attempts,
)
from steersman.types.model import Model, Request, StreamFn, StreamOptions, StreamResponse
from steersman.types.stream import Failed, FallbackNotice

# Another model is no way out of these: one is an answer, the other is cured by a shorter request.
_FINAL = frozenset(("refused", "context_overflow"))


def with_fallback(
    stream_fn: StreamFn,
    models: Sequence[Model],
    resolve: Callable[[Model], StreamFn],
    *,
    prepare: Callable[[Request, Model], Request] | None = None,
) -> StreamFn:
    """The same `StreamFn`, and after its final failure those of the other models, in order.

    `prepare` makes the request fit another model, which must not be sent the first one's thinking.
    """
    if not models:
        return stream_fn

    def falling_back(model: Model, request: Request, options: StreamOptions) -> Batches:
        order = [model, *models]
        # What it was made from is for `prepare` alone: there is more in it than a model may be shown.
        plain = request if request.source_messages is None else replace(request, source_messages=None)

        def ask_next(
            asked: Model, _request: Request, _options: StreamOptions
        ) -> StreamResponse | Awaitable[StreamResponse]:
            # Looked up inside the stream, so that a provider that cannot be loaded is a failure like any other.
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

    return Normal(falling_back)


def _drop_foreign_key(asked: Model, model: Model, options: StreamOptions) -> StreamOptions:
    """A key is for the server it was made for: another one must never see it."""
    same = (asked.provider, asked.base_url) == (model.provider, model.base_url)
    return options if same or options.api_key is None else replace(options, api_key=None)
