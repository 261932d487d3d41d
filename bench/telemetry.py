"""What telemetry costs: each event of a run that is traced, each delta of it, and a run beside it that is not.

Spans go through OpenTelemetry's batch processor to an exporter that drops them. Times are CPU times of the process,
medians of interleaved rounds. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import platform
import sys
from collections.abc import Sequence
from time import process_time

from bench.loop import delta_job, run_job, tool_job
from bench.measure import Pair, Row, medians, say, show
from bench.work import Job, done, steersman
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, set_span_in_context
from opentelemetry.util.types import AttributeValue

from steersman import Agent
from steersman.telemetry import instrument, uninstrument

MICRO = 1e6
MOST_MICROSECONDS = 20


class Nowhere(SpanExporter):
    """An exporter that drops all spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop them."""
        return SpanExportResult.SUCCESS


CHAT: dict[str, AttributeValue] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "bench",
    "gen_ai.request.model": "script",
}
CHAT_SPAN: dict[str, AttributeValue] = {
    **CHAT,
    "gen_ai.request.stream": True,
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 10,
    "gen_ai.response.finish_reasons": ("tool_call",),
    "gen_ai.response.time_to_first_chunk": 0.1,
}
CALL: dict[str, AttributeValue] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}
CALL_SPAN: dict[str, AttributeValue] = {
    **CALL,
    "gen_ai.tool.type": "function",
    "gen_ai.tool.call.id": "call_1_0",
    "steersman.tool.status": "completed",
}


class Traced:
    """Jobs with telemetry for every agent, and without."""

    def __init__(self) -> None:
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        self.meter_provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)

    def measure(self, job: Job) -> float:
        """The CPU seconds of a job whose runs are traced."""
        instrument("all", self.tracer_provider, self.meter_provider)
        try:
            return done(steersman, job).seconds
        finally:
            uninstrument("all")

    def measure_beside(self, job: Job) -> float:
        """The CPU seconds of a job that is not traced, while another agent is."""
        other = Agent("scripted:echo")
        instrument(other, self.tracer_provider, self.meter_provider)
        try:
            return done(steersman, job).seconds
        finally:
            uninstrument(other)

    def measure_by_hand(self, turns: int) -> float:
        """The CPU seconds of the spans and measurements of so many turns alone: less than that is not possible."""
        tracer, meter = self.tracer_provider.get_tracer("by hand"), self.meter_provider.get_meter("by hand")
        seconds, tokens, first = (meter.create_histogram(name) for name in ("seconds", "tokens", "first"))
        above = set_span_in_context(tracer.start_span("invoke_agent"))
        gc.collect()
        began = process_time()
        for _ in range(turns):
            chat = tracer.start_span("chat script", above, SpanKind.CLIENT, CHAT_SPAN)
            chat.end()
            tracer.start_span("execute_tool add", set_span_in_context(chat, above), attributes=CALL_SPAN).end()
            first.record(0.1, CHAT)
            seconds.record(0.1, CHAT)
            seconds.record(0.1, CALL)
            tokens.record(100, {**CHAT, "gen_ai.token.type": "input"})
            tokens.record(10, {**CHAT, "gen_ai.token.type": "output"})
        return process_time() - began

    def close(self) -> None:
        """End its threads."""
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()


def measure_plain(job: Job) -> float:
    """The CPU seconds of a job without telemetry."""
    return done(steersman, job).seconds


def count_events(job: Job) -> tuple[int, int]:
    """How many events a job has, and how many of them are no deltas."""
    told = asyncio.run(steersman(job)).events
    return len(told), len([kind for kind in told if kind != "message_update"])


def compare(traced: Traced, rounds: int) -> list[Row]:
    """The rows of the table."""
    turns, deltas, runs = 100, 4_000, 100
    say("  events of a traced run")
    tools = tool_job("nobody")(turns)
    on, off = medians(Pair(lambda: traced.measure(tools), lambda: measure_plain(tools)), rounds)
    events, whole = count_events(tool_job("subscriber")(turns))
    by_hand, _ = medians(Pair(lambda: traced.measure_by_hand(turns), lambda: 0.0), rounds)
    say("  deltas of a traced run")
    words = delta_job("nobody")(deltas)
    on_delta, off_delta = medians(Pair(lambda: traced.measure(words), lambda: measure_plain(words)), rounds)
    say("  runs beside a traced one")
    prompts = run_job("nobody")(runs)
    beside, alone = medians(Pair(lambda: traced.measure_beside(prompts), lambda: measure_plain(prompts)), rounds)
    return [
        _make_event_row("event of a traced run, deltas not counted", on, off, whole, MOST_MICROSECONDS),
        _make_event_row("the same, deltas counted", on, off, events, MOST_MICROSECONDS),
        _make_event_row("the spans and measurements of OpenTelemetry alone", by_hand, 0, whole, None),
        Row("turn with a tool call, traced", "us", on / turns * MICRO, off / turns * MICRO),
        Row("delta of a traced run", "us", on_delta / deltas * MICRO, off_delta / deltas * MICRO, 1.5),
        Row("run that is not traced, beside one that is", "us", beside / runs * MICRO, alone / runs * MICRO, 1.1),
    ]


def _make_event_row(name: str, on: float, off: float, events: int, most: float | None) -> Row:
    """A row for what tracing adds to an event, beside what the event costs without it."""
    return Row(name, "us", (on - off) / events * MICRO, off / events * MICRO, most, absolute=True)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="What telemetry costs, against the same runs without it.")
    parser.add_argument("--quick", action="store_true", help="less of everything, for a first look")
    rounds = 5 if parser.parse_args().quick else 21
    say("Measuring ...")
    traced = Traced()
    try:
        rows = compare(traced, rounds)
    finally:
        traced.close()
    print(f"Python {platform.python_version()}, {platform.machine()}, medians of {rounds} rounds of CPU time\n")
    show(rows)
    missed = [row.name for row in rows if row.missed]
    print(f"\nMissed: {'; '.join(missed)}." if missed else "\nEvery goal is reached.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
