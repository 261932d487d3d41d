"""What spans and metrics are recorded with: a tracer, the instruments, and whether text is recorded."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.context import Context, set_value
from opentelemetry.metrics import Histogram, Meter, MeterProvider, get_meter
from opentelemetry.trace import Tracer, TracerProvider, get_tracer
from opentelemetry.util.types import AttributeValue

from steersman.telemetry import names
from steersman.types.usage import Usage

SCOPE = "steersman"
# The boundaries that the conventions advise.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

Attributes = dict[str, AttributeValue]
# Without an exemplar: at the time of recording another span may be the current one. This context has a value, since an
# empty one is taken for none and replaced by the current one.
NO_CONTEXT = set_value("steersman", SCOPE, Context())


@dataclass(frozen=True, slots=True)
class Recording:
    """How the runs of one instrumentation are recorded."""

    tracer: Tracer
    duration: Histogram
    tokens: Histogram
    first_chunk: Histogram
    name: str
    content: bool


def make_recording(
    tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, *, name: str, content: bool
) -> Recording:
    """The tracer and instruments of these providers, or of the global ones."""
    meter: Meter = get_meter(SCOPE, meter_provider=meter_provider)
    return Recording(
        tracer=get_tracer(SCOPE, tracer_provider=tracer_provider),
        duration=meter.create_histogram(
            names.OPERATION_DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
        tokens=meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        ),
        first_chunk=meter.create_histogram(
            names.TIME_TO_FIRST_CHUNK,
            unit="s",
            description="Time to receive the first chunk.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
        name=name,
        content=content,
    )


def count_input(usage: Usage) -> int | None:
    """The input tokens as the conventions count them: with those that a cache was read for or written with."""
    if usage.input is None and usage.cache_read is None and usage.cache_write is None:
        return None
    return (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)


def describe_usage(usage: Usage) -> Attributes:
    """The usage as attributes; what the provider did not report is left out."""
    found: Attributes = {}
    if not usage.known:
        return found
    if (count := count_input(usage)) is not None:
        found[names.USAGE_INPUT_TOKENS] = count
    if usage.output is not None:
        found[names.USAGE_OUTPUT_TOKENS] = usage.output
    if usage.cache_read is not None:
        found[names.USAGE_CACHE_READ] = usage.cache_read
    if usage.cache_write is not None:
        found[names.USAGE_CACHE_CREATION] = usage.cache_write
    if usage.reasoning is not None:
        found[names.USAGE_REASONING] = usage.reasoning
    if usage.cost is not None:
        found[names.COST] = usage.cost
    return found
