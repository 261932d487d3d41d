"""An OTLP/HTTP collector on loopback that decodes what it gets."""

from __future__ import annotations

import gzip
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


class Collector:
    """What was sent: the bodies as they came, spans and metric names as decoded, and headers by path."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.spans: list[Any] = []
        self.metrics: list[str] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Decode a request; what is no OTLP raises, and the exporter gets an error."""
        body = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        self.bodies.append(body)
        self.headers.append(headers)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(read_attributes(resource.resource.attributes))
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics", path
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics += [metric.name for scope in resource.scope_metrics for metric in scope.metrics]

    def draw(self, parent: bytes = b"") -> list[Any]:
        """The names of the spans as a tree."""
        drawn: list[Any] = []
        known = {span.span_id for span in self.spans}
        for span in sorted(self.spans, key=lambda one: one.start_time_unix_nano):
            if span.parent_span_id == parent or (parent == b"" and span.parent_span_id not in known):
                below = self.draw(span.span_id)
                drawn.append([span.name, below] if below else span.name)
        return drawn


def read_attributes(given: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    found: dict[str, Any] = {}
    pair: KeyValue
    for pair in given:
        kind = pair.value.WhichOneof("value")
        found[pair.key] = None if kind is None else getattr(pair.value, kind)
    return found


@contextmanager
def collect() -> Generator[Collector]:
    """A collector that listens."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
