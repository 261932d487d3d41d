"""`steersman doctor`: what it finds on a bare machine, what it says to do, and when it says that nothing will work."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Done, Place, assert_calm, command_line, environment, run_command
from tests.cli.pty_terminal import Terminal
from tests.cli.setup.test_models import CANARY, NOWHERE

import steersman
from steersman.cli.setup.doctor import Finding, render_report
from steersman.cli.terminal.columns import Canvas, measure_cells


def doctor(place: Place, *args: str, **env: str) -> tuple[Done, dict[str, dict[str, Any]]]:
    done = run_command(["doctor", "--json", *args], place=place, env={**NOWHERE, **env})
    assert_calm(done)
    return done, {finding["what"]: finding for finding in done.json["findings"]}


def test_with_a_key_the_command_can_work_and_the_key_is_not_shown(place: Place) -> None:
    """failures.md L13."""
    done, found = doctor(place, ANTHROPIC_API_KEY=CANARY)
    assert (done.code, done.json["works"], done.errors) == (0, True, "")
    assert CANARY not in done.text
    assert found["keys"] == {
        "what": "keys",
        "state": "ok",
        "text": "ANTHROPIC_API_KEY",
        "advice": "",
        "vital": False,
    }
    assert found["model"]["text"] == "Using anthropic:claude-sonnet-5-5 (ANTHROPIC_API_KEY is set)."
    assert found["network"]["text"] == "not checked; --online opens a connection to the model's server"
    assert found["servers"]["state"] == "missing"
    assert found["servers"]["text"] == "No answer from Ollama, LM Studio, llama.cpp or vLLM on this machine."
    assert [name for name in found if name.startswith("[")] == [
        "[cli]",
        "[local]",
        "[mcp]",
        "[prices]",
        "[yaml]",
        "[bedrock]",
        "[vertex]",
        "[postgres]",
    ]


def test_settings_that_are_wrong_stop_the_command_and_are_told(place: Place) -> None:
    config = place.home / "config" / "steersman" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('modell = "x:y"\n')
    (config.parent / "trust.json").write_text("not json")
    done, found = doctor(place)
    assert (done.code, done.json["works"]) == (1, False)
    assert found["settings"]["state"] == "problem"
    assert f"{str(config)!r}" in found["settings"]["text"]
    assert "Did you mean 'model'?" in found["settings"]["text"]
    assert found["trust"]["state"] == "problem"


def test_a_model_that_cannot_be_asked_stops_the_command(place: Place) -> None:
    config = place.home / "config" / "steersman" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('model = "openai:gpt-5"\n')
    done, found = doctor(place)
    assert (done.code, found["model"]["state"]) == (1, "problem")
    assert "OPENAI_API_KEY" in found["model"]["text"]


def test_a_file_that_is_not_there_is_no_embedded_model(place: Place) -> None:
    done, found = doctor(place, STEERSMAN_LOCAL_MODEL="/nowhere/x.gguf")
    assert (done.code, found["model"]["state"]) == (1, "problem")
    assert found["model"]["text"].startswith("Using local:/nowhere/x.gguf (STEERSMAN_LOCAL_MODEL is set; ")


def test_without_online_no_other_machine_is_asked(place: Place) -> None:
    """A name that cannot be resolved would take its time, or be an error."""
    done, found = doctor(place, OPENAI_API_KEY="k", OPENAI_BASE_URL="http://nobody.invalid/v1")
    assert done.code == 0
    assert found["model"]["text"] == (
        "Not checked: the server at http://nobody.invalid/v1 knows its models; --online asks it."
    )
    _, far = doctor(place, OLLAMA_BASE_URL="http://192.0.2.1:11434/v1")
    assert "http://192.0.2.1:11434/v1" in far["model"]["text"]


def test_online_opens_one_connection_to_the_model(place: Place) -> None:
    done, found = doctor(place, "--online", ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL="http://127.0.0.1:9")
    assert (done.code, found["network"]["state"]) == (1, "problem")
    assert found["network"]["text"] == "Cannot connect to 127.0.0.1:9: Connection refused."


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written_to_is_told(place: Place, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    _, found = doctor(place, "--session-dir", str(closed / "sessions"))
    assert found["sessions"]["text"] == f"{closed} is not writable."


def test_in_a_narrow_window_every_line_fits_and_colours_can_be_switched_off(place: Place) -> None:
    env = environment(place, None, {**NOWHERE, "ANTHROPIC_API_KEY": "k"})
    with Terminal(command_line(["doctor"]), columns=40, rows=60, env=env, cwd=place.project) as seen:
        assert seen.ended() == 0
        assert b"\x1b[32mok     \x1b[0m Python" in seen.raw
        assert seen.everything.rstrip().endswith("steersman works here.")
    with Terminal(
        command_line(["doctor"]), columns=100, rows=60, env={**env, "NO_COLOR": "1"}, cwd=place.project
    ) as plain:
        assert plain.ended() == 0
        assert b"\x1b" not in plain.raw
        assert "ok       terminal" in plain.shown


def test_a_report_fits_any_width_and_lets_no_control_character_through() -> None:
    findings = [
        Finding("Python", "ok", "fine " * 30),
        Finding(
            "embedded model", "problem", "/a/very/long/path" * 12 + "\x1b[2J", "Do 何か about it. " * 9, vital=True
        ),
    ]
    for width in (24, 40, 61, 80, 200):
        lines = list(render_report(findings, Canvas(width), works=False))
        assert max(map(measure_cells, lines)) <= width, width
        assert "\x1b" not in "".join(lines)
    whole = list(render_report(findings, Canvas(None), works=True))
    assert len(whole) == 5
    assert whole[-1] == "steersman works here."


def test_without_any_extra_it_says_what_to_install_and_that_no_model_is_there(place: Place, tmp_path: Path) -> None:
    """A Python that has the two dependencies and what they need, and none of the optional packages."""
    optional = (
        "genai",
        "xllama",
        "rich",
        "prompt_toolkit",
        "mcp",
        "psycopg",
        "yaml",
        "pyyaml",
        "steersman",
        "__editable__",
    )
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.lower().startswith(optional) and path.suffix != ".pth":
            (bare / path.name).symlink_to(path)
    source = Path(steersman.__file__).parent.parent
    env = environment(place, None, {**NOWHERE, "PYTHONPATH": f"{bare}:{source}"})

    def bare_command(*args: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-S", "-m", "steersman", *args]
        return subprocess.run(line, env=env, cwd=place.project, capture_output=True, text=True, timeout=60, check=False)

    doctor = bare_command("doctor")
    assert (doctor.returncode, doctor.stderr) == (1, "")
    missing = [line.split()[1] for line in doctor.stdout.splitlines() if line.startswith("missing")]
    assert missing[:6] == ["[cli]", "[local]", "[mcp]", "[prices]", "[yaml]", "[postgres]"]
    assert "pip install 'steersman[local]'" in doctor.stdout
    assert "No model is available" in doctor.stdout
    models = bare_command("models")
    assert (models.returncode, models.stderr) == (0, "")
    assert "Prices and context windows need the package genai-prices" in models.stdout
