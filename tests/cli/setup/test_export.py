"""OpenTelemetry for the command, as a real process: on by `OTEL_*` variables alone, and never felt in its answer."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.cli.command import Place, run_command, spawn
from tests.telemetry.collector import Collector, collect, read_attributes

from steersman.cli.setup.export import find_export_variable
from steersman.testing import answer, call, error
from steersman.testing.servers import OpenAIChatServer
from steersman.types.errors import ErrorInfo

SECRET_KEY = "sk-canary-4711-0815-never-seen"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def run_exporting(place: Place, server: OpenAIChatServer, env: Mapping[str, str]) -> tuple[int, str, str]:
    server.key = SECRET_KEY
    (place.project / "filename-canary.txt").write_text("result-canary")
    words = ["--system-prompt", "system-canary", "-p", "prompt-canary"]
    done = run_command(words, place=place, server=server, env=env)
    return done.code, done.text, done.errors


def say_all(server: OpenAIChatServer) -> None:
    server.say(
        error(ErrorInfo("overloaded", f"error-canary {SECRET_KEY}", status=503)),
        answer("answer-canary ", call("read", path="filename-canary.txt"), call("tool-canary", text="argument-canary")),
        "Done.",
    )


def test_the_command_exports_its_run_without_any_text(place: Place, server: OpenAIChatServer) -> None:
    say_all(server)
    with collect() as collector:
        code, text, errors = run_exporting(place, server, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    assert (code, text.splitlines()[-1]) == (0, "Done.")
    chat, tools = "chat gpt-x", ["execute_tool (unknown)", "execute_tool read"]
    assert collector.draw() == [["invoke_agent steersman", [chat, [chat, tools], chat]]]
    sent = b"".join(collector.bodies)
    assert b"gen_ai.usage.input_tokens" in sent
    assert [word for word in (b"canary", SECRET_KEY.encode(), str(place.home).encode()) if word in sent] == []
    assert SECRET_KEY not in errors


def test_with_content_there_is_text_and_no_key(place: Place, server: OpenAIChatServer) -> None:
    say_all(server)
    with collect() as collector:
        content = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        run_exporting(place, server, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **content})
    sent = b"".join(collector.bodies)
    kinds = ("prompt", "system", "answer", "argument", "filename", "result", "error")
    assert [kind for kind in kinds if f"{kind}-canary".encode() not in sent] == []
    assert SECRET_KEY.encode() not in sent


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"OTEL_SERVICE_NAME": "mine"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
    ],
    ids=["nothing", "a name", "none", "disabled"],
)
def test_it_is_off_unless_an_export_is_asked_for(env: dict[str, str]) -> None:
    assert find_export_variable(env) is None


def test_without_the_extra_it_is_told_once_and_the_run_goes_on(
    place: Place, server: OpenAIChatServer, tmp_path: Path
) -> None:
    """A package that cannot be imported stands in for one that is not installed."""
    hidden = tmp_path / "hidden" / "opentelemetry"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('not here', name='opentelemetry')")
    server.say("Done.")
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "PYTHONPATH": str(hidden.parent)}
    done = run_command(["-p", "Go."], place=place, server=server, env=env)
    assert (done.code, done.text) == (0, "Done.\n")
    told = [line for line in done.errors.splitlines() if "OTEL" in line or "otel" in line]
    assert told == [
        "steersman: OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is exported: "
        "steersman.telemetry needs OpenTelemetry: pip install 'steersman[otel]'."
    ]


def test_a_server_continues_the_trace_of_its_client_and_exports_at_its_end(place: Place) -> None:
    with collect() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_METRICS_EXPORTER": "none"}
        with spawn(["serve", "--model", "scripted:echo", "--port", "0"], place=place, env=env) as command:
            command.wait_for("\n")
            url, _, token = command.said("stdout").decode().strip().partition("/?token=")
            id = post(f"{url}/sessions", token, {})["id"]
            post(f"{url}/sessions/{id}/prompt", token, {"content": "Go."}, traceparent=f"00-{TRACE}-{SPAN}-01")
            with urlopen(Request(f"{url}/sessions/{id}/events", headers={"Authorization": f"Bearer {token}"})) as told:
                assert any(b'"agent_end"' in line for line in told)
            command.signal(signal.SIGTERM)
            assert command.wait().code == 0
    check_server_spans(collector, id)


def post(url: str, token: str, body: object, **headers: str) -> dict[str, str]:
    sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    with urlopen(Request(url, data=json.dumps(body).encode(), headers=sent, method="POST"), timeout=30) as response:
        return json.loads(response.read())


def check_server_spans(collector: Collector, session: str) -> None:
    assert collector.draw() == [["invoke_agent steersman", ["chat echo"]]]
    (run,) = [span for span in collector.spans if span.name.startswith("invoke_agent")]
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == (TRACE, SPAN)
    assert read_attributes(run.attributes)["gen_ai.conversation.id"] == session
