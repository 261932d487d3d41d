"""What a run has for OpenTelemetry, which gets it many at a time: one by one, it costs a third more CPU.

It waits for at most a second. A span that must be known earlier, because a tool makes spans below it or sends its
context to another program, is started when it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from threading import RLock
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from steersman.telemetry.recording import NO_CONTEXT, Attributes, Recording, count_input
from steersman.types.usage import Usage

if TYPE_CHECKING:
    from opentelemetry.util.types import Attributes as GivenAttributes

LONGEST_WAIT: Final = 1.0
"""Seconds until OpenTelemetry has a span or a measurement."""

_MOST_WAITING = 500


class Backlog:
    """The spans and measurements of one run that OpenTelemetry does not have yet.

    `on_failure` is called with what OpenTelemetry raises, for instance in a span processor. It is held weakly: a task
    that a tool has left running keeps its span, and must not keep the run with it.
    """

    __slots__ = ("_loop", "_measured", "_on_failure", "_recording", "_spans", "_timer", "lock")

    def __init__(self, recording: Recording, on_failure: Callable[[Exception], None]) -> None:
        self._recording = recording
        self._on_failure = WeakMethod(on_failure)
        # A tool may ask for its span in a thread, and a span processor for the spans above it.
        self.lock = RLock()
        self._spans: list[LateSpan] = []
        self._measured: list[tuple[Histogram, float, Attributes]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Write from now on also while the run waits for something; called in the task of the run."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Write what is left; nothing is written later."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self.write()

    def start_span(
        self, name: str, context: Context, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> LateSpan:
        """A span that begins now, below that of the context."""
        span = LateSpan(self, name, context, attributes, kind)
        self._spans.append(span)
        if self._timer is None and self._loop is not None and not self._loop.is_closed():
            self._timer = self._loop.call_later(LONGEST_WAIT, self._write_on_time)
        return span

    def add_duration(self, began: float, attributes: Attributes) -> None:
        """Add how long an operation took, that began at this time of `perf_counter`."""
        self._measured.append((self._recording.duration, perf_counter() - began, attributes))
        if len(self._measured) >= _MOST_WAITING:
            self.write()

    def add_first_chunk(self, seconds: float, attributes: Attributes) -> None:
        """Add how long the first chunk of an answer took."""
        self._measured.append((self._recording.first_chunk, seconds, attributes))

    def add_usage(self, usage: Usage, of_input: Attributes, of_output: Attributes) -> None:
        """Add the tokens of one request, as far as the provider reported them."""
        count = count_input(usage)
        if count is not None:
            self._measured.append((self._recording.tokens, count, of_input))
        if usage.output is not None:
            self._measured.append((self._recording.tokens, usage.output, of_output))

    def fail(self, error: Exception) -> None:
        """Report what OpenTelemetry raised; no run sees it."""
        if (report := self._on_failure()) is not None:
            report(error)

    def write(self) -> None:
        """Give everything to OpenTelemetry; spans that are still open are started."""
        with self.lock:
            spans, self._spans = self._spans, []
            measured, self._measured = self._measured, []
            for span in spans:
                if not span.write():
                    # At once: a span after it that fails closes this backlog, which must end the open ones.
                    self._spans.append(span)
            try:
                for histogram, value, attributes in measured:
                    histogram.record(value, attributes, context=NO_CONTEXT)
            except Exception as error:  # noqa: BLE001  # telemetry that fails must not be seen in the run
                self.fail(error)

    def _write_on_time(self) -> None:
        self._timer = None
        self.write()

    def start(self, name: str, context: Context, kind: SpanKind, attributes: Attributes, began: int) -> Span:
        """A span of OpenTelemetry; where that fails, one that records nothing."""
        try:
            return self._recording.tracer.start_span(name, context, kind, attributes, start_time=began)
        except Exception as error:  # noqa: BLE001  # as above
            self.fail(error)
            return INVALID_SPAN


class LateSpan(Span):
    """The span of a request or tool call, current while that goes on. OpenTelemetry's own is started when needed."""

    def __init__(self, backlog: Backlog, name: str, context: Context, attributes: Attributes, kind: SpanKind) -> None:
        self._name, self._above, self._kind = name, context, kind
        self._began = time_ns()
        self._ended: int | None = None
        self._backlog = backlog
        self._attributes = attributes
        self._left: Attributes = {}
        self._status: Status | None = None
        self._span: Span | None = None

    def finish(self, attributes: Attributes, status: Status | None = None) -> None:
        """End it now, with these attributes as well; it is written later."""
        if self._ended is None:
            self._left, self._status, self._ended = attributes, status, time_ns()

    def write(self) -> bool:
        """Give it to OpenTelemetry; returns whether it has ended, so that there is nothing left to write."""
        if self._ended is None:
            self._start()
            return False
        try:
            if self._span is None:
                self._span = span = self._ask_for({**self._attributes, **self._left})
            else:
                span = self._span
                span.set_attributes(self._left)
            if self._status is not None:
                span.set_status(self._status)
            span.end(self._ended)
        except Exception as error:  # noqa: BLE001  # telemetry that fails must not be seen in the run
            self._backlog.fail(error)
        return True

    def _start(self) -> Span:
        with self._backlog.lock:
            if self._span is None:
                self._span = self._ask_for(self._attributes)
            return self._span

    def _ask_for(self, attributes: Attributes) -> Span:
        return self._backlog.start(self._name, self._above, self._kind, attributes, self._began)

    def _change(self) -> Span:
        """The span for changes, which are without effect on one that has ended."""
        return self._start() if self._ended is None else INVALID_SPAN

    # As a span of OpenTelemetry, for those who find it in the context

    def __getattr__(self, name: str) -> Any:
        """What the spans of its SDK have besides, such as `name`, `attributes` and `context`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._start(), name)

    def get_span_context(self) -> SpanContext:
        """The ids of the span, also when it has ended."""
        return self._start().get_span_context()

    def is_recording(self) -> bool:
        """Whether changes are recorded; not when it has ended."""
        return self._change().is_recording()

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set attributes."""
        self._change().set_attributes(attributes)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Set an attribute."""
        self._change().set_attribute(key, value)

    def add_event(self, name: str, attributes: GivenAttributes = None, timestamp: int | None = None) -> None:
        """Add a span event."""
        self._change().add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: GivenAttributes = None) -> None:
        """Add a link."""
        self._change().add_link(context, attributes)

    def update_name(self, name: str) -> None:
        """Change the name."""
        self._change().update_name(name)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status."""
        self._change().set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: GivenAttributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an exception as a span event."""
        self._change().record_exception(exception, attributes, timestamp, escaped)

    def end(self, end_time: int | None = None) -> None:
        """End it before the call does."""
        self._change().end(end_time)
