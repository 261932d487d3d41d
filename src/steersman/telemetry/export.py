"""Export as the `OTEL_*` variables say: the providers that they describe, and a flush at the end that is bounded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from threading import Thread
from time import monotonic
from typing import Final

from opentelemetry.context import attach, detach
from opentelemetry.propagate import extract
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from steersman.telemetry.instrumentation import end_open_spans, instrument, uninstrument

FLUSH_SECONDS: Final = 2.0
"""How long the end of a program waits for a collector that does not answer."""

_PROTOCOL: Final = "http/protobuf"
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@dataclass(frozen=True, slots=True)
class Export:
    """The providers of an export; `close` sends what is left."""

    tracer_provider: TracerProvider
    meter_provider: MeterProvider

    def close(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Send what is left and shut down; returns whether that was done within so many seconds."""
        # In threads that may be left behind: OpenTelemetry waits much longer for a collector that does not answer.
        threads = [Thread(target=shut_down, daemon=True) for shut_down in (self._end_traces, self._end_metrics)]
        for thread in threads:
            thread.start()
        deadline = monotonic() + seconds
        for thread in threads:
            thread.join(max(deadline - monotonic(), 0))
        return not any(thread.is_alive() for thread in threads)

    def _end_traces(self) -> None:
        self.tracer_provider.shutdown()

    def _end_metrics(self) -> None:
        self.meter_provider.shutdown()


@contextmanager
def export_by_environment(
    environ: Mapping[str, str] | None = None, *, notify: Callable[[str], object], flush_seconds: float = FLUSH_SECONDS
) -> Generator[Export]:
    """Record all runs and export them as the `OTEL_*` variables say, until the end of the block.

    `notify` is told, in a sentence, of a variable with a value that is not supported here; the rest counts. A
    `TRACEPARENT` variable is the parent of the runs. The global providers of OpenTelemetry are left as they are.
    """
    given = os.environ if environ is None else environ
    _check_protocol(given, notify)
    resource = _make_resource(given)
    export = Export(
        TracerProvider(resource=resource, shutdown_on_exit=False),
        MeterProvider(_make_readers(given, notify), resource=resource, shutdown_on_exit=False),
    )
    for processor in _make_processors(given, notify):
        export.tracer_provider.add_span_processor(processor)
    content = given.get(_CONTENT, "").strip().lower() in ("true", "1", "span_only", "span_and_event")
    instrument("all", export.tracer_provider, export.meter_provider, content)
    token = attach(extract({"traceparent": given.get("TRACEPARENT", "")}))
    try:
        yield export
    finally:
        detach(token)
        uninstrument("all")
        end_open_spans()
        export.close(flush_seconds)


def _make_resource(environ: Mapping[str, str]) -> Resource:
    own = {"service.version": version("steersman")}
    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create(own if named else {**own, "service.name": "steersman"})


def _find_exporter(environ: Mapping[str, str], signal: str, notify: Callable[[str], object]) -> str:
    """The exporter of `TRACES` or `METRICS`: `otlp`, `console` or `none`."""
    name = f"OTEL_{signal}_EXPORTER"
    said = environ.get(name, "").strip().lower()
    if said in ("otlp", "console", "none"):
        return said
    if said:
        notify(f"{name} is {said!r}, and only otlp, console and none are supported: {signal.lower()} are not exported.")
        return "none"
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return "otlp" if any(environ.get(endpoint) for endpoint in endpoints) else "none"


def _check_protocol(environ: Mapping[str, str], notify: Callable[[str], object]) -> None:
    for name in ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        said = environ.get(name, "").strip()
        if said and said != _PROTOCOL:
            notify(f"{name} is {said!r}, and only {_PROTOCOL} is supported: it is used instead.")


def _make_processors(environ: Mapping[str, str], notify: Callable[[str], object]) -> list[SpanProcessor]:
    match _find_exporter(environ, "TRACES", notify):
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return [BatchSpanProcessor(OTLPSpanExporter())]
        case "console":
            # Standard output has the answer.
            return [BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr))]
        case _:
            return []


def _make_readers(environ: Mapping[str, str], notify: Callable[[str], object]) -> list[MetricReader]:
    match _find_exporter(environ, "METRICS", notify):
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            return [PeriodicExportingMetricReader(OTLPMetricExporter())]
        case "console":
            return [PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr))]
        case _:
            return []
