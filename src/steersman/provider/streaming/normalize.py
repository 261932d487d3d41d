"""The normal form of any `StreamFn`: known events, exactly one terminal event, the source always closed, no raise.

Every answer passes through here, so one iterator does both: it normalizes, and it retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Self, TypeAlias, cast, get_args

import msgspec

from steersman.provider.streaming.batches import (
    Batch,
    BatchedStreamFn,
    Batches,
    Events,
    TakeDeltas,
    flatten_batches,
)
from steersman.provider.streaming.failures import get_error_info, recognize_overflow, to_error_info
from steersman.provider.streaming.partial import build_content, partial_message
from steersman.provider.wires.protocol import MAX_TOOL_CALLS, describe_many_calls
from steersman.provider.wires.retry_after import classify_status
from steersman.types.errors import ErrorInfo, IncompleteStreamError, ProtocolError
from steersman.types.messages import AssistantMessage, to_message
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Delta, Done, Failed, FallbackNotice, Reset, RetryNotice, StreamEvent, StreamStart
from steersman.types.usage import add_cost

DELTAS: frozenset[type] = frozenset(get_args(Delta)) - {Reset}
"""The event types that show a part of the answer."""

_CLOSING_SECONDS = 2.0
_KNOWN: tuple[type, ...] = get_args(StreamEvent)


class NormalizedStreamFn(BatchedStreamFn, frozen=True):
    """A `StreamFn` whose streams already have the normal form, so that no second layer is put around them."""


class ModelCall(msgspec.Struct, frozen=True):
    """One call of one model."""

    stream_fn: StreamFn
    model: Model
    request: Request
    options: StreamOptions


class NextAttempt(msgspec.Struct, frozen=True):
    """A next attempt: emit the notice, wait `delay` seconds, and call again, perhaps another model."""

    notice: RetryNotice | FallbackNotice
    delay: float = 0.0
    ask: ModelCall | None = None


DecideNext: TypeAlias = Callable[[Failed, int], Failed | NextAttempt]
"""Decides after a failure and the number of attempts: the next attempt, or the failure to end with."""


def stream_events(stream_fn: StreamFn, model: Model, request: Request, options: StreamOptions) -> Events:
    """The events of one answer, in normal form: an exception, a missing end or a wrong event becomes `Failed`."""
    return flatten_batches(stream_batches(stream_fn, model, request, options))


def stream_batches(stream_fn: StreamFn, model: Model, request: Request, options: StreamOptions) -> Batches:
    """The same events in batches, as they arrived together."""
    if type(stream_fn) is NormalizedStreamFn:
        return stream_fn.batches(model, request, options)
    return run_attempts(ModelCall(stream_fn, model, request, options))


def run_attempts(ask: ModelCall, decide: DecideNext | None = None) -> Batches:
    """Call the model until there is an answer or `decide` gives up; events before a `Reset` no longer count."""
    return _Attempts(ask, decide)


def deliver_deltas(batches: object, take: TakeDeltas) -> None:
    """Let an answer give deltas to `take` while its reader waits for a batch, and goes on waiting, if it can do that.

    What is not taken is in the next batch.
    """
    deliver_to: Callable[[TakeDeltas], None] | None = getattr(batches, "deliver_to", None)
    if deliver_to is not None:
        deliver_to(take)


class _Attempts:
    """The batches of one answer, in normal form. An iterator and not a generator, which costs more in every turn."""

    _count = 0
    _delay: float | None = None
    """Before the next attempt."""
    _source: AsyncIterator[Any] | None = None
    """Where more comes from."""
    _is_batched = _has_started = _is_over = False
    _take: TakeDeltas | None = None
    """Takes deltas as they arrive."""

    def __init__(self, ask: ModelCall, decide: DecideNext | None) -> None:
        self._ask = ask
        self._decide = decide
        # What the attempt has given so far.
        self._seen: list[StreamEvent] = []

    def deliver_to(self, take: TakeDeltas) -> None:
        """Give deltas that come while a batch is waited for to this function."""
        self._take = take
        if self._source is not None:
            deliver_deltas(self._source, self._take_deltas)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if self._is_over:
            raise StopAsyncIteration
        batch: Batch = ()
        outcome: Done | Failed | Exception | None = None
        try:
            source = self._source
            if source is None:
                source = await self._open()
            while not batch and outcome is None:
                item: Any = await anext(source)
                batch = item if self._is_batched else (item,) if type(item) in DELTAS else (to_event(item),)
                last = batch[-1]
                if type(last) is Done or type(last) is Failed:
                    outcome, batch = last, batch[:-1]
                if batch and type(batch[0]) is StreamStart:
                    batch = batch[self._has_started :]
                    self._has_started = True
        except StopAsyncIteration:
            outcome = IncompleteStreamError("The stream ended before its terminal event.")
        except Exception as error:  # noqa: BLE001  # whatever a StreamFn raises is the model's failure, reported as a message
            outcome = error
        except BaseException:
            await self.aclose()
            raise
        self._seen += batch
        if outcome is None:
            return batch
        await self._close_source()
        return (*batch, *self._conclude(outcome))

    async def _open(self) -> AsyncIterator[Any]:
        """Begin an attempt, after its delay."""
        if self._delay is not None:
            await asyncio.sleep(self._delay)
        ask = self._ask
        fn = ask.stream_fn
        self._count += 1
        self._seen = []
        source: Any
        if isinstance(fn, BatchedStreamFn):
            self._is_batched = True
            give = fn.batches if fn.plain is None or ask.options.output_schema is not None else fn.plain
            source = give(ask.model, ask.request, ask.options)
            if self._take is not None:
                deliver_deltas(source, self._take_deltas)
        else:
            self._is_batched = False
            source = await open_stream(ask)
        self._source = source
        return source

    def _take_deltas(self, batch: Batch) -> int:
        taken = 0 if self._take is None else self._take(batch)
        self._seen += batch[:taken]
        return taken

    def _conclude(self, outcome: Done | Failed | Exception) -> Batch:
        """The terminal event, or the notice of the next attempt."""
        final = build_terminal_event(outcome, self._seen, self._ask.model)
        if isinstance(final, Done):
            self._is_over = True
            return (final,)
        step = decide_next(final, self._count, self._decide)
        if isinstance(step, Failed):
            self._is_over = True
            return (step,)
        self._delay, self._ask = step.delay, step.ask or self._ask
        return (step.notice, Reset()) if has_shown_deltas(self._seen) else (step.notice,)

    async def _close_source(self) -> None:
        source, self._source = self._source, None
        if not getattr(source, "is_closed", False):
            await close_stream(source)

    async def aclose(self) -> None:
        """Close the source."""
        self._is_over = True
        if self._source is not None:
            await self._close_source()


async def open_stream(ask: ModelCall) -> AsyncIterator[StreamEvent]:
    """The iterator of a `StreamFn`, whether it is an async generator function or a coroutine function."""
    source: object = ask.stream_fn(ask.model, ask.request, ask.options)
    if not hasattr(source, "__aiter__") and isinstance(source, Awaitable):
        source = await cast(Awaitable[object], source)
    if not hasattr(source, "__aiter__"):
        raise ProtocolError(
            f"stream_fn returned {source!r}; write an async generator, or return an async iterator of events."
        )
    return aiter(cast(AsyncIterator[StreamEvent], source))


async def close_stream(source: AsyncIterator[Any] | None) -> None:
    """Close an iterator that can be closed; wait at most 2 s, because the answer is already there."""
    aclose: Callable[[], Any] | None = getattr(source, "aclose", None)
    if aclose is None:
        return
    try:
        closing = aclose().__await__()
        # Nearly always the first step closes it, and no timer is needed.
        waits_for = closing.send(None) if hasattr(closing, "send") else next(closing)
    except StopIteration:
        return
    except Exception:  # noqa: BLE001  # the answer or its failure is known: a broken cleanup changes neither
        return
    try:
        async with asyncio.timeout(_CLOSING_SECONDS):
            await _StartedAwait(closing, waits_for)
    except Exception:  # noqa: BLE001  # as above
        return


class _StartedAwait:
    """What is left of an await whose first step was taken by hand."""

    __slots__ = ("_steps", "_waits_for")

    def __init__(self, steps: Any, waits_for: Any) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001  # a cancel, passed on to the inner await
                    waits_for = self._steps.throw(error)
                else:
                    waits_for = self._steps.send(sent)
            except StopIteration:
                return


def to_event(value: object) -> StreamEvent:
    """A stream event from one, or from a dict such as `{"type": "text_delta", "delta": "Hi"}`."""
    if isinstance(value, _KNOWN):
        return cast(StreamEvent, value)
    if not isinstance(value, Mapping):
        raise ProtocolError(
            f"stream_fn yielded {value!r}; yield stream events, or dicts with a 'type' such as 'text_delta'."
        )
    fields = dict(cast(Mapping[str, Any], value))
    try:
        if fields.get("type") not in ("done", "error"):
            return msgspec.convert(fields, StreamEvent)
        return _to_terminal_event(fields)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"stream_fn yielded {value!r}, which is not a stream event: {error}") from error


def _to_terminal_event(fields: dict[str, Any]) -> Done | Failed:
    """A terminal event from a dict; its message may be as short as `{"content": "Hi"}`."""
    message: object = fields.get("message")
    error: object = fields.get("error")
    if isinstance(message, Mapping):
        message = to_message({"role": "assistant", **cast(Mapping[str, Any], message)})
    if fields["type"] == "done":
        if not isinstance(message, AssistantMessage):
            raise TypeError("'done' carries the whole assistant message in 'message'")
        return Done(message)
    if isinstance(message, str | None):
        text = message or (error if isinstance(error, str) else None)
        message = AssistantMessage(stop_reason="error", error_message=text)
    if not isinstance(message, AssistantMessage):
        raise TypeError("'error' carries an assistant message, or a text, in 'message'")
    return Failed(message, _parse_error_info(cast(Mapping[str, Any], error)) if isinstance(error, Mapping) else None)


def _parse_error_info(fields: Mapping[str, Any]) -> ErrorInfo:
    """An error from a dict, which may hold only a message or a status."""
    status = fields.get("status")
    kind = classify_status(status) if isinstance(status, int) else "internal"
    return msgspec.convert({"kind": kind, "message": "The model's answer failed.", **fields}, ErrorInfo)


def build_terminal_event(
    outcome: Done | Failed | Exception, seen: Sequence[StreamEvent], model: Model
) -> Done | Failed:
    """The one terminal event of a stream that ended this way after these events."""
    if type(outcome) is Done:
        outcome = _check_answer(outcome)
    elif isinstance(outcome, Exception):
        info = to_error_info(outcome)
        reason = "refusal" if info.kind == "refused" else "error"
        outcome = Failed(partial_message(seen, stop_reason=reason), info)
    message = outcome.message
    changes: dict[str, Any] = {}
    if not message.content and seen and (content := build_content(seen)):
        changes["content"] = content
    if not message.model:
        changes["model"] = model.id
    if not message.provider:
        changes["provider"] = model.provider
    if model.prices is not None and message.usage.cost is None:
        changes["usage"] = add_cost(message.usage, model.prices)
    if isinstance(outcome, Done):
        return Done(msgspec.structs.replace(message, **changes)) if changes else outcome
    info = recognize_overflow(get_error_info(outcome))
    if not message.failed:
        changes["stop_reason"] = "error"
    changes["error_message"] = message.error_message or info.message
    changes["error_kind"] = info.kind
    return Failed(msgspec.structs.replace(message, **changes), info)


def _check_answer(done: Done) -> Done | Failed:
    """The answer, or the failure that it is: it says so itself, or has too many tool calls."""
    message = done.message
    if message.stop_reason in ("error", "aborted"):
        return Failed(message)
    if len(message.content) <= MAX_TOOL_CALLS or len(message.tool_calls) <= MAX_TOOL_CALLS:
        return done
    content = message.content[:MAX_TOOL_CALLS]
    failed = msgspec.structs.replace(message, content=content, stop_reason="error")
    return Failed(failed, ErrorInfo("protocol", describe_many_calls()))


def has_shown_deltas(seen: Sequence[StreamEvent]) -> bool:
    """Whether a consumer has seen a part of the answer since the last reset."""
    for event in reversed(seen):
        if type(event) in DELTAS:
            return True
        if isinstance(event, Reset):
            return False
    return False


def decide_next(final: Failed, attempt: int, decide: DecideNext | None) -> Failed | NextAttempt:
    """The failure, or the next attempt. A refusal or an abort is an answer and never retried."""
    if decide is None or final.message.stop_reason in ("aborted", "refusal"):
        return final
    return decide(final, attempt)
