"""OpenTelemetry for the command: on if `OTEL_*` variables ask for an export, and never a reason to fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from steersman.cli.exits import describe_error
from steersman.cli.redact import redact_keys
from steersman.cli.terminal.sanitize import sanitize_line

if TYPE_CHECKING:
    from steersman.telemetry import Export

_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
_EXPORTERS = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER")
_active: list[Export] = []


def find_export_variable(environ: Mapping[str, str]) -> str | None:
    """The variable that asks for an export; `None` if none does, or if OpenTelemetry is disabled."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    for name in (*_EXPORTERS, *_ENDPOINTS):
        said = environ.get(name, "").strip()
        if said and (name not in _EXPORTERS or said.lower() != "none"):
            return name
    return None


@contextmanager
def export_runs() -> Generator[None]:
    """Exports the runs of the block if the environment asks for it; a message says why it cannot, once."""
    variable = find_export_variable(os.environ)
    if variable is None:
        yield
        return
    with ExitStack() as stack:
        try:
            from steersman.telemetry import export_by_environment

            _active.append(stack.enter_context(export_by_environment(notify=_notify)))
        except Exception as error:  # noqa: BLE001  # telemetry is not what the command was called for: it goes on without
            _notify(f"{variable} is set, but nothing is exported: {describe_error(error)}")
        try:
            yield
        finally:
            _active.clear()


def find_request_context() -> Callable[[Mapping[str, str]], AbstractContextManager[object]] | None:
    """What continues the trace of a request to a server; `None` if nothing is exported."""
    if not _active:
        return None
    from steersman.telemetry import continue_trace

    return continue_trace


def _notify(text: str) -> None:
    try:
        if sys.stderr is not None:
            print(f"steersman: {sanitize_line(redact_keys(text))}", file=sys.stderr, flush=True)
    except OSError:  # stderr has no reader: there is nobody to tell
        return
