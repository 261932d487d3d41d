"""Spans and metrics collected in memory, with what must hold for all of them: each span is ended, and ended once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanContext

from steersman.telemetry import instrument


class Collected(SpanProcessor, logging.Handler):
    """All spans of a provider as they start and end, and its metrics."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.started: list[ReadableSpan] = []
        self.ended: list[ReadableSpan] = []
        self.complaints: list[str] = []
        self.reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(self)
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def emit(self, record: logging.LogRecord) -> None:
        self.complaints.append(record.getMessage())

    def record(self, agent_or_all: Any, *, content: bool = False, **options: Any) -> None:
        """Instrument with these providers."""
        instrument(agent_or_all, self.tracer_provider, self.meter_provider, content, **options)

    def check(self) -> None:
        """Every span that was started is ended, once."""
        ids = Counter(context_of(span).span_id for span in self.ended)
        assert set(ids) == {context_of(span).span_id for span in self.started}
        assert set(ids.values()) <= {1}
        assert [text for text in self.complaints if "ended span" in text] == []

    # Looking at spans

    def _sort(self) -> list[ReadableSpan]:
        """All spans in the order of their start, of which OpenTelemetry may have heard later."""
        return sorted(self.started, key=lambda span: span.start_time or 0)

    def find(self, operation: str) -> list[ReadableSpan]:
        """The spans of an operation, in the order of their start."""
        return [span for span in self._sort() if attributes(span).get("gen_ai.operation.name") == operation]

    def children(self, span: ReadableSpan | None, operation: str | None = None) -> list[ReadableSpan]:
        """The spans below another one, in the order of their start."""
        spans = self._sort() if operation is None else self.find(operation)
        return [one for one in spans if parent_id(one) == (None if span is None else context_of(span).span_id)]

    def below(self, span: ReadableSpan) -> Iterator[ReadableSpan]:
        """All spans below another one, at any depth."""
        for child in self.children(span):
            yield child
            yield from self.below(child)

    def started_by(self, span: ReadableSpan) -> ReadableSpan | None:
        """The span above another one."""
        return next((one for one in self.started if context_of(one).span_id == parent_id(span)), None)

    def draw(self, span: ReadableSpan | None = None) -> list[Any]:
        """The names of the spans as a tree: a name, or a name and what is below it."""
        drawn: list[Any] = []
        for child in self.children(span):
            below = self.draw(child)
            drawn.append([child.name, below] if below else child.name)
        return drawn

    def encode(self) -> bytes:
        """Everything as an exporter would send it."""
        metrics = self.reader.get_metrics_data()
        sent = b"" if metrics is None else encode_metrics(metrics).SerializeToString()
        return encode_spans(self.ended).SerializeToString() + sent

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The data points of a metric: attributes and the point."""
        data: Any = self.reader.get_metrics_data()
        resources: list[Any] = [] if data is None else list(data.resource_metrics)
        found: list[tuple[dict[str, Any], Any]] = []
        for resource in resources:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        found += [(dict(point.attributes or {}), point) for point in metric.data.data_points]
        return found


def context_of(span: ReadableSpan) -> SpanContext:
    """The ids of a span."""
    found = span.get_span_context()
    assert found is not None
    return found


def parent_id(span: ReadableSpan) -> int | None:
    """The id of the span above."""
    return None if span.parent is None else span.parent.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """The events of a span."""
    return [(event.name, dict(event.attributes or {})) for event in span.events]
