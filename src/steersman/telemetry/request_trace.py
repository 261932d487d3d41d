"""One request to a model as a span: from the moment it is sent to its last event, however it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from time import perf_counter
from typing import Any, cast
from urllib.parse import urlsplit

from opentelemetry.context import attach, get_current
from opentelemetry.trace import SpanKind, set_span_in_context

from steersman.provider.streaming.batches import BatchedStreamFn, Batches, GeneratedBatches
from steersman.provider.streaming.failures import get_error_info, to_error_info
from steersman.provider.streaming.normalize import ModelCall, close_stream, open_stream, to_event
from steersman.telemetry import names
from steersman.telemetry.backlog import LateSpan
from steersman.telemetry.content import write_instructions, write_messages
from steersman.telemetry.recording import Attributes, describe_usage
from steersman.telemetry.run_trace import RunTrace, get_current_trace
from steersman.types.errors import ErrorKind
from steersman.types.model import Model, Request, StreamFn, StreamOptions
from steersman.types.stream import Done, Failed
from steersman.types.usage import Usage

_LAST = frozenset((Done, Failed))

CANCELLED = "cancelled"
"""The `error.type` of a request whose answer was not awaited to its end."""


INCOMPLETE: ErrorKind = "incomplete"


def trace_requests(stream_fn: StreamFn) -> StreamFn:
    """The same `StreamFn`; each of its requests is a span, if it is made for a run that is traced."""
    if isinstance(stream_fn, BatchedStreamFn):
        # Of the same class: events that are in their normal form already are not put into it again.
        return type(stream_fn)(partial(_open_batches, stream_fn))

    def stream(model: Model, request: Request, options: StreamOptions, /) -> Any:
        trace = get_current_trace()
        if trace is None:
            return stream_fn(model, request, options)
        return _trace_events(trace, ModelCall(stream_fn, model, request, options))

    return stream


def _open_batches(stream_fn: BatchedStreamFn, model: Model, request: Request, options: StreamOptions) -> Batches:
    plain = stream_fn.plain if options.output_schema is None else None
    batches = (plain or stream_fn.batches)(model, request, options)
    trace = get_current_trace()
    if trace is None:
        return batches
    return _trace_batches(trace, batches, ModelCall(stream_fn, model, request, options))


async def _trace_batches(trace: RunTrace, batches: Batches, call: ModelCall) -> GeneratedBatches:
    asked = RequestTrace(trace, call)
    try:
        async for batch in batches:
            if asked.is_waiting:
                asked.note_first_chunk()
            last = batch[-1]
            if type(last) in _LAST:
                asked.finish(cast(Done | Failed, last))
            yield batch
    except Exception as error:
        asked.fail(error)
        raise
    finally:
        asked.end()
        await batches.aclose()


async def _trace_events(trace: RunTrace, call: ModelCall) -> AsyncGenerator[Any, None]:
    asked = RequestTrace(trace, call)
    source: AsyncIterator[Any] | None = None
    try:
        source = await open_stream(call)
        async for event in source:
            if asked.is_waiting:
                asked.note_first_chunk()
            if type(event) in _LAST:
                asked.finish(event)
            elif type(event) is dict:  # a caller's own function may give dicts in place of events
                asked.finish_with_dict(cast(dict[str, Any], event))
            yield event
        asked.end(INCOMPLETE)
    except Exception as error:
        asked.fail(error)
        raise
    finally:
        asked.end()
        await close_stream(source)


class RequestTrace:
    """The span of one request. Nothing here raises: what cannot be recorded is not."""

    __slots__ = ("_began", "_first_chunk", "_measured", "_span", "_trace", "is_waiting")

    def __init__(self, trace: RunTrace, call: ModelCall) -> None:
        self._trace = trace
        self._span: LateSpan | None = None
        self._began = perf_counter()
        self._first_chunk: float | None = None
        self.is_waiting = True
        self._measured: Attributes = {}
        try:
            self._start(call)
        except Exception as error:  # noqa: BLE001  # telemetry that fails must not be seen in the run
            trace.give_up(error)

    def _start(self, call: ModelCall) -> None:
        trace = self._trace
        asked = trace.asked
        if asked is None or not asked.fits(call.model, call.options):
            trace.asked = asked = AskedModel(call.model, call.options)
        self._measured = asked.measured
        self._span = span = trace.backlog.start_span(asked.name, trace.context, asked.attributes, SpanKind.CLIENT)
        trace.open_requests.add(self.end)
        trace.answer_context = set_span_in_context(span, trace.context)
        attach(trace.answer_context)
        if trace.recording.content and span.is_recording():
            span.set_attribute(names.SYSTEM_INSTRUCTIONS, write_instructions(call.request.system_prompt, trace.secrets))
            span.set_attribute(names.INPUT_MESSAGES, write_messages(call.request.messages, trace.secrets))

    def note_first_chunk(self) -> None:
        """Note that the first part of the answer has arrived."""
        self.is_waiting = False
        if self._span is not None:
            self._first_chunk = seconds = perf_counter() - self._began
            self._trace.backlog.add_first_chunk(seconds, self._measured)

    def finish(self, last: Done | Failed) -> None:
        """End the span with the whole answer, or with its failure."""
        if self._span is None:
            return
        try:
            described, message = self._describe_answer(self._span, last), last.message
            if isinstance(last, Failed) or message.failed:
                info = get_error_info(last if isinstance(last, Failed) else Failed(message))
                self._close(described, info.kind, info.message)
            else:
                self._close(described)
            self._add_usage(message.usage)
        except Exception as error:  # noqa: BLE001  # as above
            self._trace.give_up(error)

    def finish_with_dict(self, event: Mapping[str, Any]) -> None:
        """The same for an event that is a dict; any other event than the last changes nothing."""
        if event.get("type") in ("done", "error"):
            try:
                last = to_event(event)
            except Exception:  # noqa: BLE001  # the run reports what is wrong with it
                return
            if isinstance(last, Done | Failed):
                self.finish(last)

    def fail(self, error: Exception) -> None:
        """End the span because the request raised."""
        info = to_error_info(error)
        self._close({}, info.kind, info.message)

    def end(self, kind: str = CANCELLED) -> None:
        """End the span if it is open: the answer was not awaited, or its stream ended before its last event."""
        self._close({}, kind)

    def _describe_answer(self, span: LateSpan, last: Done | Failed) -> Attributes:
        trace, message = self._trace, last.message
        described = describe_usage(message.usage)
        described[names.RESPONSE_FINISH_REASONS] = (names.name_finish_reason(message.stop_reason),)
        if message.model:
            described[names.RESPONSE_MODEL] = trace.redact(message.model)
        if message.response_id:
            described[names.RESPONSE_ID] = trace.redact(message.response_id)
        if trace.recording.content and span.is_recording():
            described[names.OUTPUT_MESSAGES] = write_messages([message], trace.secrets)
        return described

    def _add_usage(self, usage: Usage) -> None:
        asked, measured = self._trace.asked, self._measured
        if asked is not None and measured is asked.measured:
            self._trace.backlog.add_usage(usage, asked.of_input, asked.of_output)
        else:
            self._trace.backlog.add_usage(usage, *split_by_token_type(measured))

    def _close(self, described: Attributes, kind: str | None = None, text: str = "") -> None:
        """End the span if it is open, with the kind of its failure and what that says, if it failed."""
        span, self._span, trace = self._span, None, self._trace
        if span is None:
            return
        trace.open_requests.discard(self.end)
        if get_current() is trace.answer_context:  # else another task ends the request
            attach(trace.context)
        if self._first_chunk is not None:
            described[names.RESPONSE_TIME_TO_FIRST_CHUNK] = self._first_chunk
        failure = None
        if kind is not None:
            described[names.ERROR_TYPE] = kind
            self._measured = {**self._measured, names.ERROR_TYPE: kind}
            failure = trace.describe_failure(text)
        span.finish(described, failure)
        trace.backlog.add_duration(self._began, self._measured)


class AskedModel:
    """What is the same for all requests to one model with the same options: made once, and given to OpenTelemetry."""

    __slots__ = ("_key", "attributes", "measured", "model", "name", "of_input", "of_output")

    def __init__(self, model: Model, options: StreamOptions) -> None:
        self.model = model
        self.name = f"{names.CHAT} {model.id}"
        self._key = _read_options(options)
        self.measured: Attributes = {
            names.OPERATION_NAME: names.CHAT,
            names.PROVIDER_NAME: names.name_provider(model.provider),
            names.REQUEST_MODEL: model.id,
        }
        self.attributes: Attributes = {**self.measured, **_describe_request(model, options)}
        self.of_input, self.of_output = split_by_token_type(self.measured)

    def fits(self, model: Model, options: StreamOptions) -> bool:
        """Whether this describes such a request."""
        return model is self.model and _read_options(options) == self._key


def _read_options(options: StreamOptions) -> tuple[object, ...]:
    """The options that attributes tell of."""
    has_schema = options.output_schema is not None
    return options.max_tokens, options.temperature, options.top_p, options.seed, has_schema


def split_by_token_type(measured: Attributes) -> tuple[Attributes, Attributes]:
    """The attributes of the input tokens and of the output tokens of a request."""
    return {**measured, names.TOKEN_TYPE: "input"}, {**measured, names.TOKEN_TYPE: "output"}


def _describe_request(model: Model, options: StreamOptions) -> Attributes:
    found: dict[str, Any] = {
        names.REQUEST_STREAM: True,
        names.REQUEST_MAX_TOKENS: options.max_tokens,
        names.REQUEST_TEMPERATURE: options.temperature,
        names.REQUEST_TOP_P: options.top_p,
        names.REQUEST_SEED: options.seed,
        names.OUTPUT_TYPE: None if options.output_schema is None else "json",
    }
    if model.base_url:
        # Only these parts: a URL may hold a password or a key.
        where = urlsplit(model.base_url)
        found[names.SERVER_ADDRESS] = where.hostname
        found[names.SERVER_PORT] = where.port or {"http": 80, "https": 443}.get(where.scheme)
    return {name: value for name, value in found.items() if value is not None}
