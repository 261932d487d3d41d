"""Trace context from and to other programs, as W3C `traceparent`."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.context import attach, detach
from opentelemetry.propagate import extract, inject


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
