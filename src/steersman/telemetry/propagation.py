"""Trace context from and to other programs, as W3C `traceparent`."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_W3C = TraceContextTextMapPropagator()


@contextmanager
def continue_trace(headers: Mapping[str, str]) -> Generator[None]:
    """Make the trace that these headers name the current one: a run that starts inside is a part of it.

    Fits `Server(enter_request=continue_trace)`. Headers without a valid `traceparent` change nothing.
    """
    token = attach(extract(headers))
    try:
        yield
    finally:
        detach(token)


def read_span_context(traceparent: str | None) -> SpanContext | None:
    """The span that a `traceparent` names; `None` for none, and for a text that is no such thing."""
    if traceparent is None:
        return None
    # Not by the propagators that are configured: a session has this one format.
    found = get_current_span(_W3C.extract({"traceparent": traceparent}, Context())).get_span_context()
    return found if found.is_valid else None


def write_span_context(span: SpanContext) -> str:
    """The `traceparent` that names a span."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


class TraceHeaders(Mapping[str, str]):
    """Headers for a `Model`: your own, and the trace context of the request that they are sent with.

    A model's server is usually a stranger, so no request has a `traceparent` unless its model has these headers.
    """

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._own = dict(headers or {})

    def _read(self) -> dict[str, str]:
        headers = dict(self._own)
        inject(headers)
        return headers

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())
