"""Runs as OpenTelemetry spans and metrics, under the names of the GenAI conventions.

It only watches: nothing here decides anything in a run, and a failure here is not seen in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily
from steersman.types.errors import MissingExtra

if TYPE_CHECKING:
    from steersman.telemetry.export import Export, export_by_environment
    from steersman.telemetry.instrumentation import end_open_spans, instrument, uninstrument
    from steersman.telemetry.propagation import TraceHeaders, continue_trace


def _explain(error: ModuleNotFoundError) -> Exception | None:
    if (error.name or "").partition(".")[0] == "opentelemetry":
        return MissingExtra("steersman.telemetry needs OpenTelemetry: pip install 'steersman[otel]'.")
    return None


__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "export": "Export export_by_environment",
        "instrumentation": "end_open_spans instrument uninstrument",
        "propagation": "TraceHeaders continue_trace",
    },
    explain=_explain,
)

__all__ = [
    "Export",
    "TraceHeaders",
    "continue_trace",
    "end_open_spans",
    "export_by_environment",
    "instrument",
    "uninstrument",
]
