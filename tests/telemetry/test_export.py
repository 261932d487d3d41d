"""Export by `OTEL_*` variables: over real OTLP/HTTP, and with collectors that are not there or do not answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.telemetry.collector import Collector, collect, read_attributes

from steersman import Agent, Usage, tool
from steersman.telemetry import export_by_environment
from steersman.testing import ScriptedModel, answer, call

ROOT = Path(__file__).parents[2]
NEVER = 8.0
"""Seconds: the flush waits for less than a fourth of this, and OpenTelemetry's own shutdown for longer."""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_agent() -> Agent:
    usage = Usage(input=10, output=4)
    return Agent(ScriptedModel(answer(call("add", a=1, b=2), usage=usage), answer("3", usage=usage)).model, tools=[add])


@contextmanager
def variables(**given: str) -> Generator[Mapping[str, str]]:
    """The process has these variables and no others for OpenTelemetry: its exporters read them there."""
    before = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    for name in before:
        del os.environ[name]
    os.environ.update(given)
    try:
        yield os.environ
    finally:
        for name in given:
            del os.environ[name]
        os.environ.update(before)


@pytest.mark.real_time
async def test_spans_and_metrics_arrive_over_otlp_as_they_are_specified() -> None:
    told: list[str] = []
    given = {"OTEL_SERVICE_NAME": "my-service", "OTEL_RESOURCE_ATTRIBUTES": "team=blue"}
    with (
        collect() as collector,
        variables(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **given),
        export_by_environment(notify=told.append),
    ):
        result = await make_agent().run("1 + 2?")
    assert told == []
    assert collector.draw() == [["invoke_agent steersman", [["chat script", ["execute_tool add"]], "chat script"]]]
    assert {"service.name": "my-service", "team": "blue"}.items() <= collector.resources[0].items()
    chats = [read_attributes(span.attributes) for span in collector.spans if span.name == "chat script"]
    tokens = sum(chat["gen_ai.usage.input_tokens"] + chat["gen_ai.usage.output_tokens"] for chat in chats)
    assert tokens == result.usage.total == 28
    assert set(collector.metrics) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
    }


@pytest.mark.real_time
async def test_only_what_is_asked_for_is_exported_and_text_only_on_demand() -> None:
    with collect() as collector:
        traces = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"}
        asked = {**traces, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        for given in (traces, asked):
            with variables(**given), export_by_environment(notify=_refuse):
                await make_agent().run("1 + 2?")
    assert collector.metrics == []
    texts = ["gen_ai.input.messages" in read_attributes(span.attributes) for span in collector.spans]
    assert texts.count(True) == 3


def _refuse(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.real_time
async def test_the_traceparent_of_the_environment_is_the_parent() -> None:
    with collect() as collector:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        with (
            variables(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as environ,
            export_by_environment({**environ, "TRACEPARENT": parent}, notify=_refuse),
        ):
            await make_agent().run("Go.")
    (run,) = [span for span in collector.spans if span.name.startswith("invoke_agent")]
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == tuple(parent.split("-")[1:3])


RUNS = """
import asyncio
from time import monotonic
from steersman.telemetry import export_by_environment
from tests.telemetry.test_export import make_agent

async def main():
    with export_by_environment(notify=print, flush_seconds=0.2):
        for _ in range(20):
            print((await make_agent().run("1 + 2?")).text)
        began = monotonic()
    print(monotonic() - began)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["refuses", "hangs"])
def test_a_collector_that_is_dead_changes_no_run_and_the_end_waits_for_a_bounded_time(kind: str) -> None:
    """In a program of its own: the exporter's threads may go on trying until it ends."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if kind == "hangs":
            listening.listen()  # connections are made, and nothing is ever read
        given = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{listening.getsockname()[1]}",
            "OTEL_BSP_SCHEDULE_DELAY": "1",
            "OTEL_BSP_MAX_QUEUE_SIZE": "4",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2",
        }
        command = [sys.executable, "-c", RUNS]
        program = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, check=False
        )
    *texts, took = program.stdout.splitlines()
    assert (texts, program.returncode) == (["3"] * 20, 0), program.stderr
    assert float(took) < NEVER


async def test_values_that_are_not_supported_are_told_and_the_rest_counts() -> None:
    told: list[str] = []
    given = {"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_METRICS_EXPORTER": "none"}
    with variables(**given), export_by_environment(notify=told.append):
        assert (await make_agent().run("1 + 2?")).text == "3"
    assert told == [
        "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc', and only http/protobuf is supported: it is used instead.",
        "OTEL_TRACES_EXPORTER is 'zipkin', and only otlp, console and none are supported: traces are not exported.",
    ]


async def test_the_console_is_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    given = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    with variables(**given), export_by_environment(notify=_refuse):
        await make_agent().run("1 + 2?")
    said = capfd.readouterr()
    assert said.out == ""
    assert "invoke_agent steersman" in said.err
    assert "gen_ai.client.token.usage" in said.err


def test_a_collector_shows_what_it_got() -> None:
    """The collector of these tests: without spans there is nothing to draw."""
    assert Collector().draw() == []
